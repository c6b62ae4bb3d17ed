// Patterns of addresses, without the browser.

export type Params = Readonly<Record<string, string>>;

/**
 * The parameters of a path that matches a pattern such as `/projects/:project/tunnels`, else
 * undefined. A segment that is not valid percent-encoding does not match.
 */
export function matchPath(pattern: string, path: string): Params | undefined {
  const expected = segments(pattern);
  const given = segments(path);
  if (expected.length !== given.length) return undefined;
  const params: Record<string, string> = {};
  for (const [index, part] of expected.entries()) {
    const value = decode(given[index] ?? "");
    if (value === undefined) return undefined;
    if (part.startsWith(":")) params[part.slice(1)] = value;
    else if (part !== value) return undefined;
  }
  return params;
}

/** A path with its parameters encoded: `to("/projects/:project", { project: "a/b" })`. */
export function to(pattern: string, params: Params = {}, query: Record<string, string> = {}): string {
  const path = pattern.replace(/:([a-zA-Z]+)/g, (_, name: string) => encodeURIComponent(params[name] ?? ""));
  return withQuery(path, query);
}

export type Query = Readonly<Record<string, string>>;

/** The query with another value of one name. */
export function withValue(query: Query, name: string, value: string): Query {
  return { ...query, [name]: value };
}

/** The query with another filter, which is applied from the first page on. */
export function withFilter(query: Query, name: string, value: string): Query {
  return { ...query, [name]: value, page: "" };
}

/** Adds the members that are not empty as a query. */
export function withQuery(path: string, query: Query): string {
  const text = new URLSearchParams(Object.entries(query).filter(([, value]) => value !== "")).toString();
  return text === "" ? path : `${path}?${text}`;
}

/** True for addresses that the platform serves as documents of their own, not this application. */
export function isServerPage(path: string): boolean {
  return !OWN.some((own) => path === own || (own !== "/" && path.startsWith(`${own}/`))) || TERMINAL.test(path);
}

const OWN = ["/", "/welcome", "/projects", "/workspaces", "/credentials", "/installation"];
const TERMINAL = /^\/projects\/[^/]+\/(terminals(\/[^/]+)?|sessions\/[^/]+(\/replay)?)$/;

function segments(path: string): string[] {
  return path.split("/").filter((part) => part !== "");
}

function decode(part: string): string | undefined {
  try {
    return decodeURIComponent(part);
  } catch {
    return undefined;
  }
}

// Requests to the public API, typed by its OpenAPI documents.

import type { components as ControlComponents, paths as ControlPaths } from "../generated/control";
import type { components as EngineComponents, paths as EnginePaths } from "../generated/engine";
import { reportFailure, reportSuccess } from "./connection";
import { ApiError, parseProblem, unreachable } from "./problem";

/** A schema of the control plane. */
export type Control<Name extends keyof ControlComponents["schemas"]> = ControlComponents["schemas"][Name];
/** A schema of the Engine API. */
export type Engine<Name extends keyof EngineComponents["schemas"]> = EngineComponents["schemas"][Name];

type Verb = "get" | "post" | "put" | "patch" | "delete";
type PathOf<Paths, V extends Verb> = {
  [P in keyof Paths]: Paths[P] extends Record<V, { responses: unknown }> ? P : never;
}[keyof Paths] &
  string;
type OperationOf<Paths, P extends keyof Paths, V extends Verb> = V extends keyof Paths[P] ? Paths[P][V] : never;
type Content<R> = R extends { content: infer C } ? C[keyof C] : undefined;
type AnswerOf<O> = O extends { responses: infer R } ? Content<R[keyof R & (200 | 201 | 204)]> : never;
type PathParams<O> = O extends { parameters: { path: infer P } } ? P : undefined;
type QueryParams<O> = O extends { parameters: { query?: infer Q } } ? Q : undefined;
type BodyOf<O> = O extends { requestBody: { content: { "application/json": infer B } } }
  ? B
  : O extends { requestBody?: { content: { "application/json": infer B } } }
    ? B | undefined
    : undefined;

type Part<Name extends string, T> = [T] extends [undefined] ? object : undefined extends T ? { [K in Name]?: T } : { [K in Name]: T };
type Options<O> = Part<"path", PathParams<O>> & { query?: QueryParams<O> } & Part<"body", BodyOf<O>> & {
    signal?: AbortSignal | undefined;
  };

/** Calls an operation of the control plane. */
export function call<V extends Verb, P extends PathOf<ControlPaths, V>>(
  verb: V,
  path: P,
  options: Options<OperationOf<ControlPaths, P, V>>,
): Promise<AnswerOf<OperationOf<ControlPaths, P, V>>> {
  return request(verb, path, options) as Promise<AnswerOf<OperationOf<ControlPaths, P, V>>>;
}

/** Calls an operation of the Engine API, which the platform relays. */
export function callEngine<V extends Verb, P extends PathOf<EnginePaths, V>>(
  verb: V,
  project: string,
  path: P,
  options: Options<OperationOf<EnginePaths, P, V>>,
): Promise<AnswerOf<OperationOf<EnginePaths, P, V>>> {
  return request(verb, engineBase(project) + path, options) as Promise<AnswerOf<OperationOf<EnginePaths, P, V>>>;
}

/** The address below which the platform relays the Engine API of a project. */
export function engineBase(project: string): string {
  return `/engine/${encodeURIComponent(project)}`;
}

interface PlainOptions {
  path?: unknown;
  query?: unknown;
  body?: unknown;
  signal?: AbortSignal | undefined;
}

/** Longest wait for a response, so that a view never waits without an end. */
const TIMEOUT_MS = 30_000;

export async function request(verb: Verb, pattern: string, options: PlainOptions): Promise<unknown> {
  const url = address(pattern, options.path as Record<string, unknown>, options.query as Record<string, unknown>);
  const timeout = AbortSignal.timeout(TIMEOUT_MS);
  const init: RequestInit = {
    method: verb.toUpperCase(),
    headers: { Accept: "application/json" },
    signal: options.signal === undefined ? timeout : either(options.signal, timeout),
  };
  if (options.body !== undefined) {
    init.headers = { Accept: "application/json", "Content-Type": "application/json" };
    init.body = JSON.stringify(options.body);
  }
  let response: Response;
  let text: string;
  try {
    response = await fetch(url, init);
    text = await response.text();
  } catch {
    if (options.signal?.aborted === true) throw new DOMException("", "AbortError");
    throw reported(unreachable());
  }
  if (!response.ok) throw reported(parseProblem(response.status, text, response.headers.get("Retry-After")));
  reportSuccess();
  if (text === "") return undefined;
  try {
    return JSON.parse(text) as unknown;
  } catch {
    throw new ApiError({
      status: 502,
      code: "invalid_response",
      title: "The response is not readable",
      detail: "The response is not JSON. A proxy between the browser and the platform may have replaced it.",
    });
  }
}

/** The address of an operation. Parameters of the query without a value are left out. */
export function address(pattern: string, path: Record<string, unknown> = {}, query: Record<string, unknown> = {}): string {
  const filled = pattern.replace(/\{([a-z_]+)\}/g, (_, name: string) => encodeURIComponent(String(path[name] ?? "")));
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value === undefined || value === null || value === "") continue;
    search.set(name, typeof value === "object" ? JSON.stringify(value) : String(value));
  }
  const text = search.toString();
  return text === "" ? filled : `${filled}?${text}`;
}

function reported(error: ApiError): ApiError {
  reportFailure(error);
  return error;
}

function either(one: AbortSignal, other: AbortSignal): AbortSignal {
  const both = new AbortController();
  for (const signal of [one, other]) {
    if (signal.aborted) both.abort();
    else signal.addEventListener("abort", () => both.abort(), { once: true });
  }
  return both.signal;
}

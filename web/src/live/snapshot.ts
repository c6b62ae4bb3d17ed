// The first event of a stream, with all objects: megabytes, which are read one object at a time. One call
// of JSON.parse would block the page.

export interface SnapshotItem {
  readonly kind: "tunnel" | "client";
  readonly text: string;
}

const LISTS: Readonly<Record<string, SnapshotItem["kind"]>> = { tunnels: "tunnel", clients: "client" };

/**
 * The objects of a snapshot as JSON. Undefined if the text is another event. The text is read only as far as
 * the items are taken; a broken one throws a SyntaxError.
 */
export function snapshotItems(text: string): Iterable<SnapshotItem> | undefined {
  let isSnapshot = false;
  for (const [name, at] of members(text, skipSpace(text, 0))) {
    if (name === "type") isSnapshot = JSON.parse(text.slice(at, valueEnd(text, at))) === "state.initial";
    // The object is the last member of an event, so that its type is known.
    if (name === "object") return isSnapshot ? items(text, at) : undefined;
  }
  return undefined;
}

function* items(text: string, object: number): Generator<SnapshotItem> {
  for (const [name, at] of members(text, object)) {
    const kind = Object.hasOwn(LISTS, name) ? LISTS[name] : undefined;
    if (kind === undefined || text[at] !== "[") continue;
    for (const [start, end] of elements(text, at)) yield { kind, text: text.slice(start, end) };
  }
}

/** The members of an object: their names, and the places of their values. */
function* members(text: string, object: number): Generator<readonly [string, number]> {
  if (text[object] !== "{") return;
  let at = skipSpace(text, object + 1);
  while (text[at] !== "}") {
    const end = stringEnd(text, at);
    const name: unknown = JSON.parse(text.slice(at, end));
    const colon = skipSpace(text, end);
    if (text[colon] !== ":") throw broken();
    const value = skipSpace(text, colon + 1);
    yield [String(name), value];
    at = afterValue(text, valueEnd(text, value), "}");
  }
}

function* elements(text: string, list: number): Generator<readonly [number, number]> {
  let at = skipSpace(text, list + 1);
  while (text[at] !== "]") {
    const end = valueEnd(text, at);
    yield [at, end];
    at = afterValue(text, end, "]");
  }
}

/** The place of the next value, or of the end of the list or object. */
function afterValue(text: string, end: number, last: string): number {
  const at = skipSpace(text, end);
  if (text[at] === last) return at;
  if (text[at] !== ",") throw broken();
  return skipSpace(text, at + 1);
}

function skipSpace(text: string, from: number): number {
  let at = from;
  while (at < text.length && " \t\r\n".includes(text.charAt(at))) at += 1;
  return at;
}

/** The end of a string that starts at `from`. */
function stringEnd(text: string, from: number): number {
  if (text[from] !== '"') throw broken();
  for (let quote = text.indexOf('"', from + 1); quote >= 0; quote = text.indexOf('"', quote + 1)) {
    let slashes = 0;
    while (text[quote - 1 - slashes] === "\\") slashes += 1;
    if (slashes % 2 === 0) return quote + 1;
  }
  throw broken();
}

/** The end of a value. Of a list or an object only the brackets are checked here. */
function valueEnd(text: string, from: number): number {
  let depth = 0;
  let at = from;
  while (at < text.length) {
    const letter = text[at];
    if (letter === '"') {
      at = stringEnd(text, at);
      if (depth === 0) return at;
      continue;
    }
    if (letter === "{" || letter === "[") depth += 1;
    else if (letter === "}" || letter === "]") {
      if (depth === 0) return at;
      depth -= 1;
      if (depth === 0) return at + 1;
    } else if (depth === 0 && (letter === "," || letter === " " || letter === "\n")) return at;
    at += 1;
  }
  throw broken();
}

function broken(): SyntaxError {
  return new SyntaxError("the snapshot is not JSON");
}

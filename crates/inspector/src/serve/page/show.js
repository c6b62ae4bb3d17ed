// Displays recorded data as texts, trees and tables. They are built from nodes, never from markup.

/** An element with its attributes and children. */
export function element(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === undefined || value === false) continue;
    if (key === "class") node.className = value;
    else if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== undefined && child !== null));
  return node;
}

export function size(bytes) {
  if (bytes < 1024) return `${bytes} B`;
  if (bytes < 1024 * 1024) return `${(bytes / 1024).toFixed(1)} KiB`;
  return `${(bytes / 1024 / 1024).toFixed(1)} MiB`;
}

export function duration(millis) {
  if (millis === null || millis === undefined) return "…";
  if (millis < 10) return `${millis.toFixed(1)} ms`;
  if (millis < 1000) return `${Math.round(millis)} ms`;
  if (millis < 60_000) return `${(millis / 1000).toFixed(1)} s`;
  return `${Math.floor(millis / 60_000)} min ${Math.round((millis % 60_000) / 1000)} s`;
}

export function time(at) {
  const date = new Date(at);
  const two = (number) => String(number).padStart(2, "0");
  const millis = String(date.getMilliseconds()).padStart(3, "0");
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}.${millis}`;
}

/** The bytes of `{text}` or `{base64}`. */
export function bytesOf(data) {
  if (data.text !== undefined) return new TextEncoder().encode(data.text);
  return Uint8Array.from(atob(data.base64 ?? ""), (letter) => letter.charCodeAt(0));
}

export function headers(list) {
  if (list.length === 0) return element("p", { class: "note" }, "None.");
  const rows = list.map(({ name, value, masked }) =>
    element(
      "tr",
      {},
      element("th", { scope: "row" }, name),
      element("td", { class: masked ? "masked" : undefined }, value),
    ),
  );
  return element("table", {}, element("tbody", {}, ...rows));
}

/** The ways to look at a body, those that fit it first. */
export function ways(body) {
  if (body.size === 0) return [];
  const text = body.text !== undefined;
  if (text) return [...(pretty(body) ? ["Pretty"] : []), "Text", "Hex"];
  return [...(body.mime.startsWith("image/") ? ["Image"] : []), "Hex"];
}

/** A body, looked at in one of the ways. */
export function body(data, way, words) {
  switch (way) {
    case "Pretty":
      return pretty(data);
    case "Image": {
      const address = URL.createObjectURL(new Blob([bytesOf(data)], { type: data.mime }));
      const image = element("img", { class: "shown", src: address, alt: "The body, an image" });
      image.addEventListener("load", () => URL.revokeObjectURL(address));
      return image;
    }
    case "Hex":
      return element("pre", { class: "hex", tabindex: "0" }, hex(bytesOf(data)));
    default:
      return element("pre", { tabindex: "0" }, ...marked(data.text, words));
  }
}

/** JSON, or a form, in a form for people; nothing for others. */
function pretty({ text, mime }) {
  if (text === undefined) return null;
  if (mime === "application/x-www-form-urlencoded") {
    const pairs = [...new URLSearchParams(text)];
    return headers(pairs.map(([name, value]) => ({ name, value })));
  }
  if (!/[/+]json$/.test(mime) && !/^\s*[[{]/.test(text)) return null;
  try {
    const pre = element("pre", { tabindex: "0" });
    JSON.parse(text);
    pre.append(...json(indented(text)));
    return pre;
  } catch {
    return null;
  }
}

/** Valid JSON with line breaks. Its words stay as they are: large numbers would be rounded. */
function indented(text) {
  let out = "";
  let depth = 0;
  const line = () => `\n${"  ".repeat(depth)}`;
  for (const [token] of text.matchAll(/"(?:[^"\\]|\\.)*"|[[\]{},:]|[^\s[\]{},:"]+/g)) {
    const opened = /[[{]$/.test(out);
    if (token === "{" || token === "[") {
      if (opened) out += line();
      out += token;
      depth += 1;
    } else if (token === "}" || token === "]") {
      depth -= 1;
      out += opened ? token : `${line()}${token}`;
    } else if (token === ",") out += `,${line()}`;
    else if (token === ":") out += ": ";
    else out += `${opened ? line() : ""}${token}`;
  }
  return out;
}

/** Indented JSON with its words told apart. */
function json(text) {
  const nodes = [];
  const words = /("(?:[^"\\]|\\.)*")(\s*:)?|\b(?:true|false|null)\b|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;
  let end = 0;
  for (const found of text.matchAll(words)) {
    // Thousands of nodes make a page slow; the rest stays plain.
    if (nodes.length > 20_000) break;
    nodes.push(text.slice(end, found.index));
    const [all, string, colon] = found;
    if (string === undefined) nodes.push(element("span", { class: "other" }, all));
    else nodes.push(element("span", { class: colon ? "key" : "string" }, string), colon ?? "");
    end = found.index + all.length;
  }
  nodes.push(text.slice(end));
  return nodes;
}

/** A text with the words that were looked for. */
function marked(text, words) {
  if (!words) return [text];
  const nodes = [];
  const lower = text.toLowerCase();
  let end = 0;
  for (let at = lower.indexOf(words); at >= 0; at = lower.indexOf(words, end)) {
    if (nodes.length > 2000) break;
    nodes.push(text.slice(end, at), element("mark", {}, text.slice(at, at + words.length)));
    end = at + words.length;
  }
  nodes.push(text.slice(end));
  return nodes;
}

const HEX_BYTES = 64 * 1024;

function hex(bytes) {
  const lines = [];
  for (let at = 0; at < Math.min(bytes.length, HEX_BYTES); at += 16) {
    const row = [...bytes.subarray(at, at + 16)];
    const digits = row.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const letters = row.map((byte) => (byte > 31 && byte < 127 ? String.fromCharCode(byte) : "."));
    lines.push(`${at.toString(16).padStart(6, "0")}  ${digits.padEnd(47)}  ${letters.join("")}`);
  }
  if (bytes.length > HEX_BYTES) lines.push(`… and ${size(bytes.length - HEX_BYTES)} more`);
  return lines.join("\n");
}

/** A message of a WebSocket, an event stream or gRPC. */
export function message(note) {
  const who = note.from === "visitor" ? "Visitor →" : "← Service";
  const kind = {
    close: `close${note.code ? ` ${note.code}` : ""}`,
    event: `event ${note.name ?? ""}${note.event_id ? `, id ${note.event_id}` : ""}`,
    grpc: "message",
  };
  const facts = [
    time(note.at),
    who,
    kind[note.type] ?? note.type,
    size(note.size),
    note.compressed ? "compressed" : undefined,
    note.cut ? "cut" : undefined,
  ];
  const item = element(
    "li",
    { class: note.from },
    element("p", {}, facts.filter(Boolean).join(" · ")),
  );
  const shown = content(note);
  if (shown) item.append(shown);
  return item;
}

function content(note) {
  if (note.fields) return element("pre", { tabindex: "0" }, protobuf(note.fields, ""));
  const bytes = bytesOf(note);
  if (bytes.length === 0) return null;
  if (note.text === undefined) return element("pre", { class: "hex", tabindex: "0" }, hex(bytes));
  return pretty({ text: note.text, mime: "" }) ?? element("pre", { tabindex: "0" }, note.text);
}

/** Numbers of fields and what their values look like, as text. */
function protobuf(fields, indent) {
  if (fields.length === 0 && indent === "") return "(an empty message)";
  return fields
    .map(({ number, message, text, ...other }) => {
      if (message) return `${indent}${number}: {\n${protobuf(message, `${indent}  `)}\n${indent}}`;
      if (text !== undefined) return `${indent}${number}: ${JSON.stringify(text)}`;
      const [[kind, value]] = Object.entries(other);
      return `${indent}${number}: ${value}${kind === "varint" ? "" : `  (${kind})`}`;
    })
    .join("\n");
}

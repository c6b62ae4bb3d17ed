// The WebTTY messages that a page sends and reads, with the numbers of docs/webtty-protocol.md.
// Unknown fields are skipped, as the protocol requires.

/** Size of the largest accepted message. */
export const MAX_MESSAGE = 1 << 20;

/** Streams of a command. */
export const STREAM = { stdin: 0, stdout: 1, stderr: 2 };

/** Extensions of the published protocol that a page supports. */
export const FEATURE = { signals: 1, resume: 2, notices: 3 };

/** Signals, with their numbers. */
export const SIGNAL = { HUP: 1, INT: 2, QUIT: 3, KILL: 9, TERM: 15 };

/** Kinds of changes to the participants. */
export const NOTICE = {
  joined: 1,
  left: 2,
  requested: 3,
  granted: 4,
  refused: 5,
  revoked: 6,
  expired: 7,
  snapshot: 8,
  kicked: 9,
  recorded: 10,
  resized: 11,
};

/** Encodes one message as one WebSocket message. */
export function encode(kind, fields = {}) {
  const message = MESSAGE.find(([, name]) => name === kind);
  if (!message) throw new TypeError(`no message ${kind}`);
  return write([message], { [kind]: fields });
}

/** Decodes one message: `{kind, …fields}`. Throws if it is invalid. */
export function decode(bytes) {
  const input = bytes instanceof Uint8Array ? bytes : new Uint8Array(bytes);
  if (input.length > MAX_MESSAGE) throw new RangeError("a message is too long");
  const found = Object.entries(read(MESSAGE, input, 0)).filter(([, value]) => value !== undefined);
  if (found.length !== 1) throw new TypeError("not one message");
  const [[kind, fields]] = found;
  return { kind, ...fields };
}

// A field: its number, its name, its type and its cardinality. The type is "uint", "int" (32 bits),
// "bool", "text", "bytes", or the fields of a message. The cardinality is "one" (absent is the
// default value), "may" (absent is undefined) or "many".
const SIZE = [
  [1, "row", "uint", "one"],
  [2, "col", "uint", "one"],
  [3, "xpixel", "uint", "one"],
  [4, "ypixel", "uint", "one"],
];
const OPTIONS = [
  [1, "interactive", "bool", "one"],
  [2, "allocateTty", "bool", "one"],
  [3, "sendHeartbeat", "bool", "one"],
];
const VARIABLE = [
  [1, "key", "text", "one"],
  [2, "value", "text", "one"],
];
const CONFIG = [
  [1, "options", OPTIONS, "may"],
  [2, "cmdArgs", "text", "many"],
  [3, "envVars", VARIABLE, "many"],
];
const RESUME = [
  [1, "token", "bytes", "one"],
  [2, "received", "uint", "one"],
];
const OPEN_SESSION = [
  [1, "features", "uint", "many"],
  [2, "resume", RESUME, "may"],
  [3, "size", SIZE, "may"],
];
const ACK_SESSION = [
  [1, "features", "uint", "many"],
  [2, "sessionId", "text", "one"],
  [3, "resumeToken", "bytes", "one"],
  [4, "graceSeconds", "uint", "one"],
  [5, "outputFrom", "uint", "may"],
  [6, "inputReceived", "uint", "one"],
];
const TERMINATION = [
  [1, "reason", "uint", "one"],
  [2, "signal", "text", "one"],
  [3, "detail", "text", "one"],
];
const NOTICE_FIELDS = [
  [1, "kind", "uint", "one"],
  [2, "participantId", "text", "one"],
  [3, "requestId", "text", "one"],
  [4, "user", "text", "one"],
  [5, "reason", "text", "one"],
  [6, "expiresAt", "uint", "one"],
  [7, "size", SIZE, "may"],
];
const DECISION = [
  [1, "requestId", "text", "one"],
  [2, "grant", "bool", "one"],
];
const ATTACH = [
  [1, "sessionId", "text", "one"],
  [2, "participantId", "text", "one"],
  [3, "attachGrant", "bytes", "one"],
  [4, "requestedRole", "uint", "one"],
  [5, "transport", "uint", "one"],
  [6, "capabilities", "uint", "many"],
];
const MESSAGE = [
  [1, "open", [[1, "config", CONFIG, "may"], [100, "session", OPEN_SESSION, "may"]], "may"],
  [2, "ack", [[100, "session", ACK_SESSION, "may"]], "may"],
  [3, "error", [[1, "msg", "text", "one"]], "may"],
  [4, "close", [[1, "returnCode", "int", "one"], [100, "termination", TERMINATION, "may"]], "may"],
  [
    5,
    "data",
    [
      [1, "type", "uint", "one"],
      [2, "data", "bytes", "may"],
      [3, "eos", [], "may"],
    ],
    "may",
  ],
  [6, "parameter", [[1, "terminalSize", SIZE, "may"]], "may"],
  [
    7,
    "heartbeat",
    [
      [100, "signal", "uint", "may"],
      [101, "received", "uint", "may"],
      [102, "notice", NOTICE_FIELDS, "may"],
      [103, "decision", DECISION, "may"],
      [104, "secretInput", "bool", "may"],
    ],
    "may",
  ],
  [8, "attach", ATTACH, "may"],
  [9, "serverHello", [], "may"],
  [10, "protocolError", [[1, "code", "uint", "one"], [2, "msg", "text", "one"]], "may"],
];

const VARINT = 0;
const EIGHT_BYTES = 1;
const LENGTH = 2;
const FOUR_BYTES = 5;

/** Maximum depth of nested messages, as in the tables. */
const MAX_DEPTH = 8;

function write(fields, values) {
  const parts = [];
  for (const [number, name, holds, how] of fields) {
    const value = values[name];
    if (value === undefined) continue;
    if (how === "many" && isNumber(holds)) {
      // Numbers of a list are packed.
      if (value.length > 0) delimited(parts, number, join(value.map((one) => varint(BigInt(one)))));
      continue;
    }
    for (const one of how === "many" ? value : [value]) {
      if (how === "one" && isDefault(holds, one)) continue;
      if (isNumber(holds)) {
        parts.push(tag(number, VARINT), varint(BigInt.asUintN(64, BigInt(one))));
      } else {
        delimited(parts, number, content(holds, one));
      }
    }
  }
  return join(parts);
}

function content(holds, value) {
  if (holds === "text") return new TextEncoder().encode(value);
  return holds === "bytes" ? value : write(holds, value);
}

function delimited(parts, number, bytes) {
  parts.push(tag(number, LENGTH), varint(BigInt(bytes.length)), bytes);
}

function tag(number, wire) {
  return varint(BigInt((number << 3) | wire));
}

function varint(value) {
  const bytes = [];
  let rest = value;
  do {
    const more = rest > 0x7fn;
    bytes.push(Number(rest & 0x7fn) | (more ? 0x80 : 0));
    rest >>= 7n;
  } while (rest > 0n);
  return Uint8Array.from(bytes);
}

function join(parts) {
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

function read(fields, bytes, depth) {
  if (depth > MAX_DEPTH) throw new RangeError("a message is too deep");
  const values = {};
  for (const [, name, holds, how] of fields) {
    if (how === "many") values[name] = [];
    if (how === "one") values[name] = defaultOf(holds);
  }
  const reader = new Reader(bytes);
  while (!reader.isAtEnd()) {
    const key = Number(reader.varint());
    const wire = key & 7;
    const field = fields.find(([number]) => number === Math.floor(key / 8));
    if (!field) {
      reader.skip(wire);
      continue;
    }
    const [, name, holds, how] = field;
    if (how === "many" && isNumber(holds) && wire === LENGTH) {
      const packed = new Reader(reader.bytes());
      while (!packed.isAtEnd()) values[name].push(number(holds, packed.varint()));
      continue;
    }
    if (wire !== (isNumber(holds) ? VARINT : LENGTH)) throw new TypeError(`${name} is malformed`);
    const value = isNumber(holds) ? number(holds, reader.varint()) : parsed(holds, reader, depth);
    if (how === "many") values[name].push(value);
    else values[name] = value;
  }
  return values;
}

function parsed(holds, reader, depth) {
  const bytes = reader.bytes();
  if (holds === "text") return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  return holds === "bytes" ? bytes : read(holds, bytes, depth + 1);
}

class Reader {
  constructor(bytes) {
    this.input = bytes;
    this.at = 0;
  }

  isAtEnd() {
    return this.at === this.input.length;
  }

  varint() {
    let value = 0n;
    for (let shift = 0n; shift < 70n; shift += 7n) {
      if (this.isAtEnd()) throw new RangeError("a number is cut off");
      const byte = this.input[this.at];
      this.at += 1;
      value |= BigInt(byte & 0x7f) << shift;
      if (byte < 0x80) return BigInt.asUintN(64, value);
    }
    throw new RangeError("a number is too long");
  }

  bytes() {
    return this.take(Number(this.varint()));
  }

  take(length) {
    if (length > this.input.length - this.at) throw new RangeError("a field is cut off");
    const taken = this.input.subarray(this.at, this.at + length);
    this.at += length;
    return taken;
  }

  skip(wire) {
    if (wire === VARINT) this.varint();
    else if (wire === EIGHT_BYTES) this.take(8);
    else if (wire === FOUR_BYTES) this.take(4);
    else if (wire === LENGTH) this.bytes();
    else throw new TypeError("a field is malformed");
  }
}

function isNumber(holds) {
  return holds === "uint" || holds === "int" || holds === "bool";
}

function number(holds, value) {
  if (holds === "bool") return value !== 0n;
  return holds === "int" ? Number(BigInt.asIntN(32, value)) : Number(value);
}

function defaultOf(holds) {
  if (holds === "bool") return false;
  if (holds === "text") return "";
  return holds === "bytes" ? new Uint8Array() : 0;
}

function isDefault(holds, value) {
  return holds === "bytes" ? value.length === 0 : value === defaultOf(holds);
}

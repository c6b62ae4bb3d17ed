// The messages of the pages are encoded and decoded with the same bytes as in `crates/tty`. Both
// sides test the vectors of one file.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";

import { decode, encode } from "../../crates/control/src/pages/terminal/webtty.mjs";

const file = new URL("../../crates/tty/tests/browser.json", import.meta.url);
const vectors = JSON.parse(readFileSync(file, "utf8"));
const bytesOf = (hex) => Uint8Array.from(Buffer.from(hex, "hex"));

/** JSON has no bytes, so they are written as `{"hex": "…"}`. */
function revived(value) {
  if (Array.isArray(value)) return value.map(revived);
  if (value === null || typeof value !== "object") return value;
  if (typeof value.hex === "string") return bytesOf(value.hex);
  return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, revived(one)]));
}

/** All fields of a message that the pages use: absent texts and numbers are empty and zero. */
function within(found, wanted, at) {
  for (const [key, value] of Object.entries(wanted)) {
    if (value instanceof Uint8Array) assert.deepEqual([...found[key]], [...value], `${at}.${key}`);
    else if (value && typeof value === "object" && !Array.isArray(value)) {
      within(found[key], value, `${at}.${key}`);
    } else assert.deepEqual(found[key], value, `${at}.${key}`);
  }
}

for (const { name, hex, kind, fields, reads } of vectors) {
  const wanted = revived(fields);
  if (!reads) assert.equal(Buffer.from(encode(kind, wanted)).toString("hex"), hex, name);
  const found = decode(bytesOf(hex));
  assert.equal(found.kind, kind, name);
  within(found, wanted, name);
}

// An invalid message is an error, and never parsed partially.
for (const hex of [
  "",
  "12",
  "1200 1200 2a00".replaceAll(" ", ""),
  "2a05080112",
  "2aff",
  "0f",
  "08ffffffffffffffffffffff01",
  "1a040a02c328",
  "2a0408021207",
  "1a020801",
]) {
  assert.throws(() => decode(bytesOf(hex)), `${hex} was read`);
}
assert.throws(() => decode(new Uint8Array((1 << 20) + 1)));
assert.throws(() => encode("nothing"));
const whole = encode("data", { type: 1, data: new Uint8Array(300).fill(7) });
for (let end = 1; end < whole.length; end += 1) {
  assert.throws(() => decode(whole.subarray(0, end)), `cut at ${end}`);
}
console.log(JSON.stringify({ vectors: vectors.length }));

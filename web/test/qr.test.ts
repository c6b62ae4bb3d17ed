import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";
import { qr, qrPath } from "../src/qr/qr";

const rows = (text: string) => {
  const code = qr(text);
  assert.ok(code !== undefined);
  return Array.from({ length: code.side }, (_, row) => Array.from({ length: code.side }, (_, column) => (code.isDark(column, row) ? "1" : "0")).join(""));
};

test("a code has its finder patterns and the side of its version", () => {
  const code = rows("https://web-1a2b.t.engine.example");
  assert.equal(code.length, 29);
  for (const line of [code[0], code[6]]) assert.ok(line?.startsWith("11111110") && line.endsWith("01111111"));
  assert.ok(code.at(-1)?.startsWith("11111110"));
});

test("the path draws exactly the dark modules", () => {
  const code = qr("https://web.example");
  assert.ok(code !== undefined);
  const { side, path } = qrPath(code);
  assert.equal(side, code.side + 8);
  let drawn = 0;
  for (const [, , , length] of path.matchAll(/M(\d+) (\d+)h(\d+)v1h-\d+z/g)) drawn += Number(length);
  assert.equal(drawn, rows("https://web.example").join("").replaceAll("0", "").length);
});

test("a text that is too long has no code", () => {
  assert.equal(qr("a".repeat(5000)), undefined);
});

test("the modules are those that a reader was tested with", () => {
  const hash = createHash("sha256").update(rows("https://web-1a2b.t.engine.example").join("")).digest("hex");
  assert.equal(hash, "e9ff0c67b155eaa242ba60a6760342eb5a3c3a40a81abb49ce19af477abd222e");
});

import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";

const sources = readdirSync("src", { recursive: true, encoding: "utf8" })
  .filter((name) => /\.(tsx?|css|html)$/.test(name) && !name.startsWith("generated"))
  .map((name) => [name, readFileSync(join("src", name), "utf8")] as const);

test("no source writes markup or code from text", () => {
  assert.ok(sources.length > 50);
  for (const [name, text] of sources) {
    assert.doesNotMatch(text, /innerHTML|outerHTML|insertAdjacentHTML|dangerouslySetInnerHTML|document\.write|\beval\(|new Function|srcdoc/, name);
  }
});

test("no source needs a style or an origin that the policy forbids", () => {
  for (const [name, text] of sources) {
    assert.doesNotMatch(text, /\sstyle="|<style|@font-face|url\(/, name);
    assert.doesNotMatch(text, /(src|href)="(https?:)?\/\//, name);
  }
});

test("nothing is kept in the storage of the browser", () => {
  for (const [name, text] of sources) assert.doesNotMatch(text, /localStorage|sessionStorage|indexedDB|document\.cookie/, name);
});

// The search of the pages in the rows of a terminal, compared with a search in the lines that were
// printed. Prints the number of compared searches.

import assert from "node:assert/strict";
import { createRequire } from "node:module";

import { neighbour, placesOf } from "../../crates/control/src/pages/terminal/find.mjs";

const require = createRequire(`${process.env.SVC_TEST_NODE_PACKAGES}/`);
const { Terminal } = require("@xterm/headless");

/** Numbers from a seed: each run prints the same. */
let seed = 7;
function random(below) {
  seed = (seed * 1_103_515_245 + 12_345) % 2 ** 31;
  return Math.floor((seed / 2 ** 31) * below);
}

const PIECES = ["a", "B", "ab", "ba", " ", "世", "界", "é", "e\u0301", "🙂", "İ", "-"];
const text = (most) => Array.from({ length: random(most) + 1 }, () => PIECES[random(PIECES.length)]).join("");

/** Places of a text in a line, without overlaps. */
function countIn(line, needle) {
  return line.toLowerCase().split(needle.toLowerCase()).length - 1;
}

/** The text of the cells of a place, without the cells that a wide character leaves empty. */
function textAt(buffer, columns, { row, column, length }) {
  let found = "";
  for (let cell = row * columns + column; cell < row * columns + column + length; cell += 1) {
    found += buffer.getLine(Math.floor(cell / columns)).getCell(cell % columns).getChars();
  }
  return found;
}

let searches = 0;
for (let round = 0; round < 60; round += 1) {
  const cols = 5 + random(20);
  const terminal = new Terminal({ allowProposedApi: true, cols, rows: 6, scrollback: 500 });
  // A line ends with a character, because the cells after it are no text.
  const lines = Array.from({ length: 8 }, () => `${text(60)}|`);
  await new Promise((done) => terminal.write(lines.join("\r\n"), done));
  const buffer = terminal.buffer.active;
  for (let again = 0; again < 20; again += 1) {
    const needle = text(3);
    const places = placesOf(buffer, cols, needle);
    const expected = lines.reduce((sum, line) => sum + countIn(line, needle), 0);
    // Empty cells count as spaces, which are not in the printed lines.
    if (needle.trim()) {
      assert.equal(places.length, expected, JSON.stringify({ cols, needle, lines }));
      for (const place of places) {
        const found = textAt(buffer, cols, place).toLowerCase().replaceAll(" ", "");
        assert.ok(found.includes(needle.toLowerCase().replaceAll(" ", "")), JSON.stringify({ found, needle }));
      }
      searches += 1;
    }
    visitsAll(places);
  }
  terminal.dispose();
}

/** Both directions visit each place once, and start again. */
function visitsAll(places) {
  if (places.length === 0) return;
  for (const by of [1, -1]) {
    let selected;
    const visited = places.map(() => {
      const at = neighbour(places, selected, by);
      selected = { x: places[at].column, y: places[at].row };
      return at;
    });
    const order = places.map((_, at) => at);
    assert.deepEqual(visited, by > 0 ? order : order.reverse());
    assert.equal(neighbour(places, selected, by), visited[0]);
  }
}

console.log(JSON.stringify({ searches }));

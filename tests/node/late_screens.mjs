// Draws outputs with xterm.js, once from the start and once from a snapshot, and prints the
// differences. One case and one answer per line.

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const require = createRequire(`${process.env.SVC_TEST_NODE_PACKAGES}/`);
const { Terminal } = require("@xterm/headless");

for await (const line of createInterface({ input: process.stdin })) {
  const { size, before, snapshot, narrower, after } = JSON.parse(line);
  const live = terminal(size);
  await write(live, before);
  const late = terminal(size);
  await write(late, "other things\x1b[41m\x1b[2;3r");
  await write(late, Buffer.from(snapshot, "base64"));
  const different = compare("joined", live, late);
  if (narrower) {
    for (const each of [live, late]) each.resize(narrower, size[1]);
    different.push(...compare("narrower", live, late));
  }
  for (const each of [live, late]) await write(each, after);
  different.push(...compare("after", live, late));
  for (const each of [live, late]) each.dispose();
  console.log(JSON.stringify({ different }));
}

function terminal([cols, rows]) {
  return new Terminal({ allowProposedApi: true, cols, rows, scrollback: 0 });
}

function write(terminal, bytes) {
  return new Promise((done) => terminal.write(bytes, done));
}

/** Differences of two screens, with the position of the first one in each row. */
function compare(when, live, late) {
  const [a, b] = [live, late].map(state);
  const different = [];
  if (a.rest !== b.rest) different.push(`${when}: ${a.rest} / ${b.rest}`);
  a.rows.forEach((row, at) => {
    const column = row.findIndex((cell, column) => cell !== b.rows[at][column]);
    if (column >= 0) different.push(`${when}: row ${at} column ${column}: ${row[column]} / ${b.rows[at][column]}`);
  });
  return different;
}

function state(terminal) {
  const { active } = terminal.buffer;
  const rows = [...Array(terminal.rows).keys()].map((row) => {
    const line = active.getLine(active.baseY + row);
    return [...Array(terminal.cols).keys()].map((column) => look(line.getCell(column)));
  });
  const { cursorX, cursorY, type } = active;
  return { rows, rest: JSON.stringify({ cursorX, cursorY, type, ...terminal.modes, ...internals(terminal) }) };
}

/** Modes that the public interface does not have: the form of mouse reports, and the cursor. */
function internals({ _core }) {
  const { isCursorHidden, decPrivateModes } = _core.coreService;
  const { activeEncoding } = _core.coreMouseService;
  // Otherwise, two terminals without these members would be equal.
  assert.deepEqual([typeof isCursorHidden, typeof activeEncoding], ["boolean", "string"]);
  assert.ok("cursorStyle" in decPrivateModes && "cursorBlink" in decPrivateModes);
  const { cursorStyle, cursorBlink } = decPrivateModes;
  return { isCursorHidden, activeEncoding, cursorStyle, cursorBlink };
}

/**
 * The look of a cell. A blank shows its background, and attributes that are visible on blanks; so
 * does concealed text.
 */
function look(cell) {
  const colour = (isDefault, isRgb, value) => (isDefault ? "-" : `${isRgb ? "#" : ""}${value}`);
  const foreground = colour(cell.isFgDefault(), cell.isFgRGB(), cell.getFgColor());
  const background = colour(cell.isBgDefault(), cell.isBgRGB(), cell.getBgColor());
  const { underlineStyle } = cell.extended;
  const underline = cell.isUnderline() ? `_${underlineStyle}` : "";
  // Without a colour of its own, the value that xterm.js reports is left over from an earlier one.
  const hasColour = cell.isUnderlineColorPalette() || cell.isUnderlineColorRGB();
  const underlineColour = cell.isUnderline() && hasColour ? cell.getUnderlineColor() : "";
  const attributes = ["Bold", "Dim", "Italic", "Blink", "Inverse", "Strikethrough", "Overline"];
  const set = attributes.filter((name) => cell[`is${name}`]());
  const isBlank = !cell.getChars().trim() || Boolean(cell.isInvisible());
  const isPlain = !underline && !set.some((name) => ["Inverse", "Strikethrough", "Overline"].includes(name));
  if (isBlank && isPlain) return `' ' ${cell.getWidth()} ${background}`;
  const text = isBlank ? " " : cell.getChars();
  return `'${text}' ${cell.getWidth()} ${foreground} ${background} ${underline}${underlineColour} ${set.join(" ")}`;
}

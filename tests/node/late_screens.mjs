// Draws outputs with xterm.js, once from the start and once from a snapshot, and prints the
// differences. One case and one answer per line. A case with `scrollback`, the number of rows above
// the screen, compares these as well; `wraps` also compares which rows continue their predecessors.

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const require = createRequire(`${process.env.SVC_TEST_NODE_PACKAGES}/`);
const { Terminal } = require("@xterm/headless");

for await (const line of createInterface({ input: process.stdin })) {
  const { size, scrollback = 0, wraps = false, before, snapshot, narrower, after } = JSON.parse(line);
  const live = terminal(size, scrollback);
  await write(live, before);
  const late = terminal(size, scrollback);
  await write(late, `${"other things\r\n".repeat(size[1])}\x1b[41m\x1b[2;3r`);
  await write(late, Buffer.from(snapshot, "base64"));
  const different = compare("joined", live, late, wraps);
  if (narrower) {
    for (const each of [live, late]) each.resize(narrower, size[1]);
    different.push(...compare("narrower", live, late, wraps));
  }
  for (const each of [live, late]) await write(each, after);
  different.push(...compare("after", live, late, wraps));
  for (const each of [live, late]) each.dispose();
  console.log(JSON.stringify({ different }));
}

function terminal([cols, rows], scrollback) {
  return new Terminal({ allowProposedApi: true, cols, rows, scrollback });
}

function write(terminal, bytes) {
  return new Promise((done) => terminal.write(bytes, done));
}

/**
 * Differences of two terminals, with the position of the first one in each row. The first row of the
 * screen is 0, and those above it are negative.
 */
function compare(when, live, late, wraps) {
  const [a, b] = [live, late].map((terminal) => state(terminal, wraps));
  const different = [];
  if (a.rest !== b.rest) different.push(`${when}: ${a.rest} / ${b.rest}`);
  // Terminals with different numbers of rows are different in the rest, which has this number.
  const rows = a.rows.slice(0, b.rows.length);
  rows.forEach((row, at) => {
    const column = row.findIndex((cell, column) => cell !== b.rows[at][column]);
    const number = at - a.above;
    if (column >= 0) different.push(`${when}: row ${number} column ${column}: ${row[column]} / ${b.rows[at][column]}`);
  });
  return different;
}

function state(terminal, wraps) {
  const { active, normal } = terminal.buffer;
  const { cursorX, cursorY, type } = active;
  const above = normal.baseY;
  const rows = [
    ...looksOf(terminal, normal, 0, above, wraps),
    ...looksOf(terminal, active, active.baseY, terminal.rows, wraps),
  ];
  const rest = JSON.stringify({ above, cursorX, cursorY, type, ...terminal.modes, ...internals(terminal) });
  return { above, rows, rest };
}

/** The looks of the cells of rows. */
function looksOf(terminal, buffer, start, count, wraps) {
  return [...Array(count).keys()].map((row) => {
    const line = buffer.getLine(start + row);
    const cells = [...Array(terminal.cols).keys()].map((column) => look(line.getCell(column)));
    return wraps ? [line.isWrapped, ...cells] : cells;
  });
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

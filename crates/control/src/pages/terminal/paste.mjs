// Pasted text, before it goes into a terminal. Whoever wrote it is a stranger: a page can put
// something else on the clipboard than what a person selected on it.

/**
 * The text without control characters other than tab and line breaks, as xterm and VTE have it: an
 * escape sequence could end the brackets by which a program knows what was pasted, and what follows
 * would be taken for keys.
 */
export function harmless(text) {
  return text.replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f]/g, "");
}

/** Whether a program that does not know what was pasted takes a part of the text for a whole line. */
export function sendsLines(text) {
  return /[\r\n]/.test(text);
}

/** The question before such text is pasted: what it is, as far as a person reads it. */
export function question(text) {
  const lines = text.trimEnd().split(/\r\n|\r|\n/);
  const shown = lines.slice(0, LINES).map((line) => (line.length > WIDTH ? `${line.slice(0, WIDTH)} …` : line));
  if (lines.length > LINES) shown.push(`… and ${lines.length - LINES} more`);
  const what = lines.length === 1 ? "a line, which runs" : `${lines.length} lines, which run`;
  return `Paste ${what} at once?\n\n${shown.join("\n")}`;
}

/** What a question has room for. */
const LINES = 10;
const WIDTH = 100;

// Pasted text, before it is sent to a terminal. It is untrusted: a page can put another text on the
// clipboard than the user selected on it.

/**
 * The text without control characters other than tab and line breaks, as in xterm and VTE. An
 * escape sequence could end the brackets by which a program recognises pasted text. The rest would
 * then count as typed keys.
 */
export function harmless(text) {
  return text.replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f]/g, "");
}

/** True if a program without bracketed paste would read a part of the text as a whole line. */
export function sendsLines(text) {
  return /[\r\n]/.test(text);
}

/** The question before such a text is pasted, with the text as far as a user reads it. */
export function question(text) {
  const lines = text.trimEnd().split(/\r\n|\r|\n/);
  const shown = lines.slice(0, LINES).map((line) => (line.length > WIDTH ? `${line.slice(0, WIDTH)} …` : line));
  if (lines.length > LINES) shown.push(`… and ${lines.length - LINES} more`);
  const what = lines.length === 1 ? "a line, which runs" : `${lines.length} lines, which run`;
  return `Paste ${what} immediately?\n\n${shown.join("\n")}`;
}

/** Number of characters that a question shows. */
const LINES = 10;
const WIDTH = 100;

// The terminal on a page: xterm.js, with restrictions for the program in it.
//
// The output of a program is untrusted. It can only draw. Titles are ignored, the clipboard is not
// accessible, and links only lead to http and https after a confirmation. The terminal's responses
// to queries of the program are only sent while the user has control.

import { FitAddon } from "/terminal/addon-fit.mjs";
import { harmless, question, sendsLines } from "/terminal/paste.mjs";
import { Terminal } from "/terminal/xterm.mjs";

export class Screen {
  /** `typed` gets the bytes that the user types, while the user has control. */
  constructor(node, { typed }) {
    this.node = node;
    this.typing = false;
    this.waiting = 0;
    this.replaying = 0;
    node.hidden = false;
    const dark = matchMedia("(prefers-color-scheme: dark)");
    this.terminal = new Terminal({
      convertEol: false,
      cursorInactiveStyle: "outline",
      disableStdin: true,
      fontFamily: "ui-monospace, SFMono-Regular, Menlo, Consolas, monospace",
      fontSize: FONT,
      linkHandler: { activate: (_, address) => follow(address), allowNonHttpProtocols: false },
      // Text stays readable in the colours of a program.
      minimumContrastRatio: 4.5,
      screenReaderMode: true,
      scrollback: 10_000,
      theme: theme(dark.matches),
      windowOptions: {},
    });
    dark.addEventListener("change", () => (this.terminal.options.theme = theme(dark.matches)));
    // Clipboard access (OSC 52), and the notices and images of other terminals are ignored.
    for (const code of [9, 52, 777, 1337]) {
      this.terminal.parser.registerOscHandler(code, () => true);
    }
    this.fitting = new FitAddon();
    this.terminal.loadAddon(this.fitting);
    this.terminal.open(node);
    // The Tab key moves to the terminal as a whole and past it. Enter or a click moves into it.
    this.terminal.textarea.tabIndex = -1;
    node.addEventListener("keydown", (event) => {
      if (event.target !== node || event.key !== "Enter") return;
      event.preventDefault();
      this.focus();
    });
    // The handler runs before the terminal's.
    node.addEventListener("paste", (event) => this.#paste(event), { capture: true });
    node.addEventListener("drop", (event) => event.preventDefault(), { capture: true });
    const goesOut = () => this.typing && this.replaying === 0;
    this.terminal.onData((text) => {
      if (goesOut()) typed(new TextEncoder().encode(text));
    });
    this.terminal.onBinary((text) => {
      if (goesOut()) typed(Uint8Array.from(text, (character) => character.charCodeAt(0)));
    });
    this.terminal.attachCustomKeyEventHandler((event) => {
      if (event.ctrlKey && event.shiftKey && event.key === "Enter") {
        event.preventDefault();
        if (event.type === "keydown") node.focus();
        return false;
      }
      // For a user who only watches, Tab moves on, and the browser's keys work.
      return this.typing;
    });
  }

  /** Sets if the user types or watches. */
  setTyping(typing) {
    this.typing = typing;
    this.terminal.options.disableStdin = !typing;
    this.terminal.options.cursorBlink = typing;
    document.querySelector("#leave-hint").hidden = !typing;
  }

  /** Pastes harmless text. Asks before a text that would run each line immediately. */
  #paste(event) {
    event.preventDefault();
    event.stopPropagation();
    const text = harmless(event.clipboardData?.getData("text/plain") ?? "");
    if (!this.typing || !text) return;
    const runs = sendsLines(text) && !this.terminal.modes.bracketedPasteMode;
    if (!runs || confirm(question(text))) this.terminal.paste(text);
  }

  /** Draws output. Returns false while too much of it is waiting. */
  write(bytes) {
    this.waiting += bytes.length;
    this.terminal.write(bytes, () => (this.waiting -= bytes.length));
    return this.waiting < MAX_WAITING;
  }

  /** Draws old output. Its queries were answered before, and are not answered again. */
  replay(bytes) {
    this.replaying += 1;
    this.terminal.write(bytes, () => (this.replaying -= 1));
  }

  /** Resets the terminal to this size. */
  reset(size) {
    this.terminal.reset();
    this.resize(size);
  }

  /** Sets the size that the participant with control uses. A narrow page gets smaller letters. */
  resize(size) {
    const cols = clamp(size?.col, 1, 1000);
    const rows = clamp(size?.row, 1, 1000);
    if (!cols || !rows) return;
    this.terminal.resize(cols, rows);
    const fits = (this.node.clientWidth - 32) / (cols * LETTER);
    this.terminal.options.fontSize = Math.max(SMALLEST, Math.min(FONT, Math.floor(fits)));
  }

  /** Fits the terminal to the page. */
  fit() {
    this.terminal.options.fontSize = FONT;
    this.fitting.fit();
    return this.size();
  }

  size() {
    return { row: this.terminal.rows, col: this.terminal.cols };
  }

  focus() {
    this.terminal.focus();
  }
}

function follow(address) {
  // The visible text of a link may show another address.
  if (!/^https?:\/\//.test(address)) return;
  if (confirm(`Open ${address}?`)) window.open(address, "_blank", "noopener,noreferrer");
}

function theme(isDark) {
  return isDark
    ? { ...DARK, foreground: "#eceef2", background: "#181b21", cursor: "#8ab4ff" }
    : { ...LIGHT, foreground: "#16181d", background: "#ffffff", cursor: "#1f5fd0" };
}

const clamp = (value, least, most) => (value ? Math.min(Math.max(value, least), most) : undefined);

const DARK = { cursorAccent: "#181b21", selectionBackground: "#3b4a66" };
const LIGHT = { cursorAccent: "#ffffff", selectionBackground: "#bcd3f7" };

/** Height of a letter in pixels, and the ratio of its width. */
const FONT = 14;
const SMALLEST = 7;
const LETTER = 0.61;

/** Maximum bytes that wait to be drawn: some seconds of work. */
const MAX_WAITING = 8 << 20;

// The terminal on a page: xterm.js, and what the program in it may not do.
//
// What a program writes is a stranger's. It draws, and that is all: titles are not taken, the
// clipboard is not touched, links lead to http and https and are asked about, and what the terminal
// answers to questions of the program goes out only while the person has control.

import { FitAddon } from "/terminal/addon-fit.mjs";
import { harmless, question, sendsLines } from "/terminal/paste.mjs";
import { Terminal } from "/terminal/xterm.mjs";

export class Screen {
  /** `typed` gets the bytes that the person types, while they may. */
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
      // Colours that a program chose are still read.
      minimumContrastRatio: 4.5,
      screenReaderMode: true,
      scrollback: 10_000,
      theme: theme(dark.matches),
      windowOptions: {},
    });
    dark.addEventListener("change", () => (this.terminal.options.theme = theme(dark.matches)));
    // Selections (OSC 52) and the notices and images of other terminals are swallowed.
    for (const code of [9, 52, 777, 1337]) {
      this.terminal.parser.registerOscHandler(code, () => true);
    }
    this.fitting = new FitAddon();
    this.terminal.loadAddon(this.fitting);
    this.terminal.open(node);
    // Tab comes to the terminal as a whole and goes on; Enter or a click goes into it.
    this.terminal.textarea.tabIndex = -1;
    node.addEventListener("keydown", (event) => {
      if (event.target !== node || event.key !== "Enter") return;
      event.preventDefault();
      this.focus();
    });
    // Before the terminal has it.
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
      // Who only watches moves on with Tab, and has the keys of the browser.
      return this.typing;
    });
  }

  /** Whether the person types, or watches. */
  setTyping(typing) {
    this.typing = typing;
    this.terminal.options.disableStdin = !typing;
    this.terminal.options.cursorBlink = typing;
    document.querySelector("#leave-hint").hidden = !typing;
  }

  /** Pastes what is harmless, and asks where each line would run as it comes. */
  #paste(event) {
    event.preventDefault();
    event.stopPropagation();
    const text = harmless(event.clipboardData?.getData("text/plain") ?? "");
    if (!this.typing || !text) return;
    const runs = sendsLines(text) && !this.terminal.modes.bracketedPasteMode;
    if (!runs || confirm(question(text))) this.terminal.paste(text);
  }

  /** Draws. Returns false while more waits than a page should hold. */
  write(bytes) {
    this.waiting += bytes.length;
    this.terminal.write(bytes, () => (this.waiting -= bytes.length));
    return this.waiting < MAX_WAITING;
  }

  /** Draws what was there before: what it asks was answered then, and is not answered again. */
  replay(bytes) {
    this.replaying += 1;
    this.terminal.write(bytes, () => (this.replaying -= 1));
  }

  /** An empty terminal of this size. */
  reset(size) {
    this.terminal.reset();
    this.resize(size);
  }

  /** The size that who has control gave it; the letters get smaller where the page is narrow. */
  resize(size) {
    const cols = clamp(size?.col, 1, 1000);
    const rows = clamp(size?.row, 1, 1000);
    if (!cols || !rows) return;
    this.terminal.resize(cols, rows);
    const fits = (this.node.clientWidth - 32) / (cols * LETTER);
    this.terminal.options.fontSize = Math.max(SMALLEST, Math.min(FONT, Math.floor(fits)));
  }

  /** As large as the page has room for. */
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
  // What stands in the terminal may say another address.
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

/** Pixels of a letter's height, and what of it is its width. */
const FONT = 14;
const SMALLEST = 7;
const LETTER = 0.61;

/** Bytes that wait to be drawn: some seconds of work. */
const MAX_WAITING = 8 << 20;

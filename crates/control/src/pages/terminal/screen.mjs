// The terminal on a page: xterm.js, with restrictions for the program in it.
//
// The output of a program is untrusted. It can only draw. Titles are ignored, the clipboard is not
// accessible, and links only lead to http and https after a confirmation. The terminal's responses
// to queries of the program are only sent while the user has control.

import { FitAddon } from "/terminal/addon-fit.mjs";
import { neighbour, placesOf } from "/terminal/find.mjs";
import { observeInput } from "/terminal/input.mjs";
import { linkAddresses } from "/terminal/links.mjs";
import { harmless, question, sendsLines } from "/terminal/paste.mjs";
import { fontSize, readsAloud } from "/terminal/tools.mjs";
import { Terminal } from "/terminal/xterm.mjs";

export class Screen {
  /**
   * `typed` gets the bytes that the user types, while the user has control. `unsent` is called for
   * keys at other times.
   */
  constructor(node, { typed, unsent }) {
    this.node = node;
    this.unsent = unsent;
    this.typing = false;
    /** Returns true once if the next character is to be combined with Ctrl. */
    this.onControl = () => false;
    this.waiting = 0;
    this.replaying = 0;
    node.hidden = false;
    const dark = matchMedia("(prefers-color-scheme: dark)");
    this.terminal = new Terminal({
      convertEol: false,
      cursorInactiveStyle: "outline",
      disableStdin: true,
      fontFamily: "ui-monospace, SFMono-Regular, Menlo, Consolas, monospace",
      fontSize: fontSize(),
      linkHandler: { activate: (_, address) => follow(address), allowNonHttpProtocols: false },
      // Text stays readable in the colours of a program.
      minimumContrastRatio: 4.5,
      screenReaderMode: readsAloud(),
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
    linkAddresses(this.terminal, follow);
    observeInput(this.terminal, node, (text) => this.#insert(text, (plain) => this.#enter(plain)));
    // xterm.js shows its cursor after the first focus only. A spectator never focuses it.
    for (const type of ["focus", "blur"]) this.terminal.textarea.dispatchEvent(new FocusEvent(type));
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
      if (!goesOut()) return;
      const isLetter = text.length === 1 && text >= "@" && text <= "~";
      const sent = isLetter && this.onControl() ? String.fromCharCode(text.toUpperCase().charCodeAt(0) & 31) : text;
      typed(new TextEncoder().encode(sent));
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
      if (event.ctrlKey && event.shiftKey && event.code === "KeyC") {
        event.preventDefault();
        if (event.type === "keydown") this.#copy();
        return false;
      }
      const isText = event.key.length === 1 || INPUT_KEYS.has(event.key);
      const isInput = isText && !event.ctrlKey && !event.metaKey && event.type === "keydown";
      if (!this.typing && isInput) unsent?.();
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
    const text = event.clipboardData?.getData("text/plain") ?? "";
    this.#insert(text, (plain) => this.terminal.paste(plain));
  }

  /** Passes on the harmless part of a text. Asks first if a program would run its lines. */
  #insert(text, does) {
    const plain = harmless(text);
    if (!plain) return;
    if (!this.typing) {
      this.unsent?.();
      return;
    }
    const runs = sendsLines(plain) && !this.terminal.modes.bracketedPasteMode;
    if (!runs || confirm(question(plain))) does(plain);
  }

  /** Enters text as if it was typed. Several lines are pasted. */
  #enter(text) {
    if (sendsLines(text)) this.terminal.paste(text);
    else this.terminal.input(text);
  }

  #copy() {
    const selected = this.terminal.getSelection();
    if (selected) void navigator.clipboard?.writeText(selected).catch(console.warn);
  }

  /** Sends a key that touch screens lack. */
  press(name) {
    if (!this.typing) this.unsent?.();
    const keys = this.terminal.modes.applicationCursorKeysMode ? "\x1bO" : "\x1b[";
    this.terminal.input(KEYS[name] ?? keys + name);
    this.focus();
  }

  /** Sets the mode in which a screen reader reads the terminal. */
  setReader(isOn) {
    this.terminal.options.screenReaderMode = isOn;
  }

  /**
   * Selects the next (`by` 1) or the previous (`by` -1) place of a text, and shows it. The search
   * starts at the selection, without one at the end or the start. Returns the number of the place
   * and the count of places.
   */
  find(needle, by) {
    const places = placesOf(this.terminal.buffer.active, this.terminal.cols, needle);
    if (places.length === 0) {
      this.terminal.clearSelection();
      return { at: 0, count: 0 };
    }
    const at = neighbour(places, this.terminal.getSelectionPosition()?.start, by);
    const { row, column, length } = places[at];
    this.terminal.select(column, row, length);
    this.terminal.scrollToLine(Math.max(row - Math.floor(this.terminal.rows / 2), 0));
    return { at: at + 1, count: places.length };
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

  /** Waits until everything before is drawn. */
  async drawn() {
    await new Promise((done) => this.terminal.write("", done));
  }

  /** Resets the terminal to this size. */
  reset(size) {
    this.terminal.reset();
    this.resize(size);
  }

  /** Sets the size that the participant with control uses. A narrow page gets smaller letters. */
  resize(size) {
    this.shared = size;
    const cols = clamp(size?.col, 1, 1000);
    const rows = clamp(size?.row, 1, 1000);
    if (!cols || !rows) return;
    this.terminal.resize(cols, rows);
    const fits = (this.node.clientWidth - 32) / (cols * LETTER);
    this.terminal.options.fontSize = Math.max(SMALLEST, Math.min(fontSize(), Math.floor(fits)));
  }

  /** Fits the terminal to the page. */
  fit() {
    this.terminal.options.fontSize = fontSize();
    this.fitting.fit();
    return this.size();
  }

  size() {
    return { row: this.terminal.rows, col: this.terminal.cols };
  }

  /** Moves the focus into the terminal, and its last row onto the page. */
  focus() {
    this.terminal.focus();
    this.node.scrollIntoView({ block: "nearest" });
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

/** Keys of touch screens. The others are cursor keys. */
const KEYS = { Escape: "\x1b", Tab: "\t" };

/** Keys without a character that are input. The others also serve the page. */
const INPUT_KEYS = new Set(["Enter", "Backspace", "Delete"]);

/** Minimum height of a letter in pixels, and the ratio of its width. */
const SMALLEST = 7;
const LETTER = 0.61;

/** Maximum bytes that wait to be drawn: some seconds of work. */
const MAX_WAITING = 8 << 20;

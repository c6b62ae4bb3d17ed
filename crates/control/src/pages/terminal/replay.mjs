// Plays a recording with its original timing, at any speed and from any position.

import { engine, page, path } from "/terminal/engine.mjs";
import { complain, named, say, showTitle } from "/terminal/room.mjs";
import { Screen } from "/terminal/screen.mjs";
import { nameOfServer } from "/terminal/server.mjs";
import { showTools } from "/terminal/tools.mjs";

const one = (selector) => document.querySelector(selector);
const [play, position, clock, speed] = ["#play", "#position", "#clock", "#speed"].map(one);

const player = {
  /** The output: `{at, bytes}` or `{at, size}`, in order, `at` in seconds. */
  steps: [],
  length: 0,
  at: 0,
  next: 0,
  isPlaying: false,
};

const screen = new Screen(one("#terminal"), { typed: () => {} });

/** All pages of the recording, up to the limit of bytes. */
async function load() {
  const session = await engine(path("sessions", page.subject));
  const server = await nameOfServer(session);
  showTitle(server);
  const begun = `of ${new Date(session.started_at).toLocaleString()}`;
  one("#name").replaceChildren(...(server ? [named(server), ` ${begun}`] : [begun]));
  if (session.recording_mode !== "recorded") throw new Error("This session was not recorded.");
  if (session.encryption_mode === "e2e") {
    throw new Error("Only the client and the server of this session can read the recording.");
  }
  let from = 1n;
  let begin;
  let bytes = 0;
  for (;;) {
    const params = { from_seq: String(from), limit: PAGE };
    const events = await engine(path("sessions", page.subject, "events"), { params });
    for (const event of events) {
      const at = Date.parse(event.created_at) / 1000;
      begin ??= at;
      bytes += take(event, Math.max(at - begin, 0));
      from = BigInt(event.seq) + 1n;
    }
    say(`${player.steps.length} steps were read …`);
    if (events.length === 0) return "";
    if (bytes > MAX_BYTES) return " It is too long for a page: only its start is shown.";
  }
}

function take(event, at) {
  player.length = Math.max(player.length, at);
  const size = event.metadata?.terminal_size;
  if (size) player.steps.push({ at, size });
  // Output from pipes has lines without a carriage return. This mode makes the terminal add it.
  if (event.type === "open" && !size) player.steps.push({ at, bytes: NEW_LINES });
  const isOutput = event.type === "data" && event.stream_type !== "stdin";
  if (!isOutput || !event.payload_plaintext) return 0;
  const bytes = Uint8Array.from(atob(event.payload_plaintext), (byte) => byte.charCodeAt(0));
  player.steps.push({ at, bytes });
  return bytes.length;
}

/** Draws everything up to this second. */
function draw(at) {
  if (at < player.at || player.next === 0) {
    player.next = 0;
    screen.terminal.reset();
  }
  player.at = Math.min(Math.max(at, 0), player.length);
  for (; player.next < player.steps.length; player.next += 1) {
    const step = player.steps[player.next];
    if (step.at > player.at) break;
    if (step.size) screen.resize(step.size);
    else screen.write(step.bytes);
  }
  position.value = String(player.at);
  position.ariaValueText = `${time(player.at)} of ${time(player.length)}`;
  clock.textContent = `${time(player.at)} / ${time(player.length)}`;
}

function setPlaying(isPlaying) {
  player.isPlaying = isPlaying;
  play.textContent = isPlaying ? "Pause" : "Play";
  if (!isPlaying) return;
  if (player.at >= player.length) draw(0);
  let before = performance.now();
  const frame = (now) => {
    if (!player.isPlaying) return;
    const to = player.at + ((now - before) / 1000) * Number(speed.value);
    draw(Math.max(to, skipped()));
    before = now;
    if (player.at >= player.length) {
      setPlaying(false);
      say("The recording is at its end.");
    } else {
      requestAnimationFrame(frame);
    }
  };
  requestAnimationFrame(frame);
}

/** The time to continue at: shortly before the next output if there is none for a while. */
function skipped() {
  const next = player.steps[player.next]?.at ?? player.length;
  const isIdle = next - player.at > IDLE;
  return one("#skip-idle").checked && isIdle ? next - IDLE : player.at;
}

/**
 * Moves to the next (`by` 1) or the previous (`by` -1) output with a text. The search starts again
 * at the other end. Returns the number of the output and the count of outputs with the text.
 */
async function find(needle, by) {
  const found = outputsWith(needle.toLowerCase());
  const count = found.length;
  if (count === 0) return { at: 0, count };
  const { steps, next, at: now } = player;
  const isThere = (step) => (by > 0 ? step >= next : steps[step].at < now);
  const at = by > 0 ? found.findIndex(isThere) : found.findLastIndex(isThere);
  const index = at >= 0 ? at : by > 0 ? 0 : count - 1;
  setPlaying(false);
  draw(steps[found[index]].at);
  await screen.drawn();
  // The newest place on the screen.
  screen.terminal.clearSelection();
  screen.find(needle, -1);
  return { at: index + 1, count };
}

/** The outputs that end or contain a text. It may be split over several of them. */
function outputsWith(wanted) {
  const decoder = new TextDecoder();
  const found = [];
  let before = "";
  player.steps.forEach(({ bytes }, step) => {
    if (!bytes) return;
    const added = decoder.decode(bytes, { stream: true }).replace(SEQUENCES, "").toLowerCase();
    if ((before + added).includes(wanted)) found.push(step);
    before = wanted.length > 1 ? (before + added).slice(1 - wanted.length) : "";
  });
  return found;
}

/** The recording as a file of asciinema (asciicast, version 2). */
function exported() {
  const sizes = player.steps.filter(({ size }) => size);
  const { col, row } = sizes[0]?.size ?? { col: 80, row: 24 };
  const lines = [{ version: 2, width: col, height: row }];
  const decoder = new TextDecoder();
  for (const { at, bytes, size } of player.steps) {
    if (bytes) lines.push([at, "o", decoder.decode(bytes, { stream: true })]);
    else if (size !== sizes[0]?.size) lines.push([at, "r", `${size.col}x${size.row}`]);
  }
  return `${lines.map((line) => JSON.stringify(line)).join("\n")}\n`;
}

function faster(by) {
  const last = speed.options.length - 1;
  speed.selectedIndex = Math.min(Math.max(speed.selectedIndex + by, 0), last);
}

function time(seconds) {
  const whole = Math.floor(seconds);
  return `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, "0")}`;
}

const KEYS = {
  " ": () => setPlaying(!player.isPlaying),
  ArrowLeft: () => draw(player.at - JUMP),
  ArrowRight: () => draw(player.at + JUMP),
  Home: () => draw(0),
  End: () => draw(player.length),
  "<": () => faster(-1),
  ">": () => faster(1),
};

document.addEventListener(
  "keydown",
  (event) => {
    // Fields, buttons and links have their own keys. The terminal's input field does not count.
    const isOwn = event.target.closest("input, select, button, a") !== null;
    const does = KEYS[event.key];
    if (isOwn || !does || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    event.stopPropagation();
    does();
  },
  true,
);
one("#export").addEventListener("click", () => {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([exported()], { type: "application/x-asciicast" }));
  link.download = `${page.subject}.cast`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 0);
});
play.addEventListener("click", () => setPlaying(!player.isPlaying));
position.addEventListener("input", () => draw(Number(position.value)));

/** Sequences of a terminal, which a search does not see. */
const SEQUENCES = /\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-~])/g;

/** Seconds without output that are played if idle time is skipped. */
const IDLE = 1;

/** Seconds that an arrow key skips. */
const JUMP = 5;

/** Records per request: the maximum of a page. */
const PAGE = 1000;

/** Makes the terminal start each line at its left end (LNM). */
const NEW_LINES = new TextEncoder().encode("\x1b[20h");

/** Maximum number of bytes that a page keeps. */
const MAX_BYTES = 64 << 20;

try {
  const more = await load();
  position.max = String(player.length);
  one("#player").hidden = false;
  one("#keys-hint").hidden = false;
  const resize = () => screen.resize(screen.shared);
  showTools({ find, setReader: (isOn) => screen.setReader(isOn) }, resize, 1);
  addEventListener("resize", resize);
  say(`The recording is ready.${more}`);
  draw(0);
  play.focus();
} catch (error) {
  complain(error);
}

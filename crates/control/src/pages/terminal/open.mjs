// Opens a terminal, and hands control to others and back.

import { engine, openingAddress, page, path } from "/terminal/engine.mjs";
import { Room, attempt, complain, ending, knowMembers, nameOf, say } from "/terminal/room.mjs";
import { Screen } from "/terminal/screen.mjs";
import { serverOf } from "/terminal/server.mjs";
import { Stream } from "/terminal/stream.mjs";
import { FEATURE, NOTICE, SIGNAL, STREAM } from "/terminal/webtty.mjs";

const one = (selector) => document.querySelector(selector);
const open = one("#open");

let stream;
let screen;
let room;

async function find() {
  const tunnels = await engine("/api/tunnels", { params: { limit: 1000 } });
  const online = tunnels.filter((tunnel) => tunnel.status === "online");
  // A tunnel may be named like the id of a server that is not there.
  const isId = page.subject.startsWith("wsv_");
  const tunnel =
    online.find((tunnel) => serverOf(tunnel)?.id === page.subject) ??
    online.find((tunnel) => tunnel.name === page.subject && !isId) ??
    online.find((tunnel) => tunnel.id === page.subject);
  if (!tunnel) throw new Error("This server is not online.");
  const server = serverOf(tunnel);
  if (!server) throw new Error("This tunnel is no terminal server.");
  const { isManaged, label } = server;
  if (tunnel.publish === false || !tunnel.hostname || !tunnel.protocol) {
    throw new Error("This server is private: svc webtty client opens it.");
  }
  if (label("e2e") === "required") {
    throw new Error("This server wants end-to-end encryption: svc webtty client speaks it.");
  }
  if (!isManaged && label("transport") === "plain") {
    throw new Error("This server takes no browsers: svc webtty client opens it.");
  }
  one("#name").textContent = `on ${server.name ?? tunnel.name ?? page.subject}`;
  return { tunnel, at: label("exec.path") ?? "/", isManaged };
}

async function begin() {
  const { tunnel, at, isManaged } = await find();
  const address = await openingAddress(tunnel, at);
  screen ??= new Screen(one("#terminal"), { typed });
  screen.terminal.reset();
  say("Connecting …");
  open.hidden = true;
  stream = new Stream(address, { opened: () => start(), heard: (message) => hear(message, isManaged), ended });
}

function start() {
  stream.send("open", {
    config: {
      options: { interactive: true, allocateTty: true, sendHeartbeat: true },
      envVars: [{ key: "TERM", value: "xterm-256color" }],
    },
    session: { features: [FEATURE.signals, FEATURE.notices], size: screen.fit() },
  });
}

function hear(message, isManaged) {
  switch (message.kind) {
    case "ack":
      say("The terminal is open.");
      control(true);
      screen.focus();
      one("#hang-up").hidden = false;
      if (isManaged) void join(message.session?.sessionId);
      break;
    case "data":
      if (message.data && !screen.write(message.data)) say("There is more output than is drawn.");
      break;
    case "heartbeat":
      if (message.notice) notice(message.notice);
      break;
    case "close":
      finish(ending(message));
      break;
    case "error":
    case "protocolError":
      complain(message.msg);
      finish("The session ended.");
      break;
    default:
      break;
  }
}

/** Others can come once the session has a name. */
async function join(named) {
  try {
    const session = named?.startsWith("wts_") ? await engine(path("sessions", named)) : await newest();
    const watch = one("#watch-page");
    watch.href = `/projects/${page.project}/sessions/${session.id}`;
    watch.hidden = false;
    const me = session.live.controller_participant_id;
    const decide = (requestId, grant) => stream.send("heartbeat", { decision: { requestId, grant } });
    room = new Room({ session: session.id, me, decide, rules: true });
    room.controls = screen.typing;
  } catch (error) {
    // The terminal is there; only nobody can be shown it.
    complain(error);
  }
}

async function newest() {
  const filters = { user_id: page.user, status: "active" };
  const sessions = await engine(path("sessions"), { params: { limit: 100, filters } });
  const [first] = sessions.toSorted((a, b) => b.started_at.localeCompare(a.started_at));
  if (!first) throw new Error("The session is not in the list.");
  return first;
}

function notice(notice) {
  const isMe = !notice.participantId || notice.participantId === room?.me;
  switch (notice.kind) {
    case NOTICE.revoked:
      if (isMe) control(false);
      break;
    case NOTICE.granted:
      if (isMe) control(true);
      else say(`${nameOf(notice.user)} has control.`);
      break;
    case NOTICE.recorded:
      say("The terminal is open, and recorded.");
      break;
    case NOTICE.snapshot:
      screen.reset(notice.size);
      break;
    case NOTICE.resized:
      if (!screen.typing) screen.resize(notice.size);
      break;
    case 0:
      complain(notice.reason);
      break;
    default:
      break;
  }
  room?.notice(notice);
}

/** The person has control, or somebody else does. */
function control(has) {
  const came = has && !screen.typing;
  screen.setTyping(has);
  one("#interrupt").hidden = !has;
  if (room) room.controls = has;
  if (!came || !room) return;
  say("You have control.");
  stream.send("parameter", { terminalSize: screen.fit() });
}

function typed(data) {
  for (let at = 0; at < data.length; at += PIECE) {
    stream.send("data", { type: STREAM.stdin, data: data.subarray(at, at + PIECE) });
  }
}

function ended(why) {
  if (why) complain(why);
  finish(why ? "The connection ended. What runs may go on for a while: the list of sessions has it." : undefined);
}

function finish(text) {
  if (text) say(text);
  stream.close();
  screen.setTyping(false);
  room?.close();
  room = undefined;
  for (const id of ["interrupt", "hang-up"]) one(`#${id}`).hidden = true;
  open.textContent = "Open another terminal";
  open.hidden = false;
  if (one("#terminal").contains(document.activeElement) || document.activeElement === document.body) open.focus();
}

/** Bytes of one message: input of people is small, what they paste need not be. */
const PIECE = 16 * 1024;

open.addEventListener("click", () =>
  attempt(open, async () => {
    try {
      await begin();
    } catch (error) {
      open.hidden = false;
      throw error;
    }
  }),
);
one("#interrupt").addEventListener("click", () => {
  stream.send("heartbeat", { signal: SIGNAL.INT });
  screen.focus();
});
one("#hang-up").addEventListener("click", () =>
  attempt(one("#hang-up"), async () => {
    // Over the API even without control; a server without sessions knows only the signal.
    if (room) await engine(path("sessions", room.session), { method: "DELETE" });
    else stream.send("heartbeat", { signal: SIGNAL.HUP });
  }),
);

let settled;
new ResizeObserver(() => {
  clearTimeout(settled);
  settled = setTimeout(() => {
    if (!screen?.typing) return;
    const before = screen.size();
    const now = screen.fit();
    if (now.row !== before.row || now.col !== before.col) stream.send("parameter", { terminalSize: now });
  }, 100);
}).observe(one("#terminal"));

addEventListener("beforeunload", (event) => {
  // The shell ends with the page.
  if (screen?.typing) event.preventDefault();
});

// A button that is seen does what it says: nobody clicks before it can.
open.hidden = false;
void knowMembers();
find().then(
  () => {
    // They may have been faster.
    if (!open.hidden) say("Nothing is open yet.");
  },
  complain,
);

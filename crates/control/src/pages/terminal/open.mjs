// Opens a terminal, resumes it, and hands over control.

import { SignedOut, engine, page, path, restrictTo } from "/terminal/engine.mjs";
import { Kept } from "/terminal/kept.mjs";
import { Room, attempt, complain, knowMembers, mention, nameOf, named, say, showTitle } from "/terminal/room.mjs";
import { Screen } from "/terminal/screen.mjs";
import { isRestricted, mayManage, serverOf } from "/terminal/server.mjs";
import { Shell } from "/terminal/shell.mjs";
import { showTools } from "/terminal/tools.mjs";
import { NOTICE, SIGNAL } from "/terminal/webtty.mjs";

const one = (selector) => document.querySelector(selector);
const [open, goBack] = ["#open", "#go-back"].map(one);

let shell;
let screen;
let room;
/** A terminal of a page that no longer exists. */
let left;
/** The user has pressed the button that ends the session. */
let isEnding = false;

async function find() {
  const tunnels = await engine("/api/tunnels", { params: { limit: 1000 } });
  const online = tunnels.filter((tunnel) => tunnel.status === "online");
  // The name of a tunnel may look like the id of a server that does not exist.
  const isId = page.subject.startsWith("wsv_");
  const tunnel =
    online.find((tunnel) => serverOf(tunnel)?.id === page.subject) ??
    online.find((tunnel) => tunnel.name === page.subject && !isId) ??
    online.find((tunnel) => tunnel.id === page.subject);
  if (!tunnel) throw new Error("This server is not online.");
  const server = serverOf(tunnel);
  if (!server) throw new Error("This tunnel is not a terminal server.");
  const { isManaged, label } = server;
  if (tunnel.publish === false || !tunnel.hostname || !tunnel.protocol) {
    throw new Error("This server is private: open it with svc webtty client.");
  }
  if (label("e2e") === "required") {
    throw new Error("This server requires end-to-end encryption: open it with svc webtty client.");
  }
  if (!isManaged && label("transport") === "plain") {
    throw new Error("This server does not accept browsers: open it with svc webtty client.");
  }
  const name = server.name ?? tunnel.name ?? page.subject;
  if (!one("#name").textContent) showTitle(name);
  one("#name").replaceChildren("on ", named(name));
  const restricted = isManaged && (await isRestricted(server.id));
  if (restricted && !mayManage) throw new Error("Only users who can manage servers may open this server.");
  restrictTo(restricted ? tunnel.id : undefined);
  return { tunnel, at: label("exec.path") ?? "/", isManaged, isRestricted: restricted };
}

function make() {
  const type = (data) => shell.type(data);
  if (!screen) {
    screen = new Screen(one("#terminal"), { typed: type, unsent });
    showTools(screen, fit);
  }
  screen.terminal.reset();
  isEnding = false;
  for (const button of [open, goBack]) button.hidden = true;
  const full = () => mention("There is more output than can be displayed.");
  return new Shell({ find, screen, on: { opened, notice, lost, over, full } });
}

async function begin() {
  const server = await find();
  left?.leave();
  left = undefined;
  shell = make();
  say("Connecting …");
  await shell.open(server);
}

async function goOn(kept) {
  left = undefined;
  shell = make();
  say("Reconnecting to your terminal …");
  await shell.goOn(kept);
}

function opened(isAgain) {
  complain();
  one("#hang-up").hidden = false;
  if (isAgain) {
    mention("You are connected to your terminal again.");
    if (document.activeElement === document.body) screen.focus();
  } else {
    mention("The terminal is open.");
  }
  if (shell.isManaged && isAgain) {
    enter();
    void takeControl();
    return;
  }
  control(true);
  if (!isAgain) screen.focus();
  if (shell.isManaged) void join();
}

/** Other users can join once the session has a name. */
async function join() {
  try {
    const named = shell.session?.startsWith("wts_");
    const session = named ? await engine(path("sessions", shell.session)) : await newest();
    shell.session = session.id;
    shell.me = session.live.controller_participant_id;
    enter();
    room.controls = screen.typing;
  } catch (error) {
    // The terminal works, but it cannot be shared.
    complain(error);
  }
}

function enter() {
  const watch = one("#watch-page");
  watch.href = `/projects/${page.project}/sessions/${shell.session}`;
  watch.hidden = false;
  const decide = (requestId, grant) => shell.send("heartbeat", { decision: { requestId, grant } });
  room = new Room({ session: shell.session, me: shell.me, decide, rules: true });
}

/** Requests control after a reconnect. It is granted unless another participant has control. */
async function takeControl() {
  try {
    if (!(await shell.askForControl())) mention("You are connected again, but another user has control.");
  } catch (error) {
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
      else mention(named(nameOf(notice.user)), " has control.");
      break;
    case NOTICE.recorded:
      say("The terminal is open, and recorded.");
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

/** Handles a change of control. */
function control(has) {
  const came = has && !screen.typing;
  screen.setTyping(has);
  one("#interrupt").hidden = !has;
  if (room) room.controls = has;
  if (!came || !room) return;
  mention("You have control.");
  fit();
}

/** Fits the terminal to the page, and reports its size. */
function fit() {
  if (!screen.typing) return;
  shell.send("parameter", { terminalSize: screen.fit() });
}

/** A key was pressed that is not sent. */
function unsent() {
  if (shell.isLost) mention("What you type is not sent: the connection is lost.");
  else if (room) mention("What you type is not sent: another user has control.");
}

/** Handles a lost connection. */
function lost(error) {
  if (error instanceof SignedOut) {
    complain(error);
    say("Your sign-in has ended. The terminal waits for a while until you sign in again.");
  } else {
    say("The connection is lost. Reconnecting …");
  }
  idle();
}

function over(text, fault) {
  // The error of a session that the user has ended is that it was ended.
  complain(isEnding ? undefined : fault);
  if (text) say(text);
  isEnding = false;
  idle();
  open.textContent = "Open another terminal";
  open.hidden = false;
  if (one("#terminal").contains(document.activeElement) || document.activeElement === document.body) open.focus();
}

/** Disables all input. */
function idle() {
  screen.setTyping(false);
  room?.close();
  room = undefined;
  for (const id of ["interrupt", "hang-up"]) one(`#${id}`).hidden = true;
}

/** A button that opens a terminal. It is shown again if this fails. */
function opens(button, does) {
  button.addEventListener("click", () =>
    attempt(button, async () => {
      try {
        await does();
      } catch (error) {
        open.hidden = false;
        throw error;
      }
    }),
  );
}

opens(open, begin);
opens(goBack, () => goOn(left));
one("#interrupt").addEventListener("click", () => {
  shell.send("heartbeat", { signal: SIGNAL.INT });
  screen.focus();
});
one("#hang-up").addEventListener("click", () =>
  attempt(one("#hang-up"), async () => {
    isEnding = true;
    say("Ending the session …");
    try {
      // Ends the session over the API even without control. A server without sessions only supports
      // the signal.
      if (room) await engine(path("sessions", room.session), { method: "DELETE" });
      else shell.send("heartbeat", { signal: SIGNAL.HUP });
    } catch (error) {
      // It has ended without a request.
      if (!isEnding) return;
      isEnding = false;
      say("The session has not ended.");
      throw error;
    }
  }),
);

let settled;
new ResizeObserver(() => {
  clearTimeout(settled);
  settled = setTimeout(() => {
    if (!screen?.typing) return;
    const before = screen.size();
    const now = screen.fit();
    if (now.row !== before.row || now.col !== before.col) shell.send("parameter", { terminalSize: now });
  }, 100);
}).observe(one("#terminal"));

addEventListener("beforeunload", (event) => {
  // The shell ends with the page.
  if (screen?.typing && !shell.isKept) event.preventDefault();
});

/**
 * A reloaded page reconnects automatically. The terminal of another page is offered to the user.
 */
async function start() {
  const mine = Kept.isExpected() ? await Kept.ofThisTab() : undefined;
  if (mine) {
    await goOn(mine);
    return;
  }
  // A visible button works. It is hidden until then. Nothing that appears later moves it, so that a
  // click in the meantime is not lost.
  open.hidden = false;
  await find();
  const kept = await Kept.left();
  // The user may have been faster.
  if (open.hidden) {
    kept?.leave();
    return;
  }
  left = kept;
  goBack.hidden = !left;
  say(left ? "The terminal that you left is still open." : "No terminal is open yet.");
}

void knowMembers();
start().catch(complain);

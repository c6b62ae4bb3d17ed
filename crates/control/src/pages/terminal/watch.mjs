// Watches a session, requests control, and sends input once it is granted.

import { Refused, SignedOut, engine, page, path } from "/terminal/engine.mjs";
import { mayAsk, takePart } from "/terminal/join.mjs";
import {
  Room,
  attempt,
  complain,
  endOf,
  ending,
  isMine,
  mention,
  named,
  resolve,
  say,
  showTitle,
} from "/terminal/room.mjs";
import { Screen } from "/terminal/screen.mjs";
import { nameOfServer } from "/terminal/server.mjs";
import { Stream } from "/terminal/stream.mjs";
import { showTools } from "/terminal/tools.mjs";
import { NOTICE, STREAM } from "/terminal/webtty.mjs";

const one = (selector) => document.querySelector(selector);
const [ask, giveBack, again, terminate] = ["#ask", "#give-back", "#again", "#terminate"].map(one);
const withdraw = one("#withdraw");

let stream;
let screen;
let room;
let me;
let request;
let rules = false;
let tries = 0;
let until = 0;
/** The user has pressed the button that ends the session. */
let isEnding = false;

async function begin() {
  again.hidden = true;
  const session = await engine(path("sessions", page.subject));
  if (!one("#name").textContent) {
    const server = await nameOfServer(session);
    showTitle(server);
    const begun = `of ${new Date(session.started_at).toLocaleString()}`;
    one("#name").replaceChildren(...(server ? [named(server), ` ${begun}`] : [begun]));
  }
  if (!session.live.available) {
    ended(endOf(session));
    return;
  }
  if (!session.live.attachable) {
    throw new Error("This session cannot be watched: only its client and its server can read it.");
  }
  rules = isMine(session) || page.may.has(OWNERS);
  terminate.hidden = !rules;
  const mine = await takePart(session);
  ({ me, until } = mine);
  if (!screen) {
    screen = new Screen(one("#terminal"), { typed, unsent });
    const resize = () => screen.resize(screen.shared);
    showTools(screen, resize);
    addEventListener("resize", resize);
  }
  const opened = () => stream.send("attach", mine.attach);
  stream = new Stream(mine.address, { opened, heard: hear, ended: lost });
}

function hear(message) {
  switch (message.kind) {
    case "data":
      if (message.data) draw(message.data);
      break;
    case "heartbeat":
      if (message.notice) notice(message.notice);
      break;
    case "close":
      ended(ending(message));
      break;
    case "error":
    case "protocolError":
      if (!isEnding) complain(message.msg);
      ended(isEnding ? "The session was ended." : "You have left the session.");
      break;
    default:
      break;
  }
}

/**
 * Draws output. A page that cannot draw this fast starts again from the current screen, which gives
 * up control. So a page with control draws later instead: the server waits for it.
 */
function draw(bytes) {
  if (screen.write(bytes)) return;
  if (!screen.typing) void reattach("The terminal writes too fast to follow.");
  else mention("The terminal writes faster than the page draws.");
}

/** A key was pressed that is not sent. */
function unsent() {
  if (room) mention("What you type is not sent: you are watching.");
  else mention("What you type is not sent: there is no connection.");
}

function notice(notice) {
  const isMe = notice.participantId === me;
  switch (notice.kind) {
    case NOTICE.snapshot:
      screen.reset(notice.size);
      if (!room) seen();
      break;
    case NOTICE.resized:
      screen.resize(notice.size);
      break;
    case NOTICE.granted:
      if (isMe) control(true, notice.requestId);
      else if (screen.typing) control(false);
      break;
    case NOTICE.revoked:
      if (isMe || !notice.participantId) {
        over(withdraw.hidden ? "Control was taken back." : "You have withdrawn your request.");
      }
      break;
    case NOTICE.refused:
      if (isMe) over("Your request was refused.");
      break;
    case NOTICE.expired:
      if (isMe) over("Your request was not answered in time.");
      break;
    case NOTICE.kicked:
      if (Date.now() >= until) {
        // The engine also ends streams whose token has expired.
        void reattach("The time to watch has expired.");
        break;
      }
      ended("You were removed from this session.");
      again.hidden = false;
      break;
    default:
      break;
  }
  room?.notice(notice);
}

/** The first screen was drawn. */
function seen() {
  tries = 0;
  const decide = async (id, grant) => {
    if (screen.typing) stream.send("heartbeat", { decision: { requestId: id, grant } });
    else await resolve(page.subject, id, grant ? "grant" : "refuse");
  };
  room = new Room({ session: page.subject, me, decide, rules });
  ask.hidden = !mayAsk;
  complain();
  say("You are watching.");
}

function control(has, of) {
  if (of) request = of;
  const focused = ask.contains(document.activeElement) || document.activeElement === withdraw;
  screen.setTyping(has);
  if (room) room.controls = has;
  giveBack.hidden = !has;
  withdraw.hidden = true;
  ask.hidden = has || !mayAsk;
  if (has) {
    say("You have control: what you type in the terminal is typed there.");
    // The focus is not moved into the terminal if the user is typing elsewhere.
    if (focused || document.activeElement === document.body) one("#terminal").focus();
  }
}

/** A request has ended: it was answered, or revoked. */
function over(text) {
  const had = screen.typing && one("#terminal").contains(document.activeElement);
  const waited = document.activeElement === withdraw;
  control(false);
  request = undefined;
  mention(text);
  if (had || waited) one("#reason").focus();
}

function typed(data) {
  for (let at = 0; at < data.length; at += PIECE) {
    stream.send("data", { type: STREAM.stdin, data: data.subarray(at, at + PIECE) });
  }
}

async function reattach(why) {
  const had = screen?.typing;
  leave();
  const lost = had ? `${why} You no longer have control.` : why;
  tries += 1;
  if (tries > MAX_TRIES) {
    again.hidden = false;
    say(lost);
    return;
  }
  say(`${lost} Trying again …`);
  await new Promise((resume) => setTimeout(resume, 500 * 2 ** tries));
  await begin().catch((error) => {
    // Only a server can refuse for good. Everything else may be the network.
    const isFinal = error instanceof Refused ? error.status < 500 : error.name === "Error";
    if (!isFinal) return reattach(lost);
    complain(error);
    say(error instanceof SignedOut ? "" : lost);
    again.hidden = false;
  });
}

function lost(why) {
  if (why) void reattach(why);
}

function leave() {
  stream?.close();
  if (screen) control(false);
  room?.close();
  room = undefined;
  ask.hidden = true;
}

function ended(text) {
  leave();
  isEnding = false;
  say(text);
  terminate.hidden = true;
  const replay = one("#replay-page");
  if (replay) replay.hidden = false;
}

ask.addEventListener("submit", (event) => {
  event.preventDefault();
  void attempt(ask.querySelector("button"), async () => {
    const reason = one("#reason").value.trim();
    const control_seconds = Number(one("#minutes").value) * 60;
    const body = { participant_id: me, control_seconds };
    if (reason) body.reason = reason;
    const asked = path("sessions", page.subject, "control-requests");
    const made = await engine(asked, { method: "POST", body });
    request ??= made.id;
    if (screen.typing) return;
    ask.hidden = true;
    withdraw.hidden = false;
    withdraw.focus();
    say("You asked for control. The controller or the owner has to grant it.");
  });
});
withdraw.addEventListener("click", () =>
  attempt(withdraw, async () => {
    await resolve(page.subject, request, "revoke", me);
  }),
);
giveBack.addEventListener("click", () =>
  attempt(giveBack, async () => {
    await resolve(page.subject, request, "revoke", me);
  }),
);
again.addEventListener("click", () =>
  attempt(again, async () => {
    tries = 0;
    await begin();
  }),
);
terminate.addEventListener("click", () =>
  attempt(terminate, async () => {
    if (!confirm("End the session for all participants?")) return;
    isEnding = true;
    say("Ending the session …");
    try {
      await engine(path("sessions", page.subject), { method: "DELETE" });
    } catch (error) {
      // It has ended without a request.
      if (!isEnding) return;
      isEnding = false;
      say("The session has not ended.");
      throw error;
    }
  }),
);

/** A permission of owners and admins, who may decide in every session. */
const OWNERS = "webtty.logs.read-only";

/** Maximum bytes of one message. */
const PIECE = 16 * 1024;

/** Attempts to reconnect before the user is asked. */
const MAX_TRIES = 5;

// Users who may decide see all requests. The stream only reports them to the participant with
// control.
setInterval(() => {
  if (room && rules && !document.hidden) void room.look();
}, 3000);

begin().catch((error) => {
  complain(error);
  again.hidden = false;
});

// A terminal of the user, over all of its connections: start, loss, reconnect and end.
//
// A server without sessions issues a token for the reconnect. A session of an engine survives its
// first stream. The user then joins it again and requests control, which is granted if no other
// participant has it.

import { Refused, engine, openingAddress, path } from "/terminal/engine.mjs";
import { mayAsk, takePart } from "/terminal/join.mjs";
import { Kept } from "/terminal/kept.mjs";
import { Returns } from "/terminal/returns.mjs";
import { endOf, ending } from "/terminal/room.mjs";
import { Stream } from "/terminal/stream.mjs";
import { FEATURE, NOTICE, STREAM } from "/terminal/webtty.mjs";

export class Shell {
  #on;
  #stream;
  #kept;
  #returns;
  /** Milliseconds: time of the disconnect, and the maximum time without a connection. */
  #lostAt;
  #grace = 0;
  #tries = 0;
  #isOver = false;

  /**
   * `find` returns the server. `on` has the callbacks `opened(isAgain)`, `notice(notice)`, `full()`
   * for more output than can be drawn, `lost(error)` before an automatic reconnect, and at the end,
   * once, `over(text, fault)`. Output is sent to the `screen`.
   */
  constructor({ find, screen, on }) {
    Object.assign(this, { find, screen });
    this.#on = on;
    // Pages end without notice. Their stored state has the time until which the terminal exists.
    this.beat = setInterval(() => this.#keep(), KEEP);
    addEventListener("pagehide", () => this.#keep());
  }

  /** Opens a new terminal. */
  async open({ tunnel, at, isManaged, isRestricted }) {
    try {
      this.isManaged = isManaged;
      this.#kept = await Kept.begin();
      this.#connect(await openingAddress(tunnel, at, isRestricted), () => this.#begin());
    } catch (error) {
      this.#stop();
      throw error;
    }
  }

  /** Resumes the terminal of an earlier page. */
  async goOn(kept) {
    const { isManaged, session, me, token, received, grace, seen } = kept.fields;
    Object.assign(this, { isManaged, session, me });
    this.#kept = kept;
    this.#grace = grace * 1000;
    if (!isManaged) this.#returns = new Returns(fromText(token), received);
    this.#lostAt = seen;
    await this.#comeBack().catch((error) => this.#lost(error));
  }

  /** True while there is no connection. */
  get isLost() {
    return Boolean(this.#lostAt) && !this.#isOver;
  }

  /** True if a reloaded page can resume it. */
  get isKept() {
    return Boolean(this.#kept) && this.#canReturn();
  }

  send(kind, fields) {
    this.#stream?.send(kind, fields);
  }

  type(data) {
    for (let at = 0; at < data.length; at += PIECE) {
      const piece = data.subarray(at, at + PIECE);
      this.#returns?.typed(piece);
      this.send("data", { type: STREAM.stdin, data: piece });
    }
  }

  /** The terminal is over for this page. */
  end(text, fault) {
    if (this.#isOver) return;
    this.#stop();
    this.#on.over(text, fault);
  }

  #stop() {
    this.#isOver = true;
    clearInterval(this.beat);
    this.#stream?.close();
    this.#kept?.forget();
  }

  #connect(address, opened) {
    this.#stream = new Stream(address, {
      opened,
      heard: (message) => this.#hear(message),
      ended: (why) => (why ? void this.#lost(new Error(why)) : this.end()),
    });
  }

  #begin() {
    this.send("open", {
      config: {
        options: { interactive: true, allocateTty: true, sendHeartbeat: true },
        envVars: [
          { key: "TERM", value: "xterm-256color" },
          { key: "COLORTERM", value: "truecolor" },
        ],
      },
      session: { features: FEATURES, size: this.screen.fit() },
    });
  }

  #hear(message) {
    switch (message.kind) {
      case "ack":
        this.#acknowledged(message.session);
        break;
      case "data":
        if (message.data) this.#draw(message.data);
        break;
      case "heartbeat":
        if (message.received !== undefined) this.#returns?.accept(message.received);
        if (message.notice) this.#notice(message.notice);
        break;
      case "close":
        this.end(ending(message));
        break;
      case "error":
      case "protocolError":
        if (this.#lostAt && NOTHING.some((text) => message.msg.includes(text))) this.end(GONE);
        else this.end("The session ended.", message.msg);
        break;
      default:
        break;
    }
  }

  #acknowledged(session) {
    this.#grace = (session?.graceSeconds ?? 0) * 1000;
    let input = [];
    if (this.isManaged) {
      this.session = session?.sessionId;
    } else if (session) {
      this.#returns ??= new Returns();
      const { input: rest, isCut } = this.#returns.acknowledged(session);
      input = rest;
      if (isCut) this.screen.terminal.reset();
    }
    // Stored before any other message, because the previous token is not valid from now on.
    this.#opened();
    for (const data of input) this.send("data", { type: STREAM.stdin, data });
  }

  #draw(data) {
    const { old, fresh } = this.#returns?.output(data) ?? { fresh: data };
    if (old?.length) this.screen.replay(old);
    if (fresh.length && !this.screen.write(fresh)) this.#on.full();
  }

  #notice(notice) {
    if (notice.kind === NOTICE.snapshot) {
      this.screen.reset(notice.size);
      if (this.#lostAt) this.#opened();
    }
    if (notice.kind === NOTICE.kicked) {
      if (Date.now() < (this.until ?? Infinity)) this.end("You were removed from this session.");
      // The engine also ends streams whose token has expired.
      else void this.#lost(new Error("The connection has expired."));
      return;
    }
    this.#on.notice(notice);
  }

  #opened() {
    const isAgain = Boolean(this.#lostAt);
    this.#lostAt = undefined;
    this.#tries = 0;
    this.#keep();
    this.#on.opened(isAgain);
  }

  #canReturn() {
    const isKnown = this.isManaged ? this.session && mayAsk : this.#returns?.token;
    return Boolean(isKnown) && this.#grace > 0;
  }

  /** Stores the state for the next page while there is a terminal to resume. */
  #keep() {
    if (this.#isOver || this.#lostAt || !this.#canReturn()) return;
    const { isManaged, session, me } = this;
    const { token, received } = this.#returns ?? {};
    const grace = this.#grace / 1000;
    this.#kept?.write({ isManaged, session, me, token: token && toText(token), received, grace });
  }

  async #lost(error) {
    this.#stream?.close();
    if (this.#isOver) return;
    if (!this.#canReturn()) {
      const goesOn = this.isManaged && this.session;
      this.end(`The connection ended.${goesOn ? LISTED : ""}`, error);
      return;
    }
    if (!this.#lostAt) {
      this.#keep();
      this.#lostAt = Date.now();
    }
    if (error.status === 403) {
      this.end("You may not reconnect to this terminal.", error);
      return;
    }
    if (isGone(error) || Date.now() > this.#lostAt + this.#grace) {
      this.end(GONE);
      return;
    }
    this.#on.lost(error);
    await waited(FIRST_WAIT * 2 ** Math.min(this.#tries, 4));
    this.#tries += 1;
    if (!this.#isOver) await this.#comeBack().catch((again) => this.#lost(again));
  }

  async #comeBack() {
    if (this.isManaged) {
      await this.#takePart();
      return;
    }
    const { tunnel, at, isRestricted } = await this.find();
    const resume = this.#returns.resume();
    const session = { features: FEATURES, resume, size: this.screen.fit() };
    this.#connect(await openingAddress(tunnel, at, isRestricted), () => this.send("open", { session }));
  }

  async #takePart() {
    const session = await engine(path("sessions", this.session));
    if (!session.live.available) {
      this.end(session.error_code === "abandoned" ? GONE : endOf(session));
      return;
    }
    const { attach, address, me, until } = await takePart(session, this.me);
    Object.assign(this, { me, until });
    this.#connect(address, () => this.send("attach", attach));
  }

  /** Requests control. Returns true if no participant had it. */
  async askForControl() {
    const session = await engine(path("sessions", this.session));
    if (session.live.controller_participant_id) return false;
    const asked = path("sessions", this.session, "control-requests");
    await engine(asked, { method: "POST", body: { participant_id: this.me } });
    return true;
  }
}

/** True if the session no longer exists. */
const isGone = (error) => error instanceof Refused && [404, 409].includes(error.status);

/** Waits for this time, or until the browser reports that the network is available. */
async function waited(milliseconds) {
  await new Promise((done) => {
    addEventListener("online", done, { once: true });
    setTimeout(done, milliseconds);
  });
}

const toText = (bytes) => btoa(String.fromCharCode(...bytes));
const fromText = (text) => Uint8Array.from(atob(text), (byte) => byte.charCodeAt(0));

const FEATURES = [FEATURE.signals, FEATURE.resume, FEATURE.notices];

const GONE = "The terminal has ended: no user reconnected to it in time.";
/** The server's response to a late reconnect. */
const NOTHING = ["the session to resume does not exist", "no session to come back to"];
const LISTED = " Running programs may continue for a while: see the list of sessions.";

/** Maximum bytes of one message. Typed input is small, but pasted text may be large. */
const PIECE = 16 * 1024;

/** Milliseconds between two updates of the stored state. */
const KEEP = 5000;

/** Milliseconds before the first attempt to reconnect. Each further attempt waits longer. */
const FIRST_WAIT = 500;

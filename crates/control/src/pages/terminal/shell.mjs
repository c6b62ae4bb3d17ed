// A terminal that the person opened, over all of its connections: it begins, is lost, and is come
// back to.
//
// A server without sessions gives a token for that. A session of an engine goes on without the stream
// that it began with: the person takes part in it anew and asks for control, which they get as nobody
// else has it.

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
  /** Milliseconds: since when nobody is connected, and how long that may be. */
  #lostAt;
  #grace = 0;
  #tries = 0;
  #isOver = false;

  /**
   * `find` gives the server. `on` is told `opened(isAgain)`, `notice(notice)`, `full()` when there is
   * more output than is drawn, `lost()` before it comes back by itself, and at last, once,
   * `over(text, fault)`. Output goes to the `screen`.
   */
  constructor({ find, screen, on }) {
    Object.assign(this, { find, screen });
    this.#on = on;
    // Pages end without a word; what they kept says until when the terminal is there.
    this.beat = setInterval(() => this.#keep(), KEEP);
    addEventListener("pagehide", () => this.#keep());
  }

  /** Opens a new one. */
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

  /** Goes on with the one that an earlier page kept. */
  async goOn(kept) {
    const { isManaged, session, me, token, received, grace, seen } = kept.fields;
    Object.assign(this, { isManaged, session, me });
    this.#kept = kept;
    this.#grace = grace * 1000;
    if (!isManaged) this.#returns = new Returns(fromText(token), received);
    this.#lostAt = seen;
    await this.#comeBack().catch((error) => this.#lost(error));
  }

  /** Whether a page that is loaded anew would find it. */
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

  /** It is over for this page. */
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
        envVars: [{ key: "TERM", value: "xterm-256color" }],
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
        if (this.#lostAt && message.msg.includes(NOTHING)) this.end(GONE);
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
    // Before anything is said: from then on the token before this one is good no more.
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
      // An engine has go whose token ended, too.
      else void this.#lost(new Error("The time of the connection was over."));
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

  /** Keeps what the next page needs, as long as there is somebody to come back to. */
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
      this.end("You may not come back to this terminal.", error);
      return;
    }
    if (isGone(error) || Date.now() > this.#lostAt + this.#grace) {
      this.end(GONE);
      return;
    }
    this.#on.lost();
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

  /** Asks for control, and whether there was nobody to ask. */
  async askForControl() {
    const session = await engine(path("sessions", this.session));
    if (session.live.controller_participant_id) return false;
    const asked = path("sessions", this.session, "control-requests");
    await engine(asked, { method: "POST", body: { participant_id: this.me } });
    return true;
  }
}

/** There is no session any more. */
const isGone = (error) => error instanceof Refused && [404, 409].includes(error.status);

/** Until then, or until the browser says that the network is there. */
async function waited(milliseconds) {
  await new Promise((done) => {
    addEventListener("online", done, { once: true });
    setTimeout(done, milliseconds);
  });
}

const toText = (bytes) => btoa(String.fromCharCode(...bytes));
const fromText = (text) => Uint8Array.from(atob(text), (byte) => byte.charCodeAt(0));

const FEATURES = [FEATURE.signals, FEATURE.resume, FEATURE.notices];

const GONE = "The terminal has ended: nobody came back to it in time.";
/** What a server says to who comes too late. */
const NOTHING = "no session to come back to";
const LISTED = " What runs may go on for a while: the list of sessions has it.";

/** Bytes of one message: input of people is small, what they paste need not be. */
const PIECE = 16 * 1024;

/** Milliseconds between two notes that the terminal is there. */
const KEEP = 5000;

/** Milliseconds before the first attempt to come back; each further one waits longer. */
const FIRST_WAIT = 500;

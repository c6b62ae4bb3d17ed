// One WebTTY connection over a WebSocket: messages in, messages out, and whether the other side is
// still there.

import { decode, encode } from "/terminal/webtty.mjs";

export class Stream {
  /**
   * `heard` gets each message but empty heartbeats; `ended` gets, once, why the connection is over:
   * a sentence, or undefined after a proper end.
   */
  constructor(address, { opened, heard, ended }) {
    this.heard = heard;
    this.ended = ended;
    this.socket = new WebSocket(address);
    this.socket.binaryType = "arraybuffer";
    this.socket.addEventListener("open", () => opened(this));
    this.socket.addEventListener("message", ({ data }) => this.#take(data));
    this.socket.addEventListener("close", ({ reason }) => this.#end(reason));
  }

  /** Sends a message; after the end it goes nowhere. */
  send(kind, fields) {
    if (this.socket.readyState === WebSocket.OPEN) this.socket.send(encode(kind, fields));
  }

  /** Hangs up. `ended` is not called. */
  close() {
    this.ended = () => {};
    this.#stop();
  }

  #take(data) {
    let message;
    try {
      if (typeof data === "string") throw new TypeError("text is no message");
      message = decode(data);
    } catch (error) {
      console.warn(error);
      this.#end("The other side said something that is not WebTTY.");
      return;
    }
    this.#watch();
    if (message.kind === "heartbeat") {
      // Answered rather than sent by a clock: clocks of pages in the background go slow.
      this.send("heartbeat", {});
      const { signal, received, notice, secretInput } = message;
      if ([signal, received, notice, secretInput].every((said) => said === undefined)) return;
    }
    if (message.kind === "close" || message.kind === "error" || message.kind === "protocolError") {
      this.over = true;
    }
    this.heard(message);
  }

  /** A peer that sent something and then nothing for this long is lost. */
  #watch() {
    clearTimeout(this.silence);
    this.silence = setTimeout(() => this.#end("Nothing was heard any more."), SILENCE);
  }

  #end(why) {
    const { ended } = this;
    this.ended = () => {};
    this.#stop();
    ended(this.over ? undefined : why || "The connection is lost.");
  }

  #stop() {
    clearTimeout(this.silence);
    this.socket.close(1000, "finished");
  }
}

const SILENCE = 30_000;

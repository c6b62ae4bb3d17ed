// One WebTTY connection over a WebSocket: messages in both directions, and detection of a lost
// peer.

import { decode, encode } from "/terminal/webtty.mjs";

export class Stream {
  /**
   * `heard` gets each message except empty heartbeats. `ended` gets, once, the reason of the end: a
   * sentence, or undefined after a proper end.
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

  /** Sends a message. After the end it is dropped. */
  send(kind, fields) {
    if (this.socket.readyState === WebSocket.OPEN) this.socket.send(encode(kind, fields));
  }

  /** Closes the connection. `ended` is not called. */
  close() {
    this.ended = () => {};
    this.#stop();
  }

  #take(data) {
    let message;
    try {
      if (typeof data === "string") throw new TypeError("text is not a message");
      message = decode(data);
    } catch (error) {
      console.warn(error);
      this.#end("The server sent a message that is not WebTTY.");
      return;
    }
    this.#watch();
    if (message.kind === "heartbeat") {
      // Heartbeats are sent as responses and not by a timer, because timers of background pages are
      // slow.
      this.send("heartbeat", {});
      const { signal, received, notice, secretInput } = message;
      if ([signal, received, notice, secretInput].every((said) => said === undefined)) return;
    }
    if (message.kind === "close" || message.kind === "error" || message.kind === "protocolError") {
      this.over = true;
    }
    this.heard(message);
  }

  /** Period without a message after which a peer counts as lost. */
  #watch() {
    clearTimeout(this.silence);
    this.silence = setTimeout(() => this.#end("The server stopped responding."), SILENCE);
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

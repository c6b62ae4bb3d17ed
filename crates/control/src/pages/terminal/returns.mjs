// The two directions of a session that outlasts its connections: what of the output is drawn, and
// what of the input has still to arrive.
//
// A page never says how much output arrived. So the server keeps as much as it may, and a page that
// was loaded anew gets its screen from there.

export class Returns {
  /** `received`: how much output an earlier page of this session has drawn. */
  constructor(token, received = 0) {
    this.token = token;
    this.received = received;
    /** How much this page has drawn, and the number of the next byte that comes. */
    this.drawn = 0;
    this.next = 0;
    this.waiting = [];
    this.accepted = 0;
  }

  /** What is shown to come back. The server is to begin with the oldest that it has. */
  resume() {
    return { token: this.token, received: 0 };
  }

  /**
   * The server has the session. Gives the input that did not arrive, and whether output is missing
   * between what is drawn and what comes.
   */
  acknowledged({ resumeToken, outputFrom = 0, inputReceived }) {
    this.token = resumeToken?.length ? resumeToken : undefined;
    const isCut = this.drawn > 0 && outputFrom > this.drawn;
    if (isCut) this.drawn = outputFrom;
    this.next = outputFrom;
    // What an earlier page sent is not ours to send again.
    if (this.waiting.length === 0) this.accepted = inputReceived;
    this.accept(inputReceived);
    return { input: [...this.waiting], isCut };
  }

  /** What of this output is to be drawn: `old` was before, and its questions were answered then. */
  output(bytes) {
    const from = this.next;
    this.next += bytes.length;
    const seen = clamp(this.drawn - from, bytes.length);
    const known = clamp(this.received - from, bytes.length);
    this.drawn = Math.max(this.drawn, this.next);
    this.received = Math.max(this.received, this.next);
    const fresh = Math.max(seen, known);
    return { old: bytes.subarray(seen, fresh), fresh: bytes.subarray(fresh) };
  }

  /** Keeps input until the server says that it arrived. */
  typed(bytes) {
    if (this.token) this.waiting.push(bytes);
  }

  /** So much input arrived. */
  accept(received) {
    let arrived = received - this.accepted;
    while (arrived > 0 && this.waiting.length > 0) {
      const [first] = this.waiting;
      if (first.length <= arrived) this.waiting.shift();
      else this.waiting[0] = first.subarray(arrived);
      const taken = Math.min(first.length, arrived);
      arrived -= taken;
      this.accepted += taken;
    }
  }
}

const clamp = (length, most) => Math.min(Math.max(length, 0), most);

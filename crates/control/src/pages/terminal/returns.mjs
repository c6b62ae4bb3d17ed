// State of a session that survives its connections: the drawn output, and the input that is not
// acknowledged yet.
//
// A page never acknowledges output. So the server keeps as much as it may, and a reloaded page gets
// its screen from there.

export class Returns {
  /** `received`: number of output bytes that an earlier page of this session has drawn. */
  constructor(token, received = 0) {
    this.token = token;
    this.received = received;
    /** Number of output bytes that this page has drawn, and the number of the next byte. */
    this.drawn = 0;
    this.next = 0;
    this.waiting = [];
    this.accepted = 0;
  }

  /**
   * The message that resumes the session. The server should start with the oldest output that it
   * has.
   */
  resume() {
    return { token: this.token, received: 0 };
  }

  /**
   * Handles the server's acknowledgement. Returns the input that did not arrive, and if output is
   * missing between the drawn output and the next byte.
   */
  acknowledged({ resumeToken, outputFrom = 0, inputReceived }) {
    this.token = resumeToken?.length ? resumeToken : undefined;
    const isCut = this.drawn > 0 && outputFrom > this.drawn;
    if (isCut) this.drawn = outputFrom;
    this.next = outputFrom;
    // Input of an earlier page must not be sent again.
    if (this.waiting.length === 0) this.accepted = inputReceived;
    this.accept(inputReceived);
    return { input: [...this.waiting], isCut };
  }

  /**
   * The part of this output to draw. An earlier page has drawn `old`, and has answered its queries.
   */
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

  /** Stores input until the server acknowledges it. */
  typed(bytes) {
    if (this.token) this.waiting.push(bytes);
  }

  /** Handles an acknowledgement of input. */
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

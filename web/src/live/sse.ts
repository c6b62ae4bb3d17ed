// Server-sent events from a stream of bytes.

export interface SseReader {
  /** Takes the next part of the text and returns the complete `data` of the events in it. */
  push(text: string): string[];
  /** The newest comment that starts with `closed:`, the reason of the end. */
  readonly closed: string | undefined;
}

/** Longest event that is kept. A stream that exceeds it is broken, and its reader throws. */
const MAX_EVENT_CHARS = 64 * 1024 * 1024;

export function sseReader(): SseReader {
  /** The line that has not ended, in the pieces that arrived: a snapshot is one line of megabytes. */
  let pieces: string[] = [];
  let waiting = 0;
  let data: string[] = [];
  let size = 0;
  let closed: string | undefined;
  return {
    get closed() {
      return closed;
    },
    push(text) {
      const done: string[] = [];
      let start = 0;
      for (;;) {
        const end = text.indexOf("\n", start);
        if (end < 0) break;
        pieces.push(text.slice(start, end));
        const whole = pieces.join("");
        const line = whole.endsWith("\r") ? whole.slice(0, -1) : whole;
        pieces = [];
        waiting = 0;
        start = end + 1;
        if (line === "") {
          if (data.length > 0) done.push(data.join("\n"));
          data = [];
          size = 0;
        } else if (line.startsWith("data:")) {
          const value = line.slice(line[5] === " " ? 6 : 5);
          size += value.length;
          data.push(value);
        } else if (line.startsWith(":")) {
          const comment = line.slice(1).trim();
          if (comment.startsWith("closed:")) closed = comment.slice("closed:".length).trim();
        }
      }
      if (start < text.length) {
        pieces.push(text.slice(start));
        waiting += text.length - start;
      }
      if (size + waiting > MAX_EVENT_CHARS) throw new Error("an event of the stream is too large");
      return done;
    },
  };
}

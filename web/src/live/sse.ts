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
  let rest = "";
  let data: string[] = [];
  let size = 0;
  let closed: string | undefined;
  return {
    get closed() {
      return closed;
    },
    push(text) {
      const done: string[] = [];
      rest += text;
      let start = 0;
      for (;;) {
        const end = rest.indexOf("\n", start);
        if (end < 0) break;
        const line = rest.slice(start, rest[end - 1] === "\r" && end > start ? end - 1 : end);
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
      rest = rest.slice(start);
      if (size + rest.length > MAX_EVENT_CHARS) throw new Error("an event of the stream is too large");
      return done;
    },
  };
}

// Events of a stream that are shown together, so that many of them are one update of the views.

/** The parts of the browser that a batch waits for. */
export interface Clock {
  readonly now: () => number;
  readonly after: (ms: number, run: () => void) => void;
  readonly frame: (run: () => void) => void;
}

const BROWSER: Clock = {
  now: () => performance.now(),
  after: (ms, run) => void setTimeout(run, ms),
  frame: (run) => void requestAnimationFrame(run),
};

/** A hidden page has no frames, so that a timer takes over. */
const WITHOUT_FRAME_MS = 1_000;

export class Batch {
  readonly #show: (texts: readonly string[]) => void;
  readonly #gapMs: () => number;
  readonly #clock: Clock;
  #texts: string[] = [];
  #isDue = false;
  #last = -Infinity;

  /** `show` is called at most once in `gapMs()`, with everything since its last call. */
  constructor(show: (texts: readonly string[]) => void, gapMs: () => number, clock: Clock = BROWSER) {
    this.#show = show;
    this.#gapMs = gapMs;
    this.#clock = clock;
  }

  add(texts: readonly string[]): void {
    for (const text of texts) this.#texts.push(text);
    if (this.#isDue) return;
    this.#isDue = true;
    let isDone = false;
    const flush = () => {
      if (isDone) return;
      isDone = true;
      this.#isDue = false;
      const all = this.#texts;
      this.#texts = [];
      this.#last = this.#clock.now();
      this.#show(all);
    };
    const wait = this.#last + this.#gapMs() - this.#clock.now();
    if (wait > 0) {
      this.#clock.after(wait, flush);
    } else {
      this.#clock.frame(flush);
      this.#clock.after(WITHOUT_FRAME_MS, flush);
    }
  }
}

/** The pause between two updates. It grows with the number of objects, because each update passes over them. */
export function gapMs(objects: number): number {
  return Math.min(100 + objects / 20, 1_000);
}

// Work in slices: between them the page renders and reacts to its user.

/** The parts of the browser that the slices use. */
export interface SliceClock {
  readonly now: () => number;
  readonly later: (run: () => void) => void;
}

const BROWSER: SliceClock = {
  now: () => performance.now(),
  later: (run) => void setTimeout(run),
};

/** A frame has 16 ms; the rest is for the page. A step that is longer ends its slice. */
const SLICE_MS = 8;

export class Slices<T> {
  readonly #start: (item: T) => Iterator<void>;
  readonly #onDone: () => void;
  readonly #clock: SliceClock;
  readonly #waiting: T[] = [];
  #steps: Iterator<void> | undefined;
  #isRunning = false;

  /** `start` begins the work on an item, one step at a time; `onDone` is called at the end of each. */
  constructor(start: (item: T) => Iterator<void>, onDone: () => void, clock: SliceClock = BROWSER) {
    this.#start = start;
    this.#onDone = onDone;
    this.#clock = clock;
  }

  /** Items are done in their order. The first slice is immediate if there is no other work. */
  add(item: T): void {
    this.#waiting.push(item);
    if (this.#isRunning) return;
    this.#isRunning = true;
    this.#run();
  }

  #run(): void {
    const end = this.#clock.now() + SLICE_MS;
    let isFirst = true;
    for (;;) {
      if (!isFirst && this.#clock.now() >= end) {
        this.#clock.later(() => this.#run());
        return;
      }
      isFirst = false;
      if (this.#steps === undefined) {
        const item = this.#waiting.shift();
        if (item === undefined) {
          this.#isRunning = false;
          return;
        }
        this.#steps = this.#start(item);
      }
      if (this.#steps.next().done === true) {
        this.#steps = undefined;
        this.#onDone();
      }
    }
  }
}

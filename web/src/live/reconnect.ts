// The waits of a stream between two connections.

import { backoffMs } from "../api/backoff";
import type { ApiError } from "../api/problem";

/** Wait after a refusal, which lasts until a user changes something. */
const REFUSED_MS = 30_000;
/** Wait after the end of a live stream, for example because its token expired. */
const ENDED_MS = 250;

/** The clock of the waits, and the numbers that spread them. */
interface Clock {
  /** Calls `run` after this time, unless the returned function is called before. */
  readonly after: (ms: number, run: () => void) => () => void;
  readonly random: () => number;
}

const BROWSER: Clock = {
  after: (ms, run) => {
    const timer = setTimeout(run, ms);
    return () => clearTimeout(timer);
  },
  random: Math.random,
};

export class Reconnect {
  readonly #connect: () => void;
  readonly #clock: Clock;
  #attempt = 0;
  #isActive: boolean | undefined;
  #cancel: (() => void) | undefined;

  /** `connect` is called at the end of each wait. */
  constructor(connect: () => void, clock: Clock = BROWSER) {
    this.#connect = connect;
    this.#clock = clock;
  }

  /** Waits after a connection that failed. */
  afterFailure(error: ApiError): void {
    // An engine receives a suspension and its end later than the platform.
    const isOutdated = error.code === "project_suspended" && this.#isActive === true;
    this.#wait(error.isTemporary || isOutdated ? (error.retryAfterMs ?? this.#backoff()) : REFUSED_MS);
  }

  /** Waits after a stream that ended. */
  afterEnd(): void {
    this.#wait(this.#attempt === 0 ? ENDED_MS : this.#backoff());
  }

  /** The stream is live, so that the waits start with the shortest again. */
  reset(): void {
    this.#attempt = 0;
  }

  /** Takes the loaded status of the project. A change to active ends the wait. */
  setActive(isActive: boolean): void {
    const isResumed = isActive && this.#isActive === false;
    this.#isActive = isActive;
    if (!isResumed) return;
    this.#attempt = 0;
    if (this.#cancel === undefined) return;
    this.cancel();
    this.#connect();
  }

  /** Ends the wait without a connection. */
  cancel(): void {
    this.#cancel?.();
    this.#cancel = undefined;
  }

  #backoff(): number {
    return backoffMs(this.#attempt, this.#clock.random());
  }

  #wait(ms: number): void {
    this.cancel();
    this.#attempt += 1;
    this.#cancel = this.#clock.after(ms, () => {
      this.#cancel = undefined;
      this.#connect();
    });
  }
}

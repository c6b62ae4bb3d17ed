// Runs of one piece of work, one at a time.

/**
 * Work that reads the newest state, such as the load of a list. A request during a run starts
 * another run after it, because the current run may have read the state from before the request.
 */
export class SerialWork {
  readonly #work: () => Promise<void>;
  #current: Promise<void> | undefined;
  #next: Promise<void> | undefined;

  /** `work` handles its own failures. */
  constructor(work: () => Promise<void>) {
    this.#work = work;
  }

  /** Ends after a run that has started after this call. */
  request(): Promise<void> {
    if (this.#current === undefined) return this.#start();
    this.#next ??= this.#current.then(() => {
      this.#next = undefined;
      return this.#current ?? this.#start();
    });
    return this.#next;
  }

  #start(): Promise<void> {
    this.#current = this.#work().finally(() => {
      this.#current = undefined;
    });
    return this.#current;
  }
}

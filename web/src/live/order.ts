// A sorted list of objects that changes with them, so that an update does not sort all of them again.

interface Entry<T> {
  readonly key: string;
  readonly id: string;
  readonly value: T;
}

export class Order<T> {
  readonly #keyOf: (value: T, id: string) => string;
  readonly #sign: 1 | -1;
  #entries: readonly Entry<T>[] = [];
  #values: readonly T[] = [];

  /** Objects are in the order of their keys, or in the opposite one. */
  constructor(keyOf: (value: T, id: string) => string, sign: 1 | -1 = 1) {
    this.#keyOf = keyOf;
    this.#sign = sign;
  }

  /** The objects in order. It is another list after each change. */
  get values(): readonly T[] {
    return this.#values;
  }

  /** Replaces all objects. */
  reset(objects: ReadonlyMap<string, T>): void {
    this.#take([...objects].map(([id, value]) => this.#entry(id, value)).sort(this.#compare));
  }

  /** Takes the changes of objects: `objects` no longer has those that are gone. */
  update(changed: ReadonlySet<string>, objects: ReadonlyMap<string, T>): void {
    if (changed.size === 0) return;
    const added: Entry<T>[] = [];
    for (const id of changed) {
      const value = objects.get(id);
      if (value !== undefined) added.push(this.#entry(id, value));
    }
    added.sort(this.#compare);
    const merged: Entry<T>[] = [];
    let next = 0;
    for (const entry of this.#entries) {
      if (changed.has(entry.id)) continue;
      for (let one = added[next]; one !== undefined && this.#compare(one, entry) < 0; one = added[next]) {
        merged.push(one);
        next += 1;
      }
      merged.push(entry);
    }
    for (; next < added.length; next += 1) merged.push(added[next] as Entry<T>);
    this.#take(merged);
  }

  #take(entries: readonly Entry<T>[]): void {
    this.#entries = entries;
    this.#values = entries.map((entry) => entry.value);
  }

  #entry(id: string, value: T): Entry<T> {
    return { key: this.#keyOf(value, id), id, value };
  }

  /** Equal keys are in the order of their ids, so that rows do not change places. */
  readonly #compare = (one: Entry<T>, other: Entry<T>): number => {
    if (one.key !== other.key) return one.key < other.key ? -this.#sign : this.#sign;
    return one.id < other.id ? -1 : one.id > other.id ? 1 : 0;
  };
}

/** The first `count` values in the order of `compare`, without sorting all of them. */
export function first<T>(values: Iterable<T>, count: number, compare: (one: T, other: T) => number): T[] {
  const found: T[] = [];
  for (const value of values) {
    const last = found[count - 1];
    if (last !== undefined && compare(value, last) >= 0) continue;
    let at = Math.min(found.length, count - 1);
    for (let before = found[at - 1]; before !== undefined && compare(value, before) < 0; before = found[at - 1]) at -= 1;
    found.splice(at, 0, value);
    found.length = Math.min(found.length, count);
  }
  return found;
}

// State of a page's terminal, so that the page finds it again after a reload, and so does the next
// page of the same user at the same server.
//
// The state is in `localStorage`, because it must survive a closed page. For a server without
// sessions it is the server's token, which is only valid for this account and while the server
// waits. For other servers it is the name of the session, which the engine restores for its user. A
// lock of the browser shows if the page that wrote the state still exists. So two pages, one of
// which is a copy of the other, do not take the terminal from each other. Without locks (in an
// insecure origin), nothing is stored.

import { page } from "/terminal/engine.mjs";

export class Kept {
  #id;
  #release;

  constructor(id, fields, release) {
    this.#id = id;
    this.#release = release;
    this.fields = fields;
  }

  /** State of a new terminal of this page; undefined if it cannot be stored. */
  static async begin() {
    const id = crypto.randomUUID?.();
    const release = id && storage() && (await hold(id, PATIENCE));
    return release ? new Kept(id, { user: page.user, path: location.pathname }, release) : undefined;
  }

  /** True if this tab had a terminal before it was reloaded. */
  static isExpected() {
    return Boolean(storage() && sessionStorage.getItem(location.pathname));
  }

  /** The state from before the tab was reloaded. */
  static async ofThisTab() {
    // A copy of this tab has the name as well. The page with the terminal does not release its
    // lock.
    const id = storage() && sessionStorage.getItem(location.pathname);
    return id ? await claim(id, PATIENCE) : undefined;
  }

  /** The newest state of a page that no longer exists. */
  static async left() {
    const known = all().toSorted(([, a], [, b]) => b.seen - a.seen);
    for (const [id] of known) {
      const kept = await claim(id, MOMENT);
      if (kept) return kept;
    }
    return undefined;
  }

  /** Stores these values and the current time. */
  write(fields = {}) {
    Object.assign(this.fields, fields, { seen: Date.now() });
    try {
      storage()?.setItem(PREFIX + this.#id, JSON.stringify(this.fields));
      sessionStorage.setItem(location.pathname, this.#id);
    } catch (error) {
      // The storage is full or was forbidden meanwhile. The terminal cannot be found again.
      console.warn(error);
    }
  }

  /** Leaves the state to other pages. */
  leave() {
    if (sessionStorage.getItem(location.pathname) === this.#id) {
      sessionStorage.removeItem(location.pathname);
    }
    this.#release();
  }

  /** Deletes the state, because the terminal has ended. */
  forget() {
    storage()?.removeItem(PREFIX + this.#id);
    this.leave();
  }
}

/**
 * The state with this name, if it is this user's and this page's, and no other page has its lock.
 */
async function claim(id, patience) {
  const release = await hold(id, patience);
  if (!release) return undefined;
  const found = all().find(([known]) => known === id);
  if (!found) release();
  return found && new Kept(id, found[1], release);
}

/** All states of this page. Those of other accounts and expired ones are deleted. */
function all() {
  const found = [];
  const store = storage();
  if (!store) return found;
  for (const key of Object.keys(store).filter((key) => key.startsWith(PREFIX))) {
    const fields = read(store.getItem(key));
    const until = fields.seen + (fields.grace + SLACK) * 1000;
    if (fields.user !== page.user || !(until > Date.now())) store.removeItem(key);
    else if (fields.path === location.pathname) found.push([key.slice(PREFIX.length), fields]);
  }
  return found;
}

function read(text) {
  try {
    return JSON.parse(text) ?? {};
  } catch {
    return {};
  }
}

/**
 * Acquires the lock of this name. Returns a function that releases it. The end of the page releases
 * it as well.
 */
async function hold(id, patience) {
  return await new Promise((resolve) => {
    const signal = AbortSignal.timeout(patience);
    const held = () => new Promise((release) => resolve(release));
    navigator.locks.request(PREFIX + id, { signal }, held).catch(() => resolve(undefined));
  });
}

function storage() {
  try {
    return navigator.locks ? localStorage : undefined;
  } catch {
    // The user has forbidden the storage.
    return undefined;
  }
}

const PREFIX = "terminal:";

/**
 * Seconds beyond the grace period. The server's period starts when it notices the lost connection.
 */
const SLACK = 30;

/** Milliseconds in which a closed page releases its lock. */
const PATIENCE = 2000;

/** The same if the page may still exist. */
const MOMENT = 200;

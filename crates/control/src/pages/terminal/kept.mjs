// What a page keeps of its terminal, so that it finds it again after it was loaded anew, and so does
// the next page of the same person at the same server.
//
// It lies in `localStorage`, because a page that was closed has to leave it somewhere: of a server
// without sessions the token that it gave, which is good for this account alone and while the server
// waits; of the others the name of the session, which an engine gives back by who asks. A lock of the
// browser says whether the page that wrote it is still there, so that no two pages, of which one is a
// copy of the other, take the terminal from each other. Where there are no locks (an origin that is
// not secure), nothing is kept.

import { page } from "/terminal/engine.mjs";

export class Kept {
  #id;
  #release;

  constructor(id, fields, release) {
    this.#id = id;
    this.#release = release;
    this.fields = fields;
  }

  /** What this page will keep of a terminal that it opens; undefined where it cannot. */
  static async begin() {
    const id = crypto.randomUUID?.();
    const release = id && storage() && (await hold(id, PATIENCE));
    return release ? new Kept(id, { user: page.user, path: location.pathname }, release) : undefined;
  }

  /** Whether this tab had a terminal before it was loaded anew. */
  static isExpected() {
    return Boolean(storage() && sessionStorage.getItem(location.pathname));
  }

  /** What this tab kept before it was loaded anew. */
  static async ofThisTab() {
    // A copy of this tab has the name, too: the page that has the terminal does not give it away.
    const id = storage() && sessionStorage.getItem(location.pathname);
    return id ? await claim(id, PATIENCE) : undefined;
  }

  /** What a page that is gone kept; the newest. */
  static async left() {
    const known = all().toSorted(([, a], [, b]) => b.seen - a.seen);
    for (const [id] of known) {
      const kept = await claim(id, MOMENT);
      if (kept) return kept;
    }
    return undefined;
  }

  /** Keeps these, too, and that the terminal is there now. */
  write(fields = {}) {
    Object.assign(this.fields, fields, { seen: Date.now() });
    try {
      storage()?.setItem(PREFIX + this.#id, JSON.stringify(this.fields));
      sessionStorage.setItem(location.pathname, this.#id);
    } catch (error) {
      // Full, or forbidden meanwhile: then it is not found again.
      console.warn(error);
    }
  }

  /** Leaves it to other pages. */
  leave() {
    if (sessionStorage.getItem(location.pathname) === this.#id) {
      sessionStorage.removeItem(location.pathname);
    }
    this.#release();
  }

  /** There is nothing to come back to any more. */
  forget() {
    storage()?.removeItem(PREFIX + this.#id);
    this.leave();
  }
}

/** What is kept under this name, if it is this person's, of this page, and nobody else has it. */
async function claim(id, patience) {
  const release = await hold(id, patience);
  if (!release) return undefined;
  const found = all().find(([known]) => known === id);
  if (!found) release();
  return found && new Kept(id, found[1], release);
}

/** All that is kept for this page. What is another account's, or too old, goes. */
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

/** Takes the lock of this name, and gives what releases it; the end of the page does, too. */
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
    // Forbidden by the person.
    return undefined;
  }
}

const PREFIX = "terminal:";

/** Seconds beside the grace: a server counts from when it sees that nobody is there. */
const SLACK = 30;

/** Milliseconds in which a page that is left gives up its lock. */
const PATIENCE = 2000;

/** The same where it may still be there. */
const MOMENT = 200;

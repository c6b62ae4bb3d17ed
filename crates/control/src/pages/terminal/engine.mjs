// Clients of the platform and of a project's engine, for the pages.
//
// The platform authenticates the user by the session cookie and issues short-lived tokens for
// requests to the engine. Only one token is part of an address, because a WebSocket has no other
// place for it. It can open streams of one tunnel at one path for a minute, and nothing else.
// Tokens for a restricted server also have the permission that it requires, and are restricted to
// its tunnel. So they are only valid for that server.

// The page's text about missing scripts is removed.
document.querySelector("#state").textContent = "";

const main = document.querySelector("main");

/** Data of the page. */
export const page = {
  project: main.dataset.project,
  workspace: main.dataset.workspace,
  user: main.dataset.user,
  engine: main.dataset.engine,
  subject: main.dataset.subject,
  may: new Set(main.dataset.may.split(" ")),
};

/** A refused request. Its message is for the user. */
export class Refused extends Error {
  constructor(status, problem) {
    super(problem.detail || problem.title || problem.error || `The server responded with status ${status}.`);
    this.status = status;
    this.code = problem.code;
  }
}

/** A request that was refused because the user is no longer signed in. */
export class SignedOut extends Refused {
  constructor(problem) {
    super(401, { ...problem, detail: "Your sign-in has ended." });
  }
}

/** Sends a request to the platform. */
export async function platform(path, options = {}) {
  try {
    return await answer(await fetch(path, json(options)));
  } catch (error) {
    throw error.status === 401 ? new SignedOut({ code: error.code }) : error;
  }
}

/** All items of a list of the platform, which returns pages of them as its member `name`. */
export async function all(path, name) {
  const items = [];
  for (let number = 1; number <= MAX_PAGES; number += 1) {
    const some = (await platform(`${path}?page=${number}&pageSize=${PAGE_SIZE}`))[name];
    items.push(...some);
    if (some.length < PAGE_SIZE) break;
  }
  return items;
}

/**
 * Sends a request to the engine's API. `params` is the one query parameter of its lists. `lasting`
 * uses a token with the longest possible lifetime.
 */
export async function engine(path, { params, lasting, ...options } = {}) {
  const address = new URL(path, page.engine);
  if (params) address.searchParams.set("params", JSON.stringify(params));
  const { headers, ...rest } = json(options);
  const near = path.startsWith("/api/webtty/sessions/") ? restricted : undefined;
  const send = async () => {
    const authorization = `Bearer ${lasting ? await lastingToken(near) : await apiToken(near)}`;
    const sent = { ...rest, headers: { ...headers, authorization }, credentials: "omit" };
    return await answer(await fetch(address, sent));
  };
  try {
    return await send();
  } catch (error) {
    // The token was revoked before its time. The platform issues another one if the user is still
    // signed in.
    if (error.status !== 401 || error instanceof SignedOut) throw error;
    known.clear();
    return await send();
  }
}

/** The address of a participant's stream. The first message on it authenticates the participant. */
export function streamAddress(path) {
  return new URL(path, page.engine.replace("https:", "wss:"));
}

/** Sends all later requests about sessions to a restricted server, through this tunnel. */
export function restrictTo(tunnel) {
  restricted = tunnel;
}

/**
 * The address at which a published server opens a terminal: the path `at` of its tunnel.
 * `isRestricted` is true for users who manage servers.
 */
export async function openingAddress(tunnel, at, isRestricted) {
  const address = new URL(page.engine.replace("https:", "wss:"));
  address.hostname = tunnel.hostname;
  // The path is from a server's label. It can never be more than a path, and is spelled as the
  // engine normalises it.
  address.pathname = at.replace(/%[0-9a-f]{2}/gi, unreserved);
  address.searchParams.set("session_mode", "interactive");
  address.searchParams.set("origin", "human");
  address.searchParams.set("initiator_kind", "user");
  const connect = { filters: { id: tunnel.id }, params: { path: address.pathname } };
  const permissions = ["tunnels.streams.create-delete", ...(isRestricted ? [MANAGES] : [])];
  const token = await mint(permissions, { connect }, OPENING_SECONDS);
  address.searchParams.set("svc.token", token.token);
  return address;
}

/** The character of an escape that is not needed (RFC 3986 section 2.3). */
function unreserved(escape) {
  const character = String.fromCharCode(parseInt(escape.slice(1), 16));
  return /[\w.~-]/.test(character) ? character : escape;
}

/** The path of an Engine API resource, from unescaped parts. */
export const path = (...parts) => `/api/webtty/${parts.map(encodeURIComponent).join("/")}`;

let restricted;

const known = new Map();

async function apiToken(near) {
  let token = known.get(near);
  if (!token || token.until < Date.now()) {
    const minting = readsAndAsks(near, API_SECONDS);
    // Concurrent requests wait for the same token.
    token = { minting, until: Date.now() + (API_SECONDS / 2) * 1000 };
    known.set(near, token);
    minting.catch(() => known.delete(near));
  }
  return (await token.minting).token;
}

async function lastingToken(near) {
  return (await readsAndAsks(near, STREAM_SECONDS)).token;
}

/**
 * A token with the user's permissions for terminals and for the list of tunnels. `near` restricts
 * it to one tunnel.
 */
async function readsAndAsks(near, seconds) {
  const permissions = [...page.may].filter((may) => /^(webtty|tunnels\.resources)\./.test(may));
  if (!near) return await mint(permissions, undefined, seconds);
  const of = { filters: { id: near } };
  return await mint([...permissions, MANAGES], { list: of, connect: of }, seconds);
}

async function mint(permissions, actions, ttlSeconds) {
  const boundary = { projects: [page.project] };
  if (actions) boundary.scopes = { tunnels: actions };
  const body = { permissions, resources: { tunnels: boundary }, ttlSeconds };
  return await platform("/api/tokens", { method: "POST", body });
}

function json({ body, ...options }) {
  if (body === undefined) return options;
  const headers = { "content-type": "application/json" };
  return { ...options, headers, body: JSON.stringify(body) };
}

async function answer(response) {
  const text = await response.text();
  const isJson = /[/+]json\b/.test(response.headers.get("content-type") ?? "");
  const value = isJson && text ? JSON.parse(text) : {};
  if (!response.ok) throw new Refused(response.status, value);
  return value;
}

/** Maximum number of items in a response of the platform. */
const PAGE_SIZE = 100;

/** A project has at most 500 servers, and by default a workspace has at most 1000 members. */
const MAX_PAGES = 10;

/** The permission that a restricted server requires. */
export const MANAGES = "network.webtty-servers.read-write";

/** Lifetime of tokens for requests, in seconds. They are renewed after half of it. */
const API_SECONDS = 300;

/**
 * Lifetime of the token in an address (ED-1e), in seconds. It is used once, and a terminal outlasts
 * it.
 */
const OPENING_SECONDS = 60;

/**
 * Lifetime of tokens for streams, in seconds. It is the longest possible, because some streams end
 * with their token.
 */
export const STREAM_SECONDS = 3600;

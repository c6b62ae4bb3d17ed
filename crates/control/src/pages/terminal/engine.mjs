// The platform and the engine of a project, as a page asks them.
//
// The platform knows the person by the session's cookie and gives short-lived tokens; the engine is
// asked with those. The one token that stands in an address, because a WebSocket has no other place
// for one, can open streams of one tunnel at one path for a minute, and nothing else. Tokens for a
// restricted server have the permission that it asks for, too, and reach its tunnel alone: so they
// are good for nothing but that server.

// The page says that no script has begun.
document.querySelector("#state").textContent = "";

const main = document.querySelector("main");

/** What the page says about itself. */
export const page = {
  project: main.dataset.project,
  workspace: main.dataset.workspace,
  user: main.dataset.user,
  engine: main.dataset.engine,
  subject: main.dataset.subject,
  may: new Set(main.dataset.may.split(" ")),
};

/** A request that was refused; its message is for a person. */
export class Refused extends Error {
  constructor(status, problem) {
    super(problem.detail || problem.title || problem.error || `The answer was ${status}.`);
    this.status = status;
    this.code = problem.code;
  }
}

/** Asks the platform. */
export async function platform(path, options = {}) {
  return await answer(await fetch(path, json(options)));
}

/**
 * Asks the engine's API. `params` goes into the one query parameter that its lists have; `lasting`
 * asks with a token that lives as long as one can.
 */
export async function engine(path, { params, lasting, ...options } = {}) {
  const address = new URL(path, page.engine);
  if (params) address.searchParams.set("params", JSON.stringify(params));
  const { headers, ...rest } = json(options);
  const near = path.startsWith("/api/webtty/sessions/") ? restricted : undefined;
  const authorization = `Bearer ${lasting ? await lastingToken(near) : await apiToken(near)}`;
  const sent = { ...rest, headers: { ...headers, authorization }, credentials: "omit" };
  return await answer(await fetch(address, sent));
}

/** The address of a participant's stream. What proves who comes is the first message on it. */
export function streamAddress(path) {
  return new URL(path, page.engine.replace("https:", "wss:"));
}

/** What is asked about sessions from now on is asked of a restricted server, through this tunnel. */
export function restrictTo(tunnel) {
  restricted = tunnel;
}

/**
 * The address at which a published server opens a terminal: the path `at` of its tunnel;
 * `isRestricted` for who manages servers.
 */
export async function openingAddress(tunnel, at, isRestricted) {
  const address = new URL(page.engine.replace("https:", "wss:"));
  address.hostname = tunnel.hostname;
  // A server's label says it: never more than a path, and spelled as the engine judges it.
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

/** What an escape stands for, where it need not be one (RFC 3986 section 2.3). */
function unreserved(escape) {
  const character = String.fromCharCode(parseInt(escape.slice(1), 16));
  return /[\w.~-]/.test(character) ? character : escape;
}

/** The path of a thing of the Engine API, of parts that are escaped. */
export const path = (...parts) => `/api/webtty/${parts.map(encodeURIComponent).join("/")}`;

let restricted;

const known = new Map();

async function apiToken(near) {
  let token = known.get(near);
  if (!token || token.until < Date.now()) {
    const minting = readsAndAsks(near, API_SECONDS);
    // Those who ask at the same time wait for the same one.
    token = { minting, until: Date.now() + (API_SECONDS / 2) * 1000 };
    known.set(near, token);
    minting.catch(() => known.delete(near));
  }
  return (await token.minting).token;
}

async function lastingToken(near) {
  return (await readsAndAsks(near, STREAM_SECONDS)).token;
}

/** A token for what the person may of terminals and of the list of tunnels; `near` one tunnel alone. */
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

/** What a restricted server asks for. */
export const MANAGES = "network.webtty-servers.read-write";

/** Tokens for requests; they are renewed after half of it. */
const API_SECONDS = 300;

/** The token in an address (ED-1e): it is shown once, and a terminal outlasts it. */
const OPENING_SECONDS = 60;

/** Tokens for streams: the longest there are, because some streams end with theirs. */
export const STREAM_SECONDS = 3600;

// The lists: servers that can be opened, active sessions, past sessions.

import { all, engine, page, path } from "/terminal/engine.mjs";
import { attempt, complain, knowMembers, nameOf, named } from "/terminal/room.mjs";
import { mayManage, serverOf } from "/terminal/server.mjs";

const one = (selector) => document.querySelector(selector);

/** Number of sessions to show. */
let limit = 50;

async function look() {
  const base = `/projects/${page.project}`;
  // The limit and the focus may change during each request.
  const wanted = limit;
  // One more than is shown tells if there are more.
  const found = await newest(wanted + 1);
  const sessions = found.slice(0, wanted);
  await knowMembers();
  const tunnels = await engine("/api/tunnels", { params: { limit: 1000 } });
  const servers = join(await records(), tunnels.filter(isThere));
  // "Show more" has started a later one.
  if (wanted < limit) return;
  const focused = document.activeElement;
  const isMore = found.length > wanted;
  one("#more").hidden = !isMore || wanted === MOST;
  one("#older").hidden = !isMore || wanted < MOST;
  show("servers", servers.map(({ name, detail, at }) => entry(name, [detail], at && `${base}/terminals/${at}`)));
  const running = sessions.filter((session) => !isOver(session));
  show("running", running.map((session) => sessionEntry(base, session, servers)));
  const ended = sessions.filter(isOver);
  show("ended", ended.map((session) => sessionEntry(base, session, servers)));
  if (focused !== document.activeElement) keepFocus(focused);
}

const isOver = (session) => session.status === "closed" || session.status === "errored";

/**
 * The newest sessions: active ones, then past ones. The engine returns a page of them, so the older
 * ones are read with further requests, but only once.
 */
function newest(count) {
  // A poll during "Show more" waits, so that it does not read the same pages.
  const found = reading.then(() => find(count));
  reading = found.catch(() => {});
  return found;
}

let reading = Promise.resolve();

async function find(count) {
  const first = await read({ limit: Math.min(count, PAGE) });
  if (first.length === count || first.length < PAGE) return first;
  remember(first);
  const ids = new Set(first.map((session) => session.id));
  const end = startOf(first.at(-1));
  const isOlder = (session) => !ids.has(session.id) && startOf(session) <= end;
  const older = () => [...past.values()].filter(isOlder).sort((one, other) => startOf(other) - startOf(one));
  let rest = older();
  while (!hasOldest && first.length + rest.length < count) {
    const known = past.size;
    const last = rest.at(-1) ?? first.at(-1);
    const next = await read({ limit: PAGE, filters: { started_to: last.started_at } });
    remember(next);
    hasOldest = next.length < PAGE || past.size === known;
    rest = older();
  }
  return [...first, ...rest].slice(0, count);
}

const read = (params) => engine(path("sessions"), { params });
const startOf = (session) => Date.parse(session.started_at);

/** Keeps past sessions, which do not change. Their recordings may be deleted until a reload. */
function remember(sessions) {
  for (const session of sessions.filter(isOver)) past.set(session.id, session);
}

/** Past sessions, by id. */
const past = new Map();

/** True if the oldest session of the project is in `past`. */
let hasOldest = false;

/** Focuses the link that replaces a focused one; also if its session has ended meanwhile. */
function keepFocus({ href }) {
  const links = [...document.querySelectorAll("main a.button")];
  const same = links.find((link) => link.href === href) ?? links.find((link) => link.href.startsWith(`${href}/`));
  (same ?? one("h1")).focus();
}

/** Registered servers; none if the user may not see them. */
async function records() {
  if (!page.may.has("network.webtty-servers.read-only")) return [];
  return await all(`/api/projects/tunnels/${page.project}/webtty/servers`, "servers");
}

const isThere = (tunnel) => tunnel.status === "online" && serverOf(tunnel) !== undefined;

function join(registered, tunnels) {
  const known = registered.map((server) => {
    const tunnel = tunnels.find((tunnel) => serverOf(tunnel).id === server.id);
    const isForThem = server.accessPolicy !== "restricted" || mayManage;
    const canOpen = tunnel && tunnel.publish !== false && server.status === "active" && isForThem;
    const facts = tunnel ? system(tunnel) : STATES[server.status] ?? "offline";
    const detail = isForThem ? facts : `${facts} · restricted`;
    return { id: server.id, name: server.name, detail, at: canOpen && server.id };
  });
  const ids = new Set(registered.map((server) => server.id));
  const others = tunnels.filter((tunnel) => !ids.has(serverOf(tunnel).id));
  const rest = others.map((tunnel) => {
    const { id, name } = serverOf(tunnel);
    return {
      id: id ?? tunnel.id,
      name: name ?? tunnel.name ?? tunnel.id,
      detail: system(tunnel),
      at: tunnel.publish !== false && (id ?? tunnel.name ?? tunnel.id),
    };
  });
  return [...known, ...rest];
}

function system(tunnel) {
  const labels = tunnel.labels ?? {};
  const facts = ["os_pretty_name", "os_family", "arch", "hostname"].map((key) => labels[`svc.webtty.${key}`]);
  const [pretty, family, arch, host] = facts;
  const known = [pretty ?? family, arch, host].filter(Boolean);
  if (tunnel.publish === false) known.push("private: open it with svc webtty");
  return known.join(" · ") || "online";
}

function sessionEntry(base, session, servers) {
  const server = servers.find((server) => server.id === session.server_id);
  const begun = new Date(session.started_at).toLocaleString();
  const name = server?.name ?? session.server_id ?? session.tunnel_id;
  const count = session.live.participant_count;
  const people = count === 1 ? "1 participant" : `${count} participants`;
  const end = session.error_message ?? (session.exit_code === undefined ? "ended" : `ended with ${session.exit_code}`);
  const state = session.live.available ? people : end;
  const owner = session.initiator_user_id && nameOf(session.initiator_user_id);
  const detail = [owner, command(session), duration(session), state];
  const at = `${base}/sessions/${session.id}`;
  if (session.live.available) return entry(name, detail, session.live.attachable && at, "Watch", begun);
  const canReplay = page.may.has("webtty.logs.read-only") && session.recording_mode === "recorded";
  return entry(name, detail, canReplay && `${at}/replay`, "Replay", begun);
}

/** The command of a session. It is empty for a login shell, and absent if only its client reads it. */
function command({ command_meta: meta }) {
  const line = meta?.command;
  if (typeof line !== "string") return undefined;
  return line.length > WIDTH ? `${line.slice(0, WIDTH)} …` : line || "shell";
}

/** Duration of a session, up to now if it is active. */
function duration({ started_at: begin, ended_at: end, live }) {
  if (!end && !live.available) return undefined;
  const seconds = Math.max(0, Math.round((Date.parse(end ?? new Date()) - Date.parse(begin)) / 1000));
  if (seconds < 60) return live.available ? "less than a minute" : `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  return minutes < 60 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** An entry of a list. `details` are separate texts, and `begun` is the start of a session. */
function entry(name, details, address, action = "Open", begun = undefined) {
  const item = document.createElement("li");
  item.className = "row";
  const text = document.createElement("span");
  text.append(named(name), begun ? `, ${begun}` : "", document.createElement("br"));
  const more = document.createElement("span");
  more.className = "quiet small";
  const parts = details.filter(Boolean).flatMap((detail) => [" · ", named(detail)]);
  more.append(...parts.slice(1));
  text.append(more);
  item.append(text);
  if (address) {
    const link = document.createElement("a");
    link.className = "button";
    link.href = address;
    link.textContent = action;
    link.ariaLabel = begun ? `${action} ${name}, ${begun}` : `${action} ${name}`;
    item.append(link);
  }
  return item;
}

function show(id, entries) {
  const list = one(`#${id}`);
  one(`#no-${id}`).hidden = entries.length > 0;
  list.hidden = entries.length === 0;
  const now = entries.map((entry) => entry.outerHTML).join("");
  // Unchanged lists stay, with the selected text.
  if (list.dataset.shown === now) return;
  list.dataset.shown = now;
  const shown = [...list.children];
  // Only the texts change: the links stay, so that a click in the meantime is not lost.
  if (shown.length === entries.length && shown.every((item, at) => isSame(item, entries[at]))) {
    for (const [at, item] of shown.entries()) item.firstChild.replaceWith(entries[at].firstChild);
    return;
  }
  list.replaceChildren(...entries);
}

/** True if two entries have the same link, or both have none. */
function isSame(item, entry) {
  const [before, after] = [item, entry].map((one) => one.querySelector("a")?.outerHTML);
  return before === after;
}

async function again() {
  try {
    if (!document.hidden) await look();
    complain();
  } catch (error) {
    complain(error);
  }
  setTimeout(again, EVERY);
}

one("#more").addEventListener("click", () =>
  attempt(one("#more"), async () => {
    const before = one("#ended").children.length;
    limit = Math.min(limit * 2, MOST);
    await look();
    // The first new session; the button may be hidden.
    const links = [...one("#ended").children].slice(before).map((entry) => entry.querySelector("a"));
    links.find(Boolean)?.focus();
  }),
);

/** Maximum number of sessions to show. The engine lists as many stored ones. */
const MOST = 5000;

/** Maximum number of sessions in a response of the engine. All sessions that it has in memory fit. */
const PAGE = 1000;

/** Maximum characters of a command. */
const WIDTH = 120;

const STATES = { pending_enrollment: "not enrolled yet", suspended: "suspended" };

/** Milliseconds between two polls. */
const EVERY = 5000;

await again();

// The page of the inspector: a live list of exchanges, and the selected exchange.

import { body, duration, element, headers, message, size, time, ways } from "/show.js";

const at = (id) => document.getElementById(id);

const state = {
  exchanges: new Map(),
  chosen: null,
  detail: null,
  messages: [],
  forgotten: 0,
  tab: null,
  way: {},
  paused: false,
  reveal: false,
  filter: "",
  /** Ids that have the words somewhere, where that was asked. */
  found: null,
  about: {},
  fresh: new Set(),
};

// ---- Requests to svc

/** The token is the end of the address that svc has printed; it stays in this tab's storage. */
function token() {
  const given = location.hash.slice(1);
  if (/^[0-9a-f]+$/.test(given)) {
    localStorage.setItem("token", given);
    history.replaceState(null, "", location.pathname);
  }
  return localStorage.getItem("token") ?? "";
}

async function ask(path, { method = "GET", json } = {}) {
  const answer = await fetch(`/api${path}`, {
    method,
    headers: {
      authorization: `Bearer ${token()}`,
      ...(json === undefined ? {} : { "content-type": "application/json" }),
    },
    body: json === undefined ? undefined : JSON.stringify(json),
  });
  if (answer.ok) return answer;
  const told = await answer.json().catch(() => ({}));
  const error = new Error(told.error?.message ?? `svc answered ${answer.status}`);
  error.status = answer.status;
  throw error;
}

const asked = async (path, options) => (await ask(path, options)).json();

/** Follows the changes for as long as the page is open. */
async function follow() {
  for (;;) {
    try {
      const answer = await ask("/events");
      notice();
      load().catch(complain);
      for await (const { event, data } of events(answer.body)) take(event, data);
      notice("Connection to svc lost. Reconnecting …", true);
    } catch (error) {
      if (error.status === 401) {
        locked(error.message);
        return;
      }
      notice("Connection to svc lost. Reconnecting …", true);
    }
    await new Promise((go) => setTimeout(go, 1000));
  }
}

/** Server-sent events of a stream; EventSource cannot show a token. */
async function* events(stream) {
  let rest = "";
  for await (const text of stream.pipeThrough(new TextDecoderStream())) {
    const parts = (rest + text).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      const fields = part.split("\n").map((line) => line.split(/: ?(.*)/s));
      const event = fields.find(([name]) => name === "event")?.[1];
      const data = fields.filter(([name]) => name === "data").map(([, value]) => value);
      if (event) yield { event, data: JSON.parse(data.join("\n")) };
    }
  }
}

async function load() {
  const told = await asked("/state");
  state.about = told.about;
  state.paused = told.paused;
  showHead();
  showList();
}

function take(event, data) {
  switch (event) {
    case "snapshot":
      state.exchanges = new Map(data.exchanges.map((one) => [one.id, one]));
      break;
    case "exchange":
      if (!state.exchanges.has(data.id)) state.fresh.add(data.id);
      state.exchanges.set(data.id, data);
      if (data.id === state.chosen) refresh();
      break;
    case "gone":
      for (const id of state.exchanges.keys()) if (id <= data.up_to) state.exchanges.delete(id);
      break;
    case "paused":
      state.paused = data.paused;
      showHead();
      break;
    case "about":
      state.about = data;
      showHead();
      break;
  }
  // A replayed exchange may be selected before its event arrives.
  const isGone = event === "gone" ? state.chosen <= data.up_to : !state.exchanges.has(state.chosen);
  if (state.chosen !== null && ["gone", "snapshot"].includes(event) && isGone) choose(null);
  soon();
}

/** Draws once, however many changes came. */
let drawing = false;
function soon() {
  if (drawing) return;
  drawing = true;
  requestAnimationFrame(() => {
    drawing = false;
    showList();
  });
}

// ---- The header

function showHead() {
  const { forwarding, target } = state.about;
  const words = forwarding ? [link(forwarding), ` → ${target}`] : [target ? `→ ${target}` : ""];
  at("about").replaceChildren(...words);
  at("pause").setAttribute("aria-pressed", state.paused);
  at("pause").textContent = state.paused ? "Paused" : "Pause";
  at("reveal").setAttribute("aria-pressed", state.reveal);
  at("reveal").textContent = state.reveal ? "Secrets shown" : "Secrets";
}

function link(address) {
  const safe = /^https?:/.test(address);
  if (!safe) return address;
  return element("a", { href: address, target: "_blank", rel: "noreferrer" }, address);
}

let noticed;
function notice(text, bad = false) {
  clearTimeout(noticed);
  at("notice").hidden = !text;
  at("notice").className = bad ? "bad" : "";
  at("notice").textContent = text ?? "";
  if (text && !bad) noticed = setTimeout(notice, 4000);
}

const complain = (error) => notice(error.message, true);

function locked(why) {
  document.body.classList.remove("chosen");
  at("detail-pane").hidden = true;
  at("list").replaceChildren();
  showEmpty("This page needs its whole address", why);
}

// ---- The list

function wanted(one) {
  if (state.found) return state.found.has(one.id);
  const words = state.filter.toLowerCase().split(/\s+/).filter(Boolean);
  return words.every((word) => matches(one, word));
}

/** A word is a status, a class of them such as 5xx, a method, a kind, or a part of what is seen. */
function matches(one, word) {
  const status = String(one.status ?? "");
  if (/^[1-5]xx$/.test(word)) return status.startsWith(word[0]);
  if (/^[1-5]\d\d$/.test(word) && status === word) return true;
  if (word === "error") return Boolean(one.error) || Number(one.status) >= 500;
  if (word === one.kind || word === one.method.toLowerCase()) return true;
  if (word === "replayed") return one.replay_of !== null;
  const seen = `${one.method} ${one.host}${one.path} ${one.source_ip ?? ""}`;
  return seen.toLowerCase().includes(word);
}

const visible = () => [...state.exchanges.values()].filter(wanted).sort((a, b) => b.id - a.id);

function showList() {
  const list = at("list");
  const focused = document.activeElement?.dataset?.id;
  const before = new Map([...list.children].map((item) => [Number(item.dataset.id), item]));
  const shown = visible();
  const items = shown.map((one) => {
    const mark = JSON.stringify([one, one.id === state.chosen]);
    const known = before.get(one.id);
    if (known?.dataset.mark === mark) return known;
    return row(one, mark);
  });
  list.replaceChildren(...items);
  if (focused && document.activeElement?.dataset?.id !== focused) {
    list.querySelector(`button[data-id="${focused}"]`)?.focus();
  }
  state.fresh.clear();
  if (shown.length > 0) {
    at("empty").hidden = true;
  } else if (state.about.unseen) {
    showEmpty("Nothing is recorded", `${state.about.unseen}. The tunnel works nevertheless.`);
  } else if (state.exchanges.size > 0) {
    showEmpty("No request is like that", "Change or clear the filter.");
  } else if (state.paused) {
    showEmpty("Recording is paused", "Press Pause or the key p to continue.");
  } else {
    const address = state.about.forwarding;
    const words = address ? ["Open ", link(address), " and the request appears here."] : ["New requests appear here."];
    showEmpty("No requests yet", ...words);
  }
}

function showEmpty(title, ...words) {
  const strong = element("strong", {}, title);
  at("empty").replaceChildren(element("p", {}, strong), element("p", {}, ...words));
  at("empty").hidden = false;
}

function row(one, mark) {
  const status = one.status === null ? (one.error ? "!" : "…") : String(one.status);
  const tags = [
    one.kind === "http" ? undefined : { websocket: "WebSocket", sse: "events", grpc: "gRPC" }[one.kind],
    one.replay_of === null ? undefined : "replayed",
    one.hint ? "hint" : undefined,
  ];
  const more = [
    element("span", {}, [time(one.began).slice(0, 8), one.source_ip].filter(Boolean).join(" · ")),
    ...tags.filter(Boolean).map((tag) => element("span", { class: "tag" }, tag)),
    one.messages > 0 ? element("span", {}, `${one.messages} messages`) : undefined,
    element("span", {}, duration(one.took_ms)),
  ];
  const button = element(
    "button",
    {
      "data-id": one.id,
      "aria-current": one.id === state.chosen ? "true" : undefined,
      onclick: () => choose(one.id),
    },
    element("span", { class: "method" }, one.method),
    element("span", { class: "path" }, one.path),
    element("span", { class: `status ${one.error ? "broken" : `s${status[0]}`}` }, status),
    element("span", { class: "more" }, ...more),
  );
  const item = element("li", { "data-id": one.id, "data-mark": mark }, button);
  if (state.fresh.has(one.id)) item.className = "fresh";
  return item;
}

let searching;
function filter() {
  state.filter = at("filter").value.trim();
  clearTimeout(searching);
  if (!at("deep").checked || !state.filter) {
    state.found = null;
    showList();
    return;
  }
  const words = state.filter;
  searching = setTimeout(async () => {
    try {
      const { exchanges } = await asked(`/exchanges?search=${encodeURIComponent(words)}`);
      if (words !== state.filter || !at("deep").checked) return;
      state.found = new Set(exchanges.map((one) => one.id));
      showList();
      if (state.detail) showPart();
    } catch (error) {
      complain(error);
    }
  }, 200);
}

function step(by) {
  const shown = visible();
  const now = shown.findIndex((one) => one.id === state.chosen);
  const next = shown[now < 0 ? 0 : Math.min(Math.max(now + by, 0), shown.length - 1)];
  if (!next) return;
  choose(next.id);
  at("list").querySelector(`button[data-id="${next.id}"]`)?.scrollIntoView({ block: "nearest" });
}

// ---- The selected exchange

async function choose(id) {
  state.chosen = id;
  state.detail = null;
  state.messages = [];
  state.forgotten = 0;
  state.tab = null;
  state.way = {};
  document.body.classList.toggle("chosen", id !== null);
  at("detail-pane").hidden = id === null;
  showList();
  if (id === null) return;
  at("detail-pane").scrollTop = 0;
  await refresh();
}

/**
 * Loads what is shown again: once at a time, and once more where it changed meanwhile. Ends when all
 * of it is here.
 */
let loading;
let again = false;
function refresh() {
  if (loading) again = true;
  else if (state.chosen !== null) loading = reload();
  return loading;
}

async function reload() {
  do {
    again = false;
    const id = state.chosen;
    if (id === null) break;
    try {
      const detail = await asked(`/exchanges/${id}?reveal=${state.reveal}`);
      const news = detail.messages > 0 ? await newMessages(id) : [];
      if (id !== state.chosen) {
        again = true;
        continue;
      }
      const first = state.detail === null;
      const changed = JSON.stringify(detail) !== JSON.stringify(state.detail);
      state.detail = detail;
      state.messages.push(...news);
      if (first) state.tab = detail.kind === "http" ? "Response" : "Messages";
      if (changed || news.length > 0) showDetail();
    } catch (error) {
      if (error.status !== 404) complain(error);
      else if (id === state.chosen) choose(null);
    }
  } while (again);
  loading = undefined;
}

/**
 * The chosen exchange, once it is here: until then the page shows the one before, and what a person
 * does is meant for the one that they chose. Nothing where they chose another meanwhile.
 */
async function arrived() {
  const id = state.chosen;
  if (!state.detail) await (loading ?? refresh());
  return id === state.chosen ? state.detail : null;
}

async function newMessages(id) {
  const all = [];
  let after = state.messages.at(-1)?.number ?? 0;
  for (;;) {
    const { messages, forgotten } = await asked(`/exchanges/${id}/messages?after=${after}`);
    state.forgotten = forgotten;
    all.push(...messages);
    if (messages.length === 0) return all;
    after = messages.at(-1).number;
  }
}

function showDetail() {
  const { detail } = state;
  at("what").textContent = `${detail.method} ${detail.path}`;
  const facts = [
    detail.status === null ? "no response yet" : detail.response?.line,
    duration(detail.took_ms),
    `request ${size(detail.request_bytes)}`,
    `response ${size(detail.response_bytes)}`,
    detail.source_ip ? `from ${detail.source_ip}` : undefined,
    detail.replay_of === null ? undefined : `replayed from #${detail.replay_of}`,
    new Date(detail.began).toLocaleString(),
  ];
  at("facts").textContent = facts.filter(Boolean).join(" · ");
  const trouble = [detail.error, detail.hint?.text].filter(Boolean).join(" · ");
  at("trouble").textContent = trouble;
  at("trouble").hidden = !trouble;
  const repeatable = detail.kind !== "websocket";
  at("replay").disabled = !repeatable;
  at("edit").disabled = !repeatable;
  showTabs();
  showPart();
}

const tabs = ({ kind }) => ["Request", "Response", ...(kind === "http" ? [] : ["Messages"])];

function showTabs() {
  choice(at("tabs"), tabs(state.detail), state.tab, async (name) => {
    const detail = await arrived();
    if (!detail || !tabs(detail).includes(name)) return;
    state.tab = name;
    showTabs();
    showPart();
  });
}

/** Buttons of which one is pressed; the one with the focus keeps it. */
function choice(group, names, now, pick) {
  const focused = group.contains(document.activeElement) && document.activeElement.textContent;
  const buttons = names.map((name) =>
    element("button", { "aria-pressed": String(name === now), onclick: () => pick(name) }, name),
  );
  group.replaceChildren(...buttons);
  if (focused) buttons.find((button) => button.textContent === focused)?.focus();
}

function showPart() {
  const part = at("part");
  if (state.tab === "Messages") {
    showMessages(part);
    return;
  }
  const head = state.tab === "Request" ? state.detail.request : state.detail.response;
  if (!head) {
    const why = state.detail.took_ms === null ? "The service has not responded yet." : "There is no response.";
    part.replaceChildren(element("p", { class: "note" }, why));
    return;
  }
  part.replaceChildren(
    element("h3", {}, "Headers"),
    element("p", { class: "note" }, head.line),
    headers(head.headers),
    ...bodyOf(head),
    ...(head.trailers ? [element("h3", {}, "Trailers"), headers(head.trailers)] : []),
  );
}

function bodyOf(head) {
  const data = head.body;
  const title = element("h3", {}, "Body");
  const all = ways(data);
  if (all.length === 0) return [title, element("p", { class: "note" }, "Empty.")];
  const way = all.includes(state.way[state.tab]) ? state.way[state.tab] : all[0];
  const group = element("div", { class: "choice", role: "group", "aria-label": "Display" });
  choice(group, all, way, (name) => {
    // The buttons of a body that is about to be removed.
    if (!state.detail) return;
    state.way[state.tab] = name;
    showPart();
    const pressed = at("part").querySelector(".choice [aria-pressed=true]");
    pressed?.focus();
  });
  const side = state.tab === "Request" ? "request" : "response";
  const save = element("button", { onclick: () => saveBody(side) }, "Save");
  const notes = [
    data.mime || "no type",
    size(data.size),
    data.decoded ? `shown without ${data.decoded}` : undefined,
    data.cut ? "only a part was kept" : undefined,
    data.trouble,
  ];
  const words = state.found ? state.filter.toLowerCase() : "";
  return [
    title,
    element("div", { class: "row" }, group, save),
    element("p", { class: "note" }, notes.filter(Boolean).join(" · ")),
    body(data, words && data.text !== undefined && !state.way[state.tab] ? "Text" : way, words),
  ];
}

function showMessages(part) {
  const known = part.querySelector("#messages");
  if (known && Number(known.dataset.id) === state.chosen) {
    const shown = Number(known.dataset.last);
    const news = state.messages.filter((note) => note.number > shown);
    known.append(...news.map(message));
    known.dataset.last = state.messages.at(-1)?.number ?? 0;
    return;
  }
  const { messages, forgotten } = state;
  if (messages.length === 0) {
    part.replaceChildren(element("p", { class: "note" }, "No messages yet."));
    return;
  }
  const list = element(
    "ol",
    { id: "messages", "data-id": state.chosen, "data-last": messages.at(-1).number },
    ...messages.map(message),
  );
  const lost = forgotten > 0 ? `${forgotten} older messages were deleted.` : undefined;
  part.replaceChildren(...(lost ? [element("p", { class: "note" }, lost)] : []), list);
}

// ---- User actions

async function replay(changes = {}) {
  const { id } = await asked(`/exchanges/${state.chosen}/replay`, { method: "POST", json: changes });
  notice("Sent again.");
  await choose(id);
}

async function edit() {
  const detail = await arrived();
  if (!detail || at("edit").disabled) return;
  const { request } = detail;
  at("edit-method").value = detail.method;
  at("edit-path").value = detail.path;
  at("edit-headers").value = request.headers.map(({ name, value }) => `${name}: ${value}`).join("\n");
  const text = request.body.text;
  // A body that is not text, or is not complete here, is sent unchanged.
  const editable = text !== undefined && !request.body.cut && !request.body.decoded;
  at("edit-body").value = editable ? text : "";
  at("edit-body").disabled = !editable;
  at("edit-note").hidden = editable;
  at("edit-note").textContent = "The body is not text, or not all of it is here: it is sent as it was.";
  at("edit-error").hidden = true;
  at("editor").showModal();
}

async function sendEdited() {
  const lines = at("edit-headers").value.split("\n").filter((line) => line.trim());
  const pairs = lines.map((line) => line.split(/:\s?(.*)/s));
  const wrong = pairs.findIndex(([name, value]) => !name.trim() || value === undefined);
  if (wrong >= 0) {
    failEdit(`A header is written “Name: value”: ${lines[wrong]}`);
    return;
  }
  const was = state.detail.request.body.text;
  const body = at("edit-body");
  const changes = {
    method: at("edit-method").value.trim(),
    path: at("edit-path").value.trim(),
    headers: pairs.map(([name, value]) => ({ name: name.trim(), value: value.trim() })),
    ...(body.disabled || body.value === was ? {} : { body: { text: body.value } }),
  };
  try {
    await replay(changes);
    at("editor").close();
  } catch (error) {
    failEdit(error.message);
  }
}

function failEdit(why) {
  at("edit-error").textContent = why;
  at("edit-error").hidden = false;
}

async function copyCurl() {
  if (state.chosen === null) return;
  const text = await (await ask(`/exchanges/${state.chosen}/curl?reveal=${state.reveal}`)).text();
  await navigator.clipboard.writeText(text);
  notice(state.reveal ? "Copied, with its secrets." : "Copied; secrets are masked.");
}

async function saveHar(id) {
  const which = id === undefined ? "" : `&id=${id}`;
  const answer = await ask(`/har?reveal=${state.reveal}${which}`);
  save(await answer.blob(), id === undefined ? "svc.har" : `svc-${id}.har`);
}

async function saveBody(side) {
  try {
    const answer = await ask(`/exchanges/${state.chosen}/${side}/body`);
    save(await answer.blob(), `body-${state.chosen}-${side}`);
  } catch (error) {
    complain(error);
  }
}

function save(blob, name) {
  const address = URL.createObjectURL(blob);
  element("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

async function pause() {
  await ask("/paused", { method: "PUT", json: { paused: !state.paused } });
}

async function reveal() {
  state.reveal = !state.reveal;
  showHead();
  if (state.chosen !== null) await refresh();
}

const guarded = (work) => () => work().catch(complain);

at("pause").addEventListener("click", guarded(pause));
at("reveal").addEventListener("click", guarded(reveal));
at("har").addEventListener("click", guarded(() => saveHar()));
at("clear").addEventListener("click", guarded(() => ask("/exchanges", { method: "DELETE" })));
at("help").addEventListener("click", () => at("keys").showModal());
at("filter").addEventListener("input", filter);
at("filter").addEventListener("search", filter);
at("deep").addEventListener("change", filter);
at("back").addEventListener("click", () => choose(null));
at("replay").addEventListener("click", guarded(() => replay()));
at("edit").addEventListener("click", guarded(edit));
at("curl").addEventListener("click", guarded(copyCurl));
at("one-har").addEventListener("click", guarded(() => saveHar(state.chosen)));
at("edit-send").addEventListener("click", sendEdited);

const KEYS = {
  j: () => step(1),
  k: () => step(-1),
  r: guarded(async () => {
    if ((await arrived()) && !at("replay").disabled) await replay();
  }),
  e: guarded(edit),
  c: guarded(copyCurl),
  p: guarded(pause),
  "?": () => at("keys").showModal(),
  "/": () => {
    if (document.body.classList.contains("chosen") && at("filter").checkVisibility() === false) {
      choose(null);
    }
    at("filter").focus();
  },
  Escape: () => choose(null),
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  // A field of a closed dialog keeps the focus for a moment.
  if (event.target.matches("input, textarea") && !event.target.closest("dialog")) {
    if (event.key === "Escape") {
      // Chromium would empty the field.
      event.preventDefault();
      event.target.blur();
    }
    return;
  }
  const work = Object.hasOwn(KEYS, event.key) ? KEYS[event.key] : undefined;
  if (!work) return;
  event.preventDefault();
  work();
});

addEventListener("hashchange", () => location.reload());
follow();

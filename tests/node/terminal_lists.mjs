// The lists of terminals: user, command and duration of sessions, pages of the list, and the focus
// while the lists change or the sign-in has ended.

import assert from "node:assert/strict";

import { drive } from "./browser.mjs";
import { FakeEngine } from "./fake_engine.mjs";
import { LOOKS, lookAt } from "./looks.mjs";
import { clickedDuring, open, press, tabTo } from "./terminal_page.mjs";

await drive(async (world) => {
  const engine = new FakeEngine(world);
  await engine.start();
  try {
    const looks = LOOKS.filter(({ look }) => ["light-phone", "dark-desk"].includes(look));
    for (const { look, options } of looks) await facts(world, look, options);
    await pages(world);
    await changes(world);
    await signedOut(world);
  } finally {
    engine.stop();
  }
});

/** A page with the list of these sessions, which a test can change. */
async function listed(world, sessions, options = {}) {
  const page = await open(world, "ada", options);
  page.reads = [];
  await page.route("**/api/webtty/sessions?*", async (route) => {
    const { limit, filters } = JSON.parse(new URL(route.request().url()).searchParams.get("params"));
    assert.ok(limit <= 1000);
    page.reads.push(filters?.started_to);
    const until = Date.parse(filters?.started_to ?? "9999-01-01T00:00:00Z");
    const found = sessions.filter((session) => Date.parse(session.started_at) <= until);
    const headers = { "access-control-allow-origin": world.url };
    await route.fulfill({ headers, json: found.slice(0, limit) });
  });
  await page.goto(`/projects/${world.given.project}/terminals`);
  await page.locator("#running, #ended").getByRole("listitem").first().waitFor();
  return page;
}

/** A session of Grace that began at noon, or `earlier` minutes before. */
function session(id, { minutes, command, earlier = 0, ...more }) {
  const begun = Date.UTC(2026, 0, 2, 12) - earlier * 60_000;
  const isOver = minutes !== undefined;
  return {
    id,
    server_id: "wsv_1",
    tunnel_id: "tun_1",
    initiator_user_id: "grace",
    status: isOver ? "closed" : "active",
    session_mode: "interactive",
    recording_mode: "recorded",
    encryption_mode: "managed",
    started_at: new Date(begun).toISOString(),
    ...(isOver ? { ended_at: new Date(begun + minutes * 60_000).toISOString(), exit_code: 0 } : {}),
    ...(command === undefined ? {} : { command_meta: { command } }),
    live: { available: !isOver, attachable: !isOver, participant_count: 1, has_upstream: !isOver },
    ...more,
  };
}

/** Texts of the details in a list. */
async function details(page, list) {
  return await page.locator(`#${list} .small`).allTextContents();
}

/** Each entry names user, command and duration. Their direction of writing affects no other text. */
async function facts(world, look, options) {
  const { grace } = world.given.people;
  const by = { initiator_user_id: grace };
  const page = await listed(
    world,
    [
      session("wts_1", { command: "top -d 5", ...by }),
      session("wts_2", { command: "", minutes: 65, ...by }),
      session("wts_3", { command: "\u202e/bin/true", minutes: 0.2, ...by }),
      session("wts_4", { minutes: 5, initiator_user_id: undefined, error_message: "the server was lost" }),
    ],
    options,
  );
  const [running] = await details(page, "running");
  assert.match(running, /^Grace · top -d 5 · \d+ h \d+ min · 1 participant$/);
  assert.deepEqual(await details(page, "ended"), [
    "Grace · shell · 1 h 5 min · ended with 0",
    "Grace · \u202e/bin/true · 12 s · ended with 0",
    "5 min · the server was lost",
  ]);
  const isolated = await page.locator("#ended li:nth-child(2) bdi").allTextContents();
  assert.deepEqual(isolated, ["web-1", "Grace", "\u202e/bin/true", "12 s", "ended with 0"]);
  await lookAt(world, page, `lists-${look}`);
  page.clean();
  await page.context().close();
}

/** More sessions are shown on request, and the focus goes to the first of them. */
async function pages(world) {
  const ended = (count) =>
    [...Array(count).keys()].map((earlier) => session(`wts_${earlier}`, { minutes: 1, earlier }));
  const page = await listed(world, ended(120));
  const count = async (number) =>
    await page.waitForFunction((number) => document.querySelector("#ended").children.length === number, number);
  await count(50);
  await press(page, "Show more");
  await count(100);
  const focused = (id) =>
    page.waitForFunction((id) => document.activeElement?.href?.endsWith(`/sessions/${id}/replay`), id);
  await focused("wts_50");
  await press(page, "Show more");
  await count(120);
  await focused("wts_100");
  assert.ok(await page.getByRole("button", { name: "Show more" }).isHidden());
  assert.ok(await page.locator("#older").isHidden());
  page.clean();
  await page.context().close();

  // The engine returns at most a thousand sessions in a response, and the page shows more.
  const sessions = [session("wts_active", {}), ...ended(5100)];
  const long = await listed(world, sessions);
  const button = long.getByRole("button", { name: "Show more" });
  const shows = async (number) =>
    await long.waitForFunction((number) => document.querySelectorAll("main li.row a").length >= number, number);
  // It has no effect until the sessions of the press before are shown, which a poll may do first.
  const idle = long.locator("#more:not([aria-disabled=true])");
  for (const shown of [100, 200, 400, 800, 1600, 3200]) {
    await idle.press("Enter");
    await shows(shown);
  }
  // A session that begins meanwhile is shown, and none is missing or repeated.
  sessions.unshift(session("wts_late", {}));
  await long.locator("#running li:nth-child(2)").waitFor();
  await idle.press("Enter");
  await long.getByText("These are the newest 5000 sessions.").waitFor();
  assert.ok(await button.isHidden());
  const links = await long.locator("#ended a").evaluateAll((links) => links.map((link) => link.pathname));
  const base = `/projects/${world.given.project}/sessions`;
  assert.deepEqual(
    links,
    sessions.slice(2, 5000).map(({ id }) => `${base}/${id}/replay`),
  );
  // Older sessions do not change, and are read once.
  const older = long.reads.filter(Boolean);
  assert.equal(new Set(older).size, older.length);
  long.clean();
  await long.context().close();
}

/** A link keeps the focus while its entry changes, and when its session ends. */
async function changes(world) {
  const sessions = [session("wts_1", {}), session("wts_2", { minutes: 1 })];
  const page = await listed(world, sessions);
  const watch = page.getByRole("link", { name: /^Watch web-1/ });
  await tabTo(page, watch);
  sessions[0].live.participant_count = 2;
  await page.getByText("2 participants").waitFor();
  assert.ok(await watch.evaluate((node) => node === document.activeElement));
  // A click while the entry changes.
  await page.evaluate(() => {
    addEventListener("click", (event) => {
      if (!event.target.closest("a")) return;
      event.preventDefault();
      document.documentElement.dataset.clicked = event.target.ariaLabel;
    });
  });
  await clickedDuring(page, watch, async () => {
    sessions[0].live.participant_count = 3;
    await page.getByText("3 participants").waitFor();
  });
  await page.locator("html[data-clicked^='Watch web-1']").waitFor();
  sessions[0] = session("wts_1", { minutes: 2 });
  await page.getByText("There is no active session.").waitFor();
  await page.waitForFunction(() => document.activeElement?.href?.endsWith("/sessions/wts_1/replay"));
  sessions.shift();
  await page.waitForFunction(() => document.activeElement?.tagName === "H1");
  page.clean();
  await page.context().close();
}

/** The sign-in ends while the page is open: it leads to the form, and keeps the focus there. */
async function signedOut(world) {
  const page = await listed(world, [session("wts_1", {})], { expected: [401] });
  let requests = 0;
  page.on("response", (response) => (requests += response.status() === 401 ? 1 : 0));
  await page.context().clearCookies();
  await page.getByRole("alert").filter({ hasText: "Your sign-in has ended. Sign in again." }).waitFor();
  const link = page.getByRole("link", { name: "Sign in again" });
  await link.focus();
  const before = requests;
  await page.waitForResponse((response) => response.status() === 401);
  await page.waitForResponse((response) => response.status() === 401);
  assert.ok(requests > before);
  assert.ok(await link.evaluate((node) => node === document.activeElement));
  await page.keyboard.press("Enter");
  await page.getByLabel("Email").fill("ada@example.com");
  await page.getByLabel("Password").fill(world.given.password);
  await page.keyboard.press("Enter");
  await page.waitForURL(`${world.url}/projects/${world.given.project}/terminals`);
  await page.locator("#running").getByRole("listitem").first().waitFor();
  page.clean();
  await page.context().close();
}

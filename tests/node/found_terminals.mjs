// Terminals on the pages are restored: by a reloaded page, by another page of the same user, and
// after a lost connection. A restricted server needs the permission to manage servers.

import assert from "node:assert/strict";

import { drive, watched } from "./browser.mjs";
import { FakeEngine } from "./fake_engine.mjs";
import { LOOKS, seen, signIn } from "./looks.mjs";
import { beside, clickedDuring, inTerminal, into, keepsItsPress, open, press, shows } from "./terminal_page.mjs";

await drive(async (world) => {
  const engine = new FakeEngine(world);
  await engine.start();
  try {
    const looks = LOOKS.filter(({ look }) => ["light-phone", "dark-desk"].includes(look));
    for (const { look, options } of looks) await found(world, engine, look, options);
    await elsewhere(world, engine);
    await early(world, engine);
    await restricted(world, engine);
  } finally {
    engine.stop();
  }
});

/** The most recently opened session. */
function newest(engine) {
  return [...engine.sessions.values()].at(-1);
}

/** A terminal is restored by a reloaded page, by another page, and after a network loss. */
async function found(world, engine, look, options) {
  const at = `/projects/${world.given.project}/terminals/wsv_1`;
  const ada = await open(world, "ada", options);
  const grace = await open(world, "grace", options);
  await ada.goto(at);
  await press(ada, "Open a terminal");
  await inTerminal(ada);
  await ada.keyboard.type("colours");
  await ada.keyboard.press("Enter");
  await shows(ada, "red yellow faint reverse blue");
  await ada.locator("#people").getByText("You have control").waitFor();
  const session = newest(engine);

  await ada.reload();
  await ada.state("You have control.");
  assert.equal(newest(engine), session);
  await shows(ada, "red yellow faint reverse blue");
  await inTerminal(ada);
  await seen(world, ada, `found-${look}`);
  await into(ada);
  await ada.keyboard.type("again");
  await ada.keyboard.press("Enter");
  await shows(ada, "again: said");

  // Granted control returns to the reloaded page.
  await grace.goto(`/projects/${world.given.project}/sessions/${session.id}`);
  await grace.state("You are watching.");
  await press(grace, "Ask for control");
  await ada.keyboard.press("Control+Shift+Enter");
  await press(ada, "Grant control to Grace");
  await grace.state("You have control");
  await ada.reload();
  await ada.state("You are connected again, but another user has control.");
  await into(grace);
  await grace.keyboard.press("Control+Shift+Enter");
  await press(grace, "Give control back");
  await ada.state("You have control.");

  // The connection breaks, and a duplicated tab takes nothing away in the meantime.
  const copy = await beside(world, ada);
  await copy.goto("/account");
  const kept = await ada.evaluate(() => Object.entries(sessionStorage));
  await copy.evaluate((kept) => kept.forEach(([key, value]) => sessionStorage.setItem(key, value)), kept);
  await copy.goto(at);
  await copy.state("No terminal is open yet.");
  assert.equal(await copy.getByRole("button", { name: "Go back to your terminal" }).count(), 0);
  await copy.close();
  const comesBack = await watched(ada, "#state", "The connection is lost. Reconnecting …");
  session.opener.socket.terminate();
  await comesBack();
  await ada.state("You have control.");
  assert.equal(newest(engine), session);

  // The tab is closed, and another one opened.
  const next = await beside(world, ada);
  await ada.close();
  await next.goto(at);
  await next.state("The terminal that you left is still open.");
  await seen(world, next, `left-${look}`);
  await press(next, "Go back to your terminal");
  await next.state("You have control.");
  await into(next);
  await next.keyboard.type("exit");
  await next.keyboard.press("Enter");
  for (const page of [next, grace]) await page.state("The session ended with 0.");
  // Then there is nothing to restore.
  await next.reload();
  await next.state("No terminal is open yet.");

  // The page did not return in time.
  await press(next, "Open a terminal");
  await inTerminal(next);
  await next.locator("#people").getByText("You have control").waitFor();
  await next.goto("/account");
  newest(engine).abandon();
  await next.goto(at);
  await next.state("The terminal has ended: no user reconnected to it in time.");
  await seen(world, next, `too-late-${look}`);
  await next.reload();
  await next.state("No terminal is open yet.");
  for (const page of [ada, copy, next, grace]) page.clean();
  for (const page of [ada, grace]) await page.context().close();
}

/** Data that a page stores is ignored for another account in the same browser. */
async function elsewhere(world, engine) {
  const at = `/projects/${world.given.project}/terminals/wsv_1`;
  const page = await open(world, "ada", {});
  await page.goto(at);
  await press(page, "Open a terminal");
  await inTerminal(page);
  await page.locator("#people").getByText("You have control").waitFor();
  const session = newest(engine);
  await page.goto("/account");
  const names = () => page.evaluate(() => Object.keys(localStorage).filter((key) => key.startsWith("terminal:")));
  assert.equal((await names()).length, 1);
  await page.context().clearCookies();
  await signIn(world, page, "grace@example.com");
  await page.goto(at);
  await page.state("No terminal is open yet.");
  assert.equal(await page.getByRole("button", { name: "Go back to your terminal" }).count(), 0);
  assert.deepEqual(await names(), []);
  session.end(0);
  page.clean();
  await page.context().close();
}

/** The button works before the page has found the server. What appears then does not move it. */
async function early(world, engine) {
  const at = `/projects/${world.given.project}/terminals/wsv_1`;
  const first = await open(world, "ada", {});
  await clickedEarly(first, at, "No terminal is open yet.");
  await first.locator("#people").getByText("You have control").waitFor();
  const sessions = [newest(engine)];
  // The same beside the button that leads to the terminal of a closed page.
  const next = await beside(world, first);
  await first.close();
  await clickedEarly(next, at, "The terminal that you left is still open.");
  await next.locator("#people").getByText("You have control").waitFor();
  sessions.push(newest(engine));
  const end = next.getByRole("button", { name: "End the session" });
  await keepsItsPress(next, end, next.getByText("The session ended with"));
  assert.notEqual(sessions[0], sessions[1]);
  sessions[0].end(0);
  for (const page of [first, next]) page.clean();
  await next.context().close();
}

/** Opens a terminal by a click during which the page finds the server and shows `text`. */
async function clickedEarly(page, at, text) {
  let answer;
  const isAnswered = new Promise((resolve) => (answer = resolve));
  const hold = async (route) => {
    await isAnswered;
    await route.continue();
  };
  await page.route("**/api/tunnels?*", hold, { times: 1 });
  await page.goto(at);
  await clickedDuring(page, page.getByRole("button", { name: "Open a terminal" }), async () => {
    answer();
    await page.state(text);
  });
  await page.state("The terminal is open.");
}

/** Only users who manage servers open, join and restore sessions of a restricted server. */
async function restricted(world, engine) {
  const at = `/projects/${world.given.project}/terminals`;
  engine.restricted = true;
  const ada = await open(world, "ada", { access: "restricted" });
  await ada.goto(`${at}/wsv_1`);
  await press(ada, "Open a terminal");
  await inTerminal(ada);
  await ada.locator("#people").getByText("You have control").waitFor();
  await ada.reload();
  await ada.state("You have control.");
  const session = newest(engine);
  const watching = await beside(world, ada, "restricted");
  await watching.goto(`/projects/${world.given.project}/sessions/${session.id}`);
  await watching.state("You are watching.");
  await ada.getByRole("button", { name: "End the session" }).click();
  for (const page of [ada, watching]) await page.state("The session ended with 143.");

  const grace = await open(world, "grace", { access: "restricted" });
  const servers = [{ id: "wsv_1", name: "web-1", status: "active", accessPolicy: "restricted" }];
  await grace.route("**/webtty/servers?*", (route) => route.fulfill({ json: { servers } }));
  await grace.goto(at);
  await grace.getByText("Debian · restricted").waitFor();
  assert.equal(await grace.getByRole("link", { name: "Open web-1" }).count(), 0);
  await grace.goto(`${at}/wsv_1`);
  await grace.getByRole("alert").filter({ hasText: "Only users who can manage servers may open this server." }).waitFor();
  for (const page of [ada, watching, grace]) page.clean();
}

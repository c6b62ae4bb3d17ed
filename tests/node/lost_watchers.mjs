// A page that watches a terminal loses its connection: it tries again as long as requests fail, and
// asks to sign in again if the sign-in has ended meanwhile.

import assert from "node:assert/strict";

import { drive, watched } from "./browser.mjs";
import { FakeEngine } from "./fake_engine.mjs";
import { seen } from "./looks.mjs";
import { inTerminal, open, press, shows } from "./terminal_page.mjs";

/** Requests for a session, without those for its participants. */
const SESSION = "**/api/webtty/sessions/*";

await drive(async (world) => {
  const engine = new FakeEngine(world);
  await engine.start();
  try {
    const ada = await open(world, "ada", {});
    await ada.goto(`/projects/${world.given.project}/terminals/wsv_1`);
    await press(ada, "Open a terminal");
    await inTerminal(ada);
    const [id, session] = [...engine.sessions].at(-1);
    const address = `/projects/${world.given.project}/sessions/${id}`;
    await unreachable(world, session, address);
    await refused(world, session, address);
    await signedOut(world, session, address);
    session.end(0);
    await ada.state("The session ended with 0.");
    ada.clean();
  } finally {
    engine.stop();
  }
});

/** The network is lost for a while: a request that fails is tried again. */
async function unreachable(world, session, address) {
  const page = await watching(world, address, ["net::ERR_FAILED"]);
  let requests = 0;
  let saysAgain;
  await page.route(SESSION, async (route) => {
    requests += 1;
    if (requests > 1) return await route.continue();
    // The page says the same again after the request has failed.
    saysAgain = await watched(page, "#state", "The connection is lost. Trying again …");
    await route.abort();
  });
  const tryingAgain = await watched(page, "#state", "Trying again");
  cut(world, session);
  await tryingAgain();
  await page.state("You are watching.");
  assert.ok(requests > 1, "the page did not try again");
  await saysAgain();
  assert.ok(await page.getByRole("alert").isHidden());
  assert.ok(await page.getByRole("button", { name: "Watch again" }).isHidden());
  // The terminal is shown again.
  await shows(page, "$");
  page.clean();
  await page.context().close();
}

/** A server refuses: the page shows the reason and waits for the user. */
async function refused(world, session, address) {
  const page = await watching(world, address, [403]);
  let requests = 0;
  await page.route(SESSION, async (route) => {
    requests += 1;
    const headers = { "access-control-allow-origin": world.url };
    const json = { detail: "You may no longer see this session.", code: "not_found" };
    if (requests > 1) await route.continue();
    else await route.fulfill({ status: 403, headers, json });
  });
  cut(world, session);
  await page.getByRole("alert").filter({ hasText: "You may no longer see this session." }).waitFor();
  await page.state("The connection is lost.");
  await press(page, "Watch again");
  await page.state("You are watching.");
  page.clean();
  await page.context().close();
}

/** The sign-in has ended: the page leads to the form, and the form back to the page. */
async function signedOut(world, session, address) {
  const page = await watching(world, address, [401]);
  await page.context().clearCookies();
  cut(world, session);
  await page.getByRole("alert").filter({ hasText: "Your sign-in has ended. Sign in again." }).waitFor();
  await page.getByRole("button", { name: "Watch again" }).waitFor();
  assert.equal(await page.locator("#state").textContent(), "");
  await seen(world, page, "signed-out");
  await page.getByRole("link", { name: "Sign in again" }).click();
  await page.getByLabel("Email").fill("grace@example.com");
  await page.getByLabel("Password").fill(world.given.password);
  await page.keyboard.press("Enter");
  await page.waitForURL(`${world.url}${address}`);
  await page.state("You are watching.");
  await shows(page, "$");
  page.clean();
  await page.context().close();
}

/** A page on which Grace watches the session. */
async function watching(world, address, expected) {
  const page = await open(world, "grace", { expected });
  await page.goto(address);
  await page.state("You are watching.");
  return page;
}

/** Cuts the connections of Grace's pages. */
function cut(world, session) {
  for (const { socket, user } of session.people.values()) {
    if (user === world.given.people.grace) socket?.terminate();
  }
}

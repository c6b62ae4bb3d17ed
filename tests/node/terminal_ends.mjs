// The end of a terminal session by request, and the notices of pages that can no longer type.

import assert from "node:assert/strict";

import { drive, watched } from "./browser.mjs";
import { FakeEngine } from "./fake_engine.mjs";
import { seen } from "./looks.mjs";
import { inTerminal, into, open, press, shows } from "./terminal_page.mjs";

/** Requests for a session, without those for its participants. */
const SESSION = "**/api/webtty/sessions/*";

await drive(async (world) => {
  const engine = new FakeEngine(world);
  await engine.start();
  try {
    await ended(world, engine);
    await notEnded(world, engine);
    await signedOut(world, engine);
    await passing(world, engine);
  } finally {
    engine.stop();
  }
});

/** A page with an open terminal, and one that watches it. */
async function both(world, engine, options) {
  const page = await open(world, "ada", options);
  await page.goto(`/projects/${world.given.project}/terminals/wsv_1`);
  await press(page, "Open a terminal");
  await inTerminal(page);
  await shows(page, "$");
  await page.locator("#people").getByText("You have control").waitFor();
  const [id, session] = [...engine.sessions].at(-1);
  const watching = await open(world, "ada", options);
  await watching.goto(`/projects/${world.given.project}/sessions/${id}`);
  await watching.state("You are watching.");
  return { page, watching, session };
}

/** The page that ends an idle shell reports it at once, and shows no error that says the same. */
async function ended(world, engine) {
  for (const by of ["page", "watching"]) {
    const { session, ...pages } = await both(world, engine, {});
    session.fault = "the session was ended by its owner";
    const page = pages[by];
    let isFree;
    const held = new Promise((free) => (isFree = free));
    await page.route(SESSION, async (route) => {
      if (route.request().method() === "DELETE") await held;
      await route.continue();
    });
    page.on("dialog", (dialog) => dialog.accept());
    // Immediately, and not after the response.
    await page.getByRole("button", { name: "End the session" }).click();
    await page.state("Ending the session …");
    isFree();
    await page.state(by === "page" ? "The session ended." : "The session was ended.");
    assert.ok(await page.getByRole("alert").isHidden());
    assert.ok(await page.getByRole("button", { name: "End the session" }).isHidden());
    for (const page of Object.values(pages)) {
      page.clean();
      await page.context().close();
    }
  }
}

/** A refusal is shown, the terminal goes on, and a later error is shown again. */
async function notEnded(world, engine) {
  for (const by of ["page", "watching"]) {
    const { session, ...pages } = await both(world, engine, { expected: [403] });
    const page = pages[by];
    await page.route(SESSION, async (route) => {
      if (route.request().method() !== "DELETE") return await route.continue();
      const headers = { "access-control-allow-origin": world.url };
      await route.fulfill({ status: 403, headers, json: { detail: "only an owner can end a session" } });
    });
    page.on("dialog", (dialog) => dialog.accept());
    await page.getByRole("button", { name: "End the session" }).click();
    await page.getByRole("alert").filter({ hasText: "only an owner can end a session" }).waitFor();
    await page.state("The session has not ended.");
    session.fault = "the server is broken";
    session.end(1);
    await page.getByRole("alert").filter({ hasText: "the server is broken" }).waitFor();
    for (const page of Object.values(pages)) {
      page.clean();
      await page.context().close();
    }
  }
}

/** The user signs out in another tab. Keys and pasted text are not lost without a notice. */
async function signedOut(world, engine) {
  const { page, watching, session } = await both(world, engine, { expected: [401] });
  await page.keyboard.type("before");
  await shows(page, "$ before");
  const alert = page.getByRole("alert").filter({ hasText: "Your sign-in has ended. Sign in again." });
  const told = await watched(page, "#state", "Your sign-in has ended. The terminal waits");
  for (const one of [page, watching]) await one.context().clearCookies();
  for (const { socket } of session.people.values()) socket?.terminate();
  await told();
  await alert.waitFor();
  const notSent = "What you type is not sent: the connection is lost.";
  const typing = await watched(page, "#state", notSent);
  await into(page);
  await page.keyboard.type("x");
  await typing();
  await page.evaluate(() => (window.said = {}));
  const pasting = await watched(page, "#state", notSent);
  await page.evaluate(() => {
    const clipboardData = new DataTransfer();
    clipboardData.setData("text/plain", "pasted");
    const event = new ClipboardEvent("paste", { clipboardData, bubbles: true, cancelable: true });
    document.activeElement.dispatchEvent(event);
  });
  await pasting();
  assert.equal(session.input, "before");
  await seen(world, page, "signed-out");
  await watching.getByRole("alert").filter({ hasText: "Your sign-in has ended. Sign in again." }).waitFor();
  await into(watching);
  await watching.keyboard.type("x");
  const noConnection = "What you type is not sent: there is no connection.";
  await watching.state(noConnection);
  for (const key of ["Enter", "Backspace"]) {
    await watching.evaluate(() => (document.querySelector("#state").textContent = ""));
    await watching.keyboard.press(key);
    await watching.state(noConnection);
  }

  // The terminal waits until the user has signed in again.
  await page.getByRole("link", { name: "Sign in again" }).click();
  await page.getByLabel("Email").fill("ada@example.com");
  await page.getByLabel("Password").fill(world.given.password);
  await page.keyboard.press("Enter");
  await page.waitForURL(`${world.url}/projects/${world.given.project}/terminals/wsv_1`);
  await page.state("You have control.");
  await shows(page, "$ before");
  session.end(0);
  await page.state("The session ended with 0.");
  for (const one of [page, watching]) {
    one.clean();
    await one.context().close();
  }
}

/** An event is shown for a while. A status stays until it changes. */
async function passing(world, engine) {
  const { page, watching, session } = await both(world, engine, {});
  await watching.clock.install();
  await into(watching);
  await watching.clock.fastForward(60_000);
  await watching.state("You are watching.");
  await watching.keyboard.type("x");
  await watching.state("What you type is not sent: you are watching.");
  await watching.clock.fastForward(21_000);
  await watching.waitForFunction(() => document.querySelector("#state").textContent === "");
  session.end(0);
  for (const one of [page, watching]) {
    await one.state("The session ended with 0.");
    one.clean();
    await one.context().close();
  }
}

// Pages with a terminal, used with the keyboard.

import assert from "node:assert/strict";
import { setTimeout as pause } from "node:timers/promises";

import { PATIENCE } from "./browser.mjs";
import { signIn } from "./looks.mjs";

/**
 * A page of a signed-in user. `access`: the policy of the server, which the platform of this test
 * does not have.
 */
export async function open(world, name, options) {
  // Browsers do not trust the engine's certificate.
  const { access, ...looks } = options;
  const page = await world.open({ ...looks, ignoreHTTPSErrors: true });
  await signIn(world, page, `${name}@example.com`);
  return await known(page, access);
}

/** A page on which the servers of the engine are registered. */
async function known(page, accessPolicy = "project_members") {
  await page.route("**/webtty/servers/*", (route) => route.fulfill({ json: { id: "wsv_1", accessPolicy } }));
  page.state = (text) => state(page, text);
  return page;
}

/** Another page in the same browser. */
export async function beside(world, page, accessPolicy) {
  return await known(await world.beside(page), accessPolicy);
}

/** Waits until the page shows this state. */
export async function state(page, text) {
  await page.getByRole("status").filter({ hasText: text }).waitFor();
}

/** Presses Tab until this element has the focus. */
export async function tabTo(page, locator) {
  await locator.waitFor();
  for (let stop = 0; stop < 60; stop += 1) {
    if (await locator.evaluate((node) => node === document.activeElement)) return;
    await page.keyboard.press("Tab");
  }
  assert.fail(`the keyboard does not reach ${locator}`);
}

export async function press(page, name) {
  await tabTo(page, page.getByRole("button", { name, exact: true }));
  await page.keyboard.press("Enter");
}

/**
 * Clicks a button while the page changes between the press and the release. A click has no effect
 * if the button has moved away, or was replaced.
 */
export async function clickedDuring(page, button, change) {
  await button.hover();
  await page.mouse.down();
  await change();
  await page.mouse.up();
}

/** A button keeps its press while an alert moves it, and loses it to a pointer that leaves. */
export async function keepsItsPress(page, button, effect) {
  await button.hover();
  await page.mouse.down();
  await page.mouse.move(2, 2);
  await page.mouse.up();
  await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => resolve())));
  assert.equal(await effect.count(), 0, "a pointer that left the button has clicked it");
  await clickedDuring(page, button, async () => {
    await page.evaluate(() => {
      const alert = document.createElement("div");
      alert.style.height = "200px";
      document.querySelector("main").prepend(alert);
    });
  });
  await effect.waitFor();
}

/** Lines of the terminal on a page, without empty ones. */
export async function lines(page) {
  return await page.evaluate(() =>
    [...document.querySelectorAll(".xterm-rows > div")]
      .map((row) => row.textContent.replaceAll("\u00a0", " ").trimEnd())
      .filter(Boolean),
  );
}

export async function shows(page, line) {
  const until = Date.now() + PATIENCE;
  while (!(await lines(page)).includes(line)) {
    assert.ok(Date.now() < until, `${line} is not in ${JSON.stringify(await lines(page))}`);
    await pause(50);
  }
}

export async function inTerminal(page) {
  await page.waitForFunction(() => document.activeElement?.matches(".xterm-helper-textarea"));
}

/** Tab to the terminal, and Enter to start typing, unless the page has moved the focus there. */
export async function into(page) {
  if (await page.evaluate(() => document.activeElement?.matches(".xterm-helper-textarea"))) return;
  await tabTo(page, page.locator("#terminal"));
  await page.keyboard.press("Enter");
  await inTerminal(page);
}

/** Types a line into the terminal, whatever has the focus, and leaves it. */
export async function typed(page, line) {
  await page.locator("#terminal").focus();
  await page.keyboard.press("Enter");
  await inTerminal(page);
  await page.keyboard.type(line);
  await page.keyboard.press("Enter");
  await page.keyboard.press("Control+Shift+Enter");
}

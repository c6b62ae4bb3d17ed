// A browser for the tests of pages: Chromium, driven by playwright-core.
//
// A script calls `drive(async (world) => …)`. The world contains the test's values: `url`, `now`
// (milliseconds), `mail` (folder), `shots` (folder), `given`. A page that is opened with
// `world.open()` fails the script on a script error, a console error or a violation of its content
// security policy.

import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync } from "node:fs";
import { setTimeout as pause } from "node:timers/promises";
import { createRequire } from "node:module";
import { join } from "node:path";

// Packages are installed separately from the sources, so modules are resolved from there.
const require = createRequire(`${process.env.SVC_TEST_NODE_PACKAGES}/`);
const { chromium } = require("playwright-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

/** Time limit in milliseconds for expected events, also on a machine with a parallel build. */
export const PATIENCE = 60_000;

/** Runs the script in a browser, and exits the process, with its error if there is one. */
export async function drive(script) {
  const given = JSON.parse(process.env.SVC_TEST_WORLD);
  mkdirSync(given.shots, { recursive: true });
  const browser = await chromium.launch({
    executablePath: process.env.SVC_TEST_CHROMIUM,
    // Test machines often run as root, where the sandbox does not start.
    args: ["--no-sandbox"],
  });
  const world = new World(given, browser);
  try {
    await script(world);
  } catch (error) {
    console.error(error);
    await world.explain();
    process.exitCode = 1;
  } finally {
    await browser.close();
  }
  // Processes and servers of a failed script would keep it running.
  if (process.exitCode) process.exit();
}

/**
 * Runs in each page: records its first paint and its last events of the pointer, with milliseconds
 * since the navigation, so that the report of a failure shows if a click has reached the page.
 */
function recordInput() {
  const events = [];
  globalThis.recordedInput = events;
  const record = (text) => {
    events.push(`${Math.round(performance.now())} ms ${text}`);
    if (events.length > 20) events.shift();
  };
  for (const type of ["pointerdown", "pointerup", "click"]) {
    addEventListener(type, ({ target }) => record(`${type} ${target.id ?? ""} ${target.nodeName}`), true);
  }
  new PerformanceObserver((list) => {
    for (const { name } of list.getEntries()) record(name);
  }).observe({ type: "paint", buffered: true });
}

class World {
  constructor(given, browser) {
    Object.assign(this, given);
    this.browser = browser;
    this.opened = [];
  }

  /**
   * A separate browser without cookies. Options are those of playwright's `newContext`, and
   * `expected`: statuses of expected answers, or texts, which Chromium logs as errors.
   */
  async open({ expected = [], ...options } = {}) {
    const context = await this.browser.newContext({ baseURL: this.url, ...options });
    context.setDefaultTimeout(PATIENCE);
    return await this.#page(context, expected);
  }

  /** Another page in the same browser. */
  async beside(page) {
    return await this.#page(page.context(), []);
  }

  async #page(context, expected) {
    const page = await context.newPage();
    // The only debugger session: when another one ended, virtual authenticators ended with it.
    page.devtools = await context.newCDPSession(page);
    await page.addInitScript(recordInput);
    const faults = [];
    page.on("pageerror", (error) => faults.push(`script error: ${error}`));
    page.on("console", (message) => {
      const texts = expected.map((one) => (typeof one === "number" ? `status of ${one}` : one));
      const isExpected = texts.some((text) => message.text().includes(text));
      if (message.type() === "error" && !isExpected) {
        faults.push(`${page.url()}: ${message.text()}`);
      }
    });
    // Requests without an end, for the report of a failure.
    const open = new Set();
    page.on("request", (request) => open.add(request));
    for (const end of ["requestfinished", "requestfailed"]) page.on(end, (request) => open.delete(request));
    /** No console errors and no policy violations so far. */
    page.clean = () => assert.deepEqual(faults, []);
    this.opened.push({ page, faults, open });
    return page;
  }

  /**
   * The addresses of the pages when the script failed, their console output, their requests without
   * an end, the buttons whose action has not ended, the last input events, and screenshots.
   */
  async explain() {
    for (const [at, { page, faults, open }] of this.opened.entries()) {
      console.error(`page ${at} is at ${page.url()}`, faults);
      for (const request of open) console.error(`without an end: ${request.method()} ${request.url()}`);
      const busy = page.locator("button[aria-disabled=true]");
      console.error("busy buttons:", await busy.allInnerTexts().catch(() => []));
      console.error("input:", await page.evaluate(() => globalThis.recordedInput).catch(() => []));
      const main = page.locator("main").first();
      console.error(await main.innerText({ timeout: 1_000 }).catch(() => "It shows nothing."));
      await this.#picture(page, `failed-${at}`).catch(() => {});
    }
  }

  /** A link in a mail that starts with this path. Waits until the mail has arrived. */
  async link(path) {
    const find = () =>
      readdirSync(this.mail)
        .flatMap((name) => readFileSync(join(this.mail, name), "utf8").split(/\s+/))
        .find((word) => word.startsWith(`${this.url}${path}`));
    let found = find();
    const until = Date.now() + PATIENCE;
    while (!found && Date.now() < until) {
      await pause(50);
      found = find();
    }
    assert.ok(found, `no mail with a link to ${path}`);
    return found;
  }

  /** The code of an authenticator app, `steps` of thirty seconds from now (RFC 6238). */
  code(key, steps = 0) {
    const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
    const bits = [...key.replaceAll(" ", "")]
      .map((letter) => alphabet.indexOf(letter).toString(2).padStart(5, "0"))
      .join("");
    const secret = Buffer.from(bits.match(/.{8}/g).map((byte) => parseInt(byte, 2)));
    const step = Buffer.alloc(8);
    step.writeBigUInt64BE(BigInt(Math.floor(this.now / 30_000) + steps));
    const tag = createHmac("sha1", secret).update(step).digest();
    const at = tag[19] & 15;
    return String((tag.readUInt32BE(at) & 0x7fffffff) % 1_000_000).padStart(6, "0");
  }

  /** A screenshot on request with `SVC_TEST_PICTURES`, because it takes a while. */
  async shoot(page, name) {
    if (process.env.SVC_TEST_PICTURES) await this.#picture(page, name);
  }

  async #picture(page, name) {
    await page.screenshot({ path: join(this.shots, `${name}.png`), fullPage: true });
  }
}

/** Waits until the field with this label has the focus, which pages set when they are shown. */
export async function focused(page, label) {
  const field = await page.getByLabel(label).first().elementHandle();
  await page.waitForFunction((node) => node === document.activeElement, field);
}

/** Sends the form with Enter, and waits for the page of the answer, since the old one may match. */
export async function submitted(page) {
  await page.evaluate(() => (document.documentElement.dataset.before = ""));
  await page.keyboard.press("Enter");
  await page.locator("html:not([data-before]) body").waitFor();
}

/**
 * Starts observing the page, and returns a function that waits until an element has shown this text,
 * if only for a moment. Polling might miss it.
 */
export async function watched(page, selector, text) {
  await page.evaluate(
    ([selector, text]) => {
      const node = document.querySelector(selector);
      const said = (window.said ??= {});
      said[text] = false;
      const look = () => (said[text] ||= node.textContent.includes(text));
      new MutationObserver(look).observe(node, { childList: true, characterData: true, subtree: true });
    },
    [selector, text],
  );
  return () => page.waitForFunction((text) => window.said[text], text);
}

/**
 * Presses a button that copies, and returns the new text of the clipboard, to which the page writes after
 * the click. The page needs the permissions of the clipboard.
 */
export async function copied(page, button) {
  const before = await page.evaluate(() => navigator.clipboard.readText());
  await button.click();
  const changed = async (before) => {
    const text = await navigator.clipboard.readText();
    return text === before ? "" : text;
  };
  return await (await page.waitForFunction(changed, before)).jsonValue();
}

/** Calls the API from the page, with the session of its user. */
export async function send(page, method, path, body) {
  return await page.evaluate(
    async ([method, path, text]) => {
      const headers = text === null ? {} : { "content-type": "application/json" };
      const response = await fetch(path, { method, headers, body: text ?? undefined });
      const answer = await response.text();
      return { status: response.status, data: answer === "" ? {} : JSON.parse(answer) };
    },
    [method, path, body === undefined ? null : JSON.stringify(body)],
  );
}

/** axe-core finds no error on the page. */
export async function accessible(page, name) {
  // Through the debugger, like an extension, because the page's policy allows no added scripts.
  await page.devtools.send("Runtime.evaluate", { expression: axe });
  const { result } = await page.devtools.send("Runtime.evaluate", {
    // A program makes text faint so that it is less visible.
    expression: "axe.run({ exclude: ['.xterm-dim'] }).then((found) => JSON.stringify(found.violations))",
    awaitPromise: true,
    returnByValue: true,
  });
  const found = JSON.parse(result.value).map(
    (violation) => `${violation.id}: ${violation.nodes.map((node) => node.html).join(" | ")}`,
  );
  assert.deepEqual(found, [], `axe on ${name}`);
}

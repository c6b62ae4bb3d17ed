// A browser for the tests of pages: Chromium, driven by playwright-core.
//
// A script calls `drive(async (world) => …)`. The world is what the test gave: `url`, `now`
// (milliseconds), `mail` (folder), `shots` (folder), `given`. Every page that is opened through
// `world.open()` fails the script when a script error, a console error or a breach of its content
// security policy happened on it.

import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync } from "node:fs";
import { setTimeout as pause } from "node:timers/promises";
import { createRequire } from "node:module";
import { join } from "node:path";

// Packages are installed apart from the sources; a module is looked for from where they are.
const require = createRequire(`${process.env.SVC_TEST_NODE_PACKAGES}/`);
const { chromium } = require("playwright-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

/** Milliseconds for what must come: machines that build beside the test are slow, too. */
export const PATIENCE = 60_000;

/** Runs the script in a browser, and ends the process: with its error, if there is one. */
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
}

class World {
  constructor(given, browser) {
    Object.assign(this, given);
    this.browser = browser;
    this.opened = [];
  }

  /**
   * A browser of its own, without cookies. Options are those of playwright's `newContext`; besides
   * `expected`: statuses of answers that are part of the story, which Chromium logs as errors.
   */
  async open({ expected = [], ...options } = {}) {
    const context = await this.browser.newContext({ baseURL: this.url, ...options });
    context.setDefaultTimeout(PATIENCE);
    return await this.#page(context, expected);
  }

  /** Another page of the browser that this one is in. */
  async beside(page) {
    return await this.#page(page.context(), []);
  }

  async #page(context, expected) {
    const page = await context.newPage();
    // The one session of the debugger: when another ended, virtual authenticators ended with it.
    page.devtools = await context.newCDPSession(page);
    const faults = [];
    page.on("pageerror", (error) => faults.push(`script error: ${error}`));
    page.on("console", (message) => {
      const isAnswer = expected.some((status) => message.text().includes(`status of ${status}`));
      if (message.type() === "error" && !isAnswer) {
        faults.push(`${page.url()}: ${message.text()}`);
      }
    });
    /** No errors on the console, no breach of the policy, so far. */
    page.clean = () => assert.deepEqual(faults, []);
    this.opened.push({ page, faults });
    return page;
  }

  /** Where the pages stood when the script failed, what they said, and a picture of each. */
  async explain() {
    for (const [at, { page, faults }] of this.opened.entries()) {
      console.error(`page ${at} is at ${page.url()}`, faults);
      const main = page.locator("main").first();
      console.error(await main.innerText({ timeout: 1_000 }).catch(() => "It shows nothing."));
      await this.#picture(page, `failed-${at}`).catch(() => {});
    }
  }

  /** A link in a mail that begins with this path: waits until the mail is there. */
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

  /** What an authenticator app shows `steps` of thirty seconds from now (RFC 6238). */
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

  /** A picture for people to look at, who ask for it with `SVC_TEST_PICTURES`: it takes a while. */
  async shoot(page, name) {
    if (process.env.SVC_TEST_PICTURES) await this.#picture(page, name);
  }

  async #picture(page, name) {
    await page.screenshot({ path: join(this.shots, `${name}.png`), fullPage: true });
  }
}

/** Waits until the field with this label has the focus, as pages give it when they are shown. */
export async function focused(page, label) {
  const field = await page.getByLabel(label).first().elementHandle();
  await page.waitForFunction((node) => node === document.activeElement, field);
}

/** Sends the form with Enter, and waits for the page that answers: what the one before says is old. */
export async function submitted(page) {
  await page.evaluate(() => (document.documentElement.dataset.before = ""));
  await page.keyboard.press("Enter");
  await page.locator("html:not([data-before]) body").waitFor();
}

/**
 * Begins to watch the page, and gives what waits until an element says this, if only for a moment: a
 * look now and then might miss it.
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

/** axe-core finds nothing on the page. */
export async function accessible(page, name) {
  // Through the debugger, as an extension would: the page's policy allows no script to be added.
  await page.devtools.send("Runtime.evaluate", { expression: axe });
  const { result } = await page.devtools.send("Runtime.evaluate", {
    expression: "axe.run(document).then((found) => JSON.stringify(found.violations))",
    awaitPromise: true,
    returnByValue: true,
  });
  const found = JSON.parse(result.value).map(
    (violation) => `${violation.id}: ${violation.nodes.map((node) => node.html).join(" | ")}`,
  );
  assert.deepEqual(found, [], `axe on ${name}`);
}

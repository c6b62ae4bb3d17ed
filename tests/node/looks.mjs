// Appearance checks of a page: light and dark, on a phone and on a desktop, with the keyboard, and
// with axe-core.

import assert from "node:assert/strict";

import { accessible } from "./browser.mjs";

const SIZES = { phone: { width: 390, height: 844 }, desk: { width: 1280, height: 800 } };

/** Each appearance: its name, and the browser options for it. */
export const LOOKS = ["light", "dark"].flatMap((colorScheme) =>
  Object.entries(SIZES).map(([size, viewport]) => ({
    look: `${colorScheme}-${size}`,
    options: { colorScheme, viewport, expected: [400, 401, 403, 404, 422, 429] },
  })),
);

/** Signs in, and waits for the account page. */
export async function signIn(world, page, email) {
  await page.goto("/login?next=/account");
  await page.getByLabel("Email").fill(email);
  await page.getByLabel("Password").fill(world.given.password);
  await page.keyboard.press("Enter");
  await page.waitForURL(`${world.url}/account`);
}

/**
 * Checks a page: the layout fits, no text covers a control, axe finds no error, and the keyboard
 * reaches every control and shows the focus.
 */
export async function lookAt(world, page, name) {
  await seen(world, page, name);
  await reachable(page, name);
}

/** The same checks except the keyboard, for pages on which keys have another meaning. */
export async function seen(world, page, name) {
  await world.shoot(page, name);
  await accessible(page, name);
  const { wide, inside } = await page.evaluate(() => ({
    wide: document.documentElement.scrollWidth,
    inside: window.innerWidth,
  }));
  assert.ok(wide <= inside, `${name} is ${wide} wide in a window of ${inside}`);
  assert.deepEqual(await overlaps(page), [], `what lies over something to use on ${name}`);
}

/** Text that covers a button, a link or a field to which it does not belong. */
async function overlaps(page) {
  return await page.evaluate(() => {
    const controls = [...document.querySelectorAll("a[href], button, input:not([type=hidden])")];
    const found = [];
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    const range = document.createRange();
    for (let text = texts.nextNode(); text; text = texts.nextNode()) {
      if (!text.data.trim() || !text.parentElement.checkVisibility()) continue;
      range.selectNodeContents(text);
      for (const words of range.getClientRects()) {
        for (const control of controls.filter((one) => !one.contains(text))) {
          // A link that wraps has several boxes, and lines touch.
          const lies = [...control.getClientRects()].some(
            (box) =>
              Math.min(words.bottom, box.bottom) - Math.max(words.top, box.top) > 2 &&
              Math.min(words.right, box.right) - Math.max(words.left, box.left) > 2,
          );
          if (lies && control.checkVisibility()) {
            found.push(`"${text.data.trim().slice(0, 40)}" over ${control.outerHTML.slice(0, 80)}`);
          }
        }
      }
    }
    return [...new Set(found)];
  });
}

async function reachable(page, name) {
  const stops = await page.evaluate(() => {
    const before = document.activeElement;
    const all = [...document.querySelectorAll("a[href], button, input:not([type=hidden])")];
    const seen = all.filter((node) => node.checkVisibility());
    const shown = seen.map((node) => {
      node.focus({ focusVisible: true });
      const { outlineStyle, outlineWidth } = getComputedStyle(node);
      const marked = outlineStyle !== "none" && parseFloat(outlineWidth) >= 2;
      const { height } = node.getBoundingClientRect();
      const order = node.tabIndex === 0;
      return { node: node.outerHTML.slice(0, 80), marked, order, tall: height >= 16 };
    });
    before?.focus();
    return shown;
  });
  for (const stop of stops) {
    assert.deepEqual(stop, { node: stop.node, marked: true, order: true, tall: true }, name);
  }
  // With real key presses: one stop for each control.
  const count = await page.evaluate(() => {
    // The keyboard starts at the top.
    document.body.tabIndex = -1;
    document.body.focus();
    document.body.removeAttribute("tabindex");
    return [...document.querySelectorAll("a[href], button, input:not([type=hidden])")].filter(
      (node) => node.checkVisibility(),
    ).length;
  });
  const before = await page.evaluate(() => document.querySelector("[autofocus]")?.id);
  const visited = [];
  for (let stop = 0; stop < count; stop += 1) {
    await page.keyboard.press("Tab");
    visited.push(await page.evaluate(() => {
      const all = [...document.querySelectorAll("a[href], button, input:not([type=hidden])")];
      return all.filter((node) => node.checkVisibility()).indexOf(document.activeElement);
    }));
  }
  assert.deepEqual(visited, [...Array(count).keys()], `order of the keyboard on ${name}`);
  if (before) await page.evaluate((id) => document.getElementById(id).focus(), before);
}

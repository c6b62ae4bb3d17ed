// Every page that the navigation of the dashboard links to: in light and dark, on a phone and on a
// desktop, with axe-core, without errors of the console, of the content security policy or of
// requests, and without movement for users who prefer that. A tunnel is online, so that the pages have
// content.

import assert from "node:assert/strict";

import { accessible, drive } from "./browser.mjs";
import { signIn } from "./looks.mjs";

const SIZES = { phone: { width: 390, height: 844 }, desk: { width: 1440, height: 900 } };
/** The narrowest and the widest window, of which only the layout is checked. */
const EXTREMES = [320, 3840];
/** Pages of one project, one workspace, the user and the installation. */
const MIN_PAGES = 20;

await drive(async (world) => {
  for (const colorScheme of ["light", "dark"]) {
    for (const [size, viewport] of Object.entries(SIZES)) {
      await everyPage(world, `${colorScheme}-${size}`, { colorScheme, viewport });
    }
  }
  console.log(JSON.stringify({}));
});

async function everyPage(world, look, { viewport, ...options }) {
  // The page of terminals connects to the engine, whose certificate is signed by the development CA.
  const page = await world.open({ ...options, viewport, ignoreHTTPSErrors: true });
  await signIn(world, page, world.given.email);
  await page.goto("/");
  // A user with one project sees the links to its pages everywhere. On a phone they are in a drawer.
  const links = page.locator("nav[aria-label=Pages] a[href]");
  await links.filter({ hasText: "Requests" }).waitFor({ state: "attached" });
  await links.filter({ hasText: "Engines" }).waitFor({ state: "attached" });
  const found = await links.evaluateAll((all) => all.map((link) => link.getAttribute("href")));
  assert.ok(found.length > MIN_PAGES, found.join(" "));
  for (const path of new Set(["/", "/welcome", ...found])) {
    const name = `${path} ${look}`;
    await page.goto(path);
    await page.getByRole("heading", { level: 1 }).first().waitFor();
    await page.waitForFunction(() => !document.querySelector("main .bones"));
    assert.equal(await page.getByRole("alert").count(), 0, `a failure on ${name}`);
    const isWide = await page.evaluate(() => document.documentElement.scrollWidth > innerWidth);
    assert.ok(!isWide, `${name} is wider than the window`);
    await world.shoot(page, name.replaceAll(/[^a-z0-9_-]+/g, "-"));
    await accessible(page, name);
    for (const width of EXTREMES) {
      await page.setViewportSize({ width, height: viewport.height });
      const found = await page.evaluate(() => document.documentElement.scrollWidth);
      assert.ok(found <= width, `${name} is ${found} wide in a window of ${width}`);
    }
    await page.setViewportSize(viewport);
    // Movement does not depend on the colours.
    if (look === "light-phone") await still(page, path, name);
    page.clean();
  }
  await page.close();
}

/** Nothing moves for a user who prefers reduced motion. */
async function still(page, path, name) {
  const moving = async () =>
    await page.evaluate(() => {
      // A thousandth of a second is not seen.
      const lasts = (times) => times.split(", ").some((time) => parseFloat(time) > 0.001);
      const moves = ({ animationName, animationDuration, transitionDuration }) =>
        (animationName !== "none" && lasts(animationDuration)) || lasts(transitionDuration);
      const found = [...document.querySelectorAll("body *")].filter((node) => moves(getComputedStyle(node)));
      return found.map((node) => node.outerHTML.slice(0, 80));
    });
  // Not every page has something that moves.
  if (path === "/") assert.notDeepEqual(await moving(), [], "the check finds nothing that moves");
  await page.emulateMedia({ reducedMotion: "reduce" });
  assert.deepEqual(await moving(), [], `what moves on ${name} in spite of the preference`);
  await page.emulateMedia({ reducedMotion: null });
}

// A user at a published tunnel: sign-in, sign-out and the challenge, in light and dark, on a phone,
// with axe-core, and without scripts.

import assert from "node:assert/strict";

import { accessible, drive } from "./browser.mjs";

const PHONE = { width: 390, height: 844 };
// Test certificates are signed by an authority that browsers do not trust.
const TRUSTING = { ignoreHTTPSErrors: true };

await drive(async (world) => {
  await session(world, world.given.session);
  await challenge(world, world.given.both);
  await looks(world, world.given.both);
  await withoutScripts(world, world.given.both);
  await withoutCookies(world, world.given.both);
});

async function signIn(page, address) {
  await page.getByRole("button", { name: "Sign in as Ann" }).click();
  await page.waitForURL((url) => url.href.startsWith(address) && !url.pathname.includes("well-known"));
}

/** To the platform and back, and signed out again. */
async function session(world, address) {
  const page = await world.open({ ...TRUSTING, expected: [401] });
  await page.goto(`${address}/reports?page=2#end`);
  assert.ok(page.url().includes("/edge/sign-in?"), page.url());
  await signIn(page, address);
  assert.equal(new URL(page.url()).pathname, "/reports");
  assert.equal(new URL(page.url()).search, "?page=2");
  assert.equal(new URL(page.url()).hash, "#end");
  const seen = JSON.parse(await page.locator("body").textContent());
  const field = (name) => seen.headers.filter((pair) => pair[0] === name).map((pair) => pair[1]);
  assert.deepEqual(field("svc-auth-method"), ["session"]);
  assert.deepEqual(field("cookie"), []);

  const route = `${address}/.well-known/svc/session`;
  const told = await page.evaluate((at) => fetch(at).then((reply) => reply.json()), route);
  // The tunnel requests neither the name nor the address.
  assert.deepEqual(told.user, { userId: "usr_ann" });
  const cookies = await page.context().cookies(address);
  const cookie = cookies.find(({ name }) => name === "__Host-svc_auth");
  assert.ok(cookie.secure && cookie.httpOnly && cookie.sameSite === "Lax" && cookie.path === "/");
  assert.ok(!cookies.some(({ name }) => name === "__Host-svc_sign_in"));
  assert.equal(await page.evaluate(() => document.cookie), "", "scripts see none of it");

  await page.goto(`${address}/.well-known/svc/logout`);
  await accessible(page, "sign out");
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByRole("heading", { name: "You are signed out" }).waitFor();
  await accessible(page, "signed out");
  const after = await page.goto(route);
  assert.equal((await after.json()).auth.authenticated, false);
  page.clean();
}

/** The challenge comes first, automatically, then the sign-in, and then the service. */
async function challenge(world, address) {
  const page = await world.open(TRUSTING);
  const query = `?${"x".repeat(5000)}`;
  await page.goto(`${address}/deep${query}#end`);
  await page.waitForURL(/\/edge\/sign-in\?/);
  await signIn(page, address);
  assert.equal(new URL(page.url()).pathname, "/deep");
  assert.equal(new URL(page.url()).search, query);
  assert.equal(new URL(page.url()).hash, "#end");
  const names = (await page.context().cookies(address)).map(({ name }) => name).sort();
  assert.deepEqual(names, ["__Host-svc_auth", "__Host-svc_challenge"]);
  // No second sign-in.
  await page.goto(`${address}/other`);
  assert.equal(new URL(page.url()).pathname, "/other");
  page.clean();
}

/** The page during the computation, which takes only a moment: its answer is delayed. */
async function looks(world, address) {
  for (const colorScheme of ["light", "dark"]) {
    const page = await world.open({ ...TRUSTING, colorScheme, viewport: PHONE, expected: [403] });
    let release;
    const held = new Promise((resolve) => (release = resolve));
    await page.route("**/challenge?puzzle=*", async (route) => {
      await held;
      await route.fulfill({ status: 403, body: "" });
    });
    await page.goto(`${address}/`);
    await page.getByRole("status").filter({ hasText: "Checking your browser" }).waitFor();
    await accessible(page, `challenge, ${colorScheme}`);
    await world.shoot(page, `challenge-${colorScheme}`);
    const width = await page.evaluate(() => document.documentElement.scrollWidth);
    assert.ok(width <= PHONE.width, `${width} pixels wide`);
    release();
    await page.getByRole("status").filter({ hasText: "did not work" }).waitFor();
    await page.getByRole("link", { name: "Try again" }).waitFor();
    await accessible(page, `challenge that failed, ${colorScheme}`);
    page.clean();
  }
}

async function withoutScripts(world, address) {
  const page = await world.open({ ...TRUSTING, javaScriptEnabled: false });
  await page.goto(`${address}/`);
  await page.getByText("This page needs JavaScript").waitFor();
}

/** No redirect loop. */
async function withoutCookies(world, address) {
  const page = await world.open(TRUSTING);
  await page.addInitScript(() => {
    Object.defineProperty(Navigator.prototype, "cookieEnabled", { get: () => false });
  });
  await page.goto(`${address}/`);
  await page.getByRole("status").filter({ hasText: "Cookies are disabled" }).waitFor();
  page.clean();
}

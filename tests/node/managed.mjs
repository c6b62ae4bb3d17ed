// A user at the tunnels of `svc up`: signs in with the administrator's mail address and password,
// signs out, and solves a challenge. It prints its observations for the test.

import assert from "node:assert/strict";

import { drive } from "./browser.mjs";
import { signIn } from "./person.mjs";

// Browsers do not trust the development CA.
const TRUSTING = { ignoreHTTPSErrors: true };

await drive(async (world) => {
  const { given } = world;
  const session = await throughTheSignIn(world, given.session);
  await inManyTabs(world, given.tabs);
  await withAnotherAccount(world, given.tabs);
  const challenge = await throughTheChallenge(world, given.challenge);
  console.log(JSON.stringify({ session, challenge }));
});

/** Sign-in, sign-out, and the refusal. */
async function throughTheSignIn(world, address) {
  const page = await world.open({ ...TRUSTING, expected: [401] });
  await page.goto(`${address}/reports?page=2#section-4`);
  assert.ok(page.url().startsWith(`${world.url}/login?`), page.url());
  // A wrong password does not lose the address.
  await signIn(page, { ...world.given, password: "wrong" });
  await page.getByRole("alert").waitFor();
  await signIn(page, world.given);
  await page.waitForURL(`${address}/reports?page=2#section-4`);
  const seen = await page.locator("body").textContent();

  await page.goto(`${address}/.well-known/svc/logout`);
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByRole("heading", { name: "You are signed out" }).waitFor();
  // From a page of the edge that allows a script request: the answer for programs, not the next
  // sign-in.
  await page.goto(`${address}/.well-known/svc/session`);
  const refused = await page.evaluate(async (at) => {
    const answer = await fetch(at);
    return { status: answer.status, reference: answer.headers.get("svc-reference") };
  }, `${address}/again`);
  page.clean();
  return { seen, refused };
}

/** Tabs that a browser restores at once. The user is signed in at the platform. */
async function inManyTabs(world, address) {
  const page = await world.open(TRUSTING);
  await page.goto(`${world.url}/login?next=/account`);
  await signIn(page, world.given);
  await page.waitForURL(`${world.url}/account`);
  const query = "q".repeat(3000);
  const targets = Array.from({ length: 10 }, (_, n) => `${address}/tab-${n}?${query}#at-${n}`);
  const open = async (target) => {
    const tab = await page.context().newPage();
    await tab.goto(target);
    assert.equal(tab.url(), target);
    const [path] = target.slice(address.length).split("#");
    const seen = await tab.locator("body").textContent();
    assert.ok(seen.startsWith(`GET ${path} HTTP/1.1`), seen);
    await tab.close();
  };
  await Promise.all(targets.map(open));
  page.clean();
}

/** A viewer of the workspace sees whom to ask, and continues at the same address as another user. */
async function withAnotherAccount(world, address) {
  const { given } = world;
  const invited = await fetch(`${world.url}/api/workspaces/${given.workspace}/invitations`, {
    method: "POST",
    headers: { authorization: `Bearer ${given.token}`, "content-type": "application/json" },
    body: JSON.stringify({ email: "viewer@example.com", role: "viewer" }),
  });
  assert.ok(invited.ok, await invited.clone().text());
  const page = await world.open({ ...TRUSTING, expected: [403] });
  await page.goto((await invited.json()).url);
  await page.getByLabel("Name").fill("Viewer");
  await page.getByLabel("Password").first().fill("a password that nobody guesses");
  await page.keyboard.press("Enter");
  await page.waitForURL((at) => !at.pathname.startsWith("/invitations/"));

  const target = `${address}/shared?page=3#part`;
  await page.goto(target);
  await page.getByRole("heading", { name: "You cannot open this" }).waitFor();
  const text = await page.locator("main").textContent();
  const { host } = new URL(address);
  for (const part of [`${given.email} can give you access.`, "viewer@example.com", host]) {
    assert.ok(text.includes(part), `no ${part} in ${text}`);
  }
  await page.getByRole("button", { name: "Use another account" }).click();
  await page.getByText(`You are going to ${host}.`).waitFor();
  await signIn(page, given);
  await page.waitForURL(target);
  page.clean();
}

/** The page solves the challenge automatically, and the service follows. */
async function throughTheChallenge(world, address) {
  const page = await world.open(TRUSTING);
  await page.goto(`${address}/deep?x=1`);
  await page.waitForURL(`${address}/deep?x=1`);
  const seen = await page.locator("body").textContent();
  page.clean();
  return { seen };
}

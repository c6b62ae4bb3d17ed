// Colleagues of the owner: invited to the workspace, each in a separate browser.

import assert from "node:assert/strict";

import { send } from "./browser.mjs";

const PASSWORD = "a password that nobody guesses";

/** The owner invites someone, who joins with the page. */
export async function join(world, owner, page, { name, email, role }) {
  const path = `/api/workspaces/${world.given.workspace}/invitations`;
  const invited = await send(owner, "POST", path, { email, role });
  assert.ok(invited.data.url, JSON.stringify(invited));
  await page.goto(invited.data.url);
  await page.getByLabel("Name").fill(name);
  await page.getByLabel("Password").first().fill(PASSWORD);
  await page.keyboard.press("Enter");
  await page.waitForURL(`${world.url}/welcome`);
}

/** The owner gives another role. */
export async function giveRole(world, owner, page, role) {
  const user = await send(page, "GET", "/api/user");
  const path = `/api/workspaces/${world.given.workspace}/members/${user.data.id}`;
  const changed = await send(owner, "PATCH", path, { role });
  assert.equal(changed.status, 200, JSON.stringify(changed));
}

/**
 * Between `hold` and `pass` the page does not receive roles, so that it still offers what a lost role
 * allowed. `end` comes before the page is closed.
 */
export async function heldRoles(page) {
  let gate = Promise.resolve();
  let pass = () => {};
  await page.route("**/api/workspaces", async (route) => {
    const response = await route.fetch();
    await gate;
    await route.fulfill({ response });
  });
  return {
    hold: () => {
      ({ promise: gate, resolve: pass } = Promise.withResolvers());
    },
    pass: () => pass(),
    end: async () => await page.unrouteAll({ behavior: "ignoreErrors" }),
  };
}

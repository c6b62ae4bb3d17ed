// TURN credentials in the settings of a project: an owner makes one, copies its parts, and two peers meet
// through the relay with them. The page shows them once. A colleague who loses the role is refused.

import assert from "node:assert/strict";

import { accessible, copied, drive, send } from "./browser.mjs";
import { giveRole, heldRoles, join } from "./colleagues.mjs";
import { signIn } from "./looks.mjs";
import { meet } from "./relayed_peers.mjs";

const COLLEAGUE = { name: "Colleague", email: "colleague@example.com", role: "member" };

await drive(async (world) => {
  const permissions = ["clipboard-read", "clipboard-write"];
  const page = await world.open({ viewport: { width: 1440, height: 900 }, permissions });
  await signIn(world, page, world.given.email);
  await page.goto(`/projects/${world.given.project}/settings`);
  const parts = await made(world, page);
  await relayed(page, parts);
  await shownOnce(page, parts);
  await refused(world, page);
  page.clean();
  console.log(JSON.stringify({}));
});

function create(page) {
  return page.getByRole("button", { name: "Create a credential" });
}

/** The dialog shows the addresses of the relay of `svc up`, and copies the name and the password. */
async function made({ given }, page) {
  await create(page).focus();
  await page.keyboard.press("Enter");
  const dialog = page.getByRole("dialog", { name: "TURN credential" });
  await dialog.getByText("It is valid for 600 seconds and is shown only now.").waitFor();
  await accessible(page, "a TURN credential");
  const urls = await dialog.getByRole("definition").locator("code").allInnerTexts();
  assert.deepEqual(urls, given.turn_urls);
  const username = await copied(page, dialog.getByRole("button", { name: "Copy the user name" }));
  await dialog.getByText(username, { exact: true }).waitFor();
  const credential = await copied(page, dialog.getByRole("button", { name: "Copy the password" }));
  await dialog.getByText("•••").waitFor();
  assert.ok(!(await dialog.innerText()).includes(credential), "the password is still shown after it was copied");
  return { urls, username, credential };
}

/** Not over TLS, because the certificate of the relay is signed by the development CA. */
async function relayed(page, parts) {
  const urls = parts.urls.filter((url) => url.startsWith("turn:"));
  assert.equal(urls.length, 2, parts.urls.join(" "));
  for (const url of urls) {
    const result = await page.evaluate(meet, { ...parts, urls: [url] });
    assert.deepEqual(result, { kinds: ["relay"], text: "good day to you" }, url);
  }
}

/** After the dialog, and after a reload, nothing shows the credential any more. */
async function shownOnce(page, { username, credential }) {
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "detached" });
  await create(page).and(page.locator(":focus")).waitFor();
  await gone(page, username, credential);
  await page.reload();
  await create(page).waitFor();
  assert.equal(await page.getByRole("dialog").count(), 0, "a reload shows it again");
  await gone(page, username, credential);
}

async function gone(page, ...secrets) {
  const document = await page.content();
  for (const secret of secrets) assert.ok(!document.includes(secret), "the page still has the credential");
}

/** A member makes credentials, too. A viewer is refused with the next step, and then not offered any. */
async function refused(world, owner) {
  const page = await world.open({ expected: [403] });
  await join(world, owner, page, COLLEAGUE);
  const roles = await heldRoles(page);
  await page.goto(`/projects/${world.given.project}/settings`);
  await page.getByText("Your role here is member.").waitFor();
  await create(page).click();
  const dialog = page.getByRole("dialog", { name: "TURN credential" });
  await dialog.waitFor();
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "detached" });

  roles.hold();
  await giveRole(world, owner, page, "viewer");
  await create(page).click();
  const refusal = page.getByRole("alert").filter({ hasText: "Your role does not allow this" });
  await refusal.getByText("An owner or admin of the workspace can change the role.").waitFor();
  assert.equal(await dialog.count(), 0, "a viewer got a credential");
  await accessible(page, "a TURN credential that is refused");
  roles.pass();
  await page.getByText("Your role here is viewer.").waitFor();
  await create(page).waitFor({ state: "detached" });
  const path = `/api/projects/tunnels/${world.given.project}/turn-server/credentials`;
  const forced = await send(page, "POST", path, {});
  assert.deepEqual([forced.status, forced.data.code], [403, "insufficient_scope"]);
  page.clean();
  await roles.end();
  await page.close();
}

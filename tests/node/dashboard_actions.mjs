// The main actions of pages of the dashboard, as an owner: sharing and closing a tunnel, the command
// palette, a credential with a boundary, the audit log with its filters and exports, an invitation, a
// workspace, a recorded session of a terminal, settings of the project, and its plan. Then a viewer of
// the same project.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";

import { accessible, drive } from "./browser.mjs";
import { plan, settings } from "./dashboard_settings.mjs";
import { viewer } from "./dashboard_viewer.mjs";
import { signIn } from "./looks.mjs";
import { keepsItsPress } from "./terminal_page.mjs";

await drive(async (world) => {
  const page = await world.open({ viewport: { width: 1440, height: 900 } });
  await signIn(world, page, world.given.email);
  await tunnels(world, page);
  await filters(world, page);
  await unknown(world, page);
  await palette(world, page);
  await credential(page);
  await members(world, page);
  await workspaces(world, page);
  await audit(world, page);
  await recordings(world, page);
  await settings(world, page);
  await plan(world, page);
  await viewer(world, page);
  page.clean();
  console.log(JSON.stringify({}));
});

/** The list shares a tunnel with the keyboard, and asks before it closes one. The dialogs have addresses. */
async function tunnels(world, page) {
  await page.goto(`/projects/${world.given.project}/tunnels`);
  await page.getByRole("button", { name: "Share shop" }).focus();
  await page.keyboard.press("Enter");
  const share = page.getByRole("dialog", { name: "Share shop" });
  await share.getByRole("img", { name: /^QR code of https:/ }).waitFor();
  await accessible(page, "sharing a tunnel");
  await page.reload();
  await share.getByRole("button", { name: "Copy the address" }).waitFor();
  await page.keyboard.press("Escape");
  await share.waitFor({ state: "detached" });
  const close = page.getByRole("dialog", { name: "Close shop" });
  await keepsItsPress(page, page.getByRole("button", { name: "Close shop" }), close);
  await close.getByRole("button", { name: "Close the tunnel" }).waitFor();
  await page.keyboard.press("Escape");
  await close.waitFor({ state: "detached" });
  await page.getByRole("link").filter({ hasText: "shop" }).first().click();
  await page.getByRole("link", { name: "Access", exact: true }).click();
  await page.getByRole("region", { name: "Rules" }).waitFor();
  await accessible(page, "the access rules of a tunnel");
  page.clean();
}

/** Filters are in the address: Back and a reload keep them, and one button removes them. */
async function filters({ given }, page) {
  await page.goto(`/projects/${given.project}/tunnels`);
  const label = page.getByLabel("Label, as name or name=value");
  const protocol = page.getByLabel("Protocol", { exact: true });
  const one = page.getByRole("region", { name: "1 tunnels" }).getByRole("link").filter({ hasText: "shop" });
  const nothing = page.getByRole("heading", { name: "Nothing matches" });
  await label.fill("team=web");
  await one.waitFor();
  await protocol.selectOption("tcp");
  await nothing.waitFor();
  await accessible(page, "filters that no tunnel matches");
  await page.reload();
  await nothing.waitFor();
  assert.deepEqual([await label.inputValue(), await protocol.inputValue()], ["team=web", "tcp"]);
  await page.goBack();
  await one.waitFor();
  assert.deepEqual([await label.inputValue(), await protocol.inputValue()], ["team=web", ""]);
  await label.fill("team=none");
  await nothing.waitFor();
  await page.getByRole("button", { name: "Show all tunnels" }).click();
  await page.getByRole("region", { name: /^\d+ tunnels$/ }).getByRole("link").filter({ hasText: "shop" }).waitFor();
  assert.equal(new URL(page.url()).search, "");
  page.clean();
}

/** Addresses without a page report it, and have a link to the projects. */
async function unknown({ given }, page) {
  for (const path of [`/projects/${given.project}/nothing`, "/workspaces/a/b/c", "/installation/nothing"]) {
    await page.goto(path);
    await page.getByRole("heading", { level: 1, name: "Nothing is here" }).waitFor();
    await page.getByRole("main").getByRole("link", { name: "Your projects" }).waitFor();
    await accessible(page, `the unknown address ${path}`);
  }
  page.clean();
}

/** The palette leads to a tunnel and to an action, with the keyboard alone. */
async function palette(world, page) {
  await page.goto("/projects");
  await page.getByRole("heading", { level: 1, name: "Projects" }).waitFor();
  await page.keyboard.press("Control+k");
  const search = page.getByRole("combobox", { name: "Search pages, tunnels and actions" });
  await search.fill("share shop");
  await page.getByRole("option", { name: /^Share shop/ }).waitFor();
  await accessible(page, "the command palette");
  await page.keyboard.press("Enter");
  await page.getByRole("dialog", { name: "Share shop" }).waitFor();
  await page.keyboard.press("Escape");
  await page.keyboard.press("Control+k");
  await search.fill("add a domain");
  await page.keyboard.press("Enter");
  await page.waitForURL(`${world.url}/projects/${world.given.project}/domains?new=1`);
  await page.getByRole("dialog", { name: "Add a domain" }).waitFor();
  page.clean();
}

/** A credential whose boundary is built, then edited as JSON, rotated and revoked. */
async function credential(page) {
  await page.goto("/credentials?new=1");
  const form = page.getByRole("dialog", { name: "New credential" });
  // The form loads after the dialog has opened.
  await form.getByLabel("Name", { exact: true }).and(page.locator(":focus")).waitFor();
  await page.keyboard.type("robot");
  await form.getByLabel("Only these tunnels").pressSequentially("shop, blog");
  await form.getByText("the tunnels shop, blog").waitFor();
  await form.getByRole("button", { name: "Edit as JSON" }).click();
  const json = form.getByLabel("Boundary as JSON");
  const built = JSON.parse(await json.inputValue());
  assert.deepEqual(built.tunnels.scopes.tunnels.list, { filters: { name: { oneof: ["shop", "blog"] } } });
  await json.fill("{");
  await form.getByText("This is not JSON").waitFor();
  await accessible(page, "a boundary that is not JSON");
  await json.fill(JSON.stringify({ tunnels: { scopes: { tunnels: { create: true, list: true } } } }));
  await form.getByRole("button", { name: "Issue" }).click();
  const secret = page.getByRole("dialog", { name: "Your token" });
  await secret.getByRole("button", { name: "Done" }).click();
  const row = page.getByRole("row").filter({ hasText: "robot" });
  await row.getByText("bounded").waitFor();
  await row.getByRole("button", { name: "Details" }).click();
  const details = page.getByRole("dialog", { name: "robot" });
  await details.getByRole("button", { name: "Rotate" }).click();
  await page.getByRole("dialog", { name: "Rotate robot" }).getByRole("button", { name: "Rotate" }).click();
  await secret.getByRole("button", { name: "Done" }).click();
  await row.first().getByRole("button", { name: "Details" }).click();
  await details.getByRole("button", { name: "Revoke" }).click();
  const confirm = page.getByRole("dialog", { name: "Revoke robot" });
  await confirm.getByLabel("Also revoke every credential that it issued").check();
  await accessible(page, "revoking a credential");
  await confirm.getByRole("button", { name: "Revoke all" }).click();
  await page.getByText("robot is revoked.").waitFor();
  page.clean();
}

/** An invitation, whose link is shown once. */
async function members(world, page) {
  await page.goto(`/workspaces/${world.given.workspace}/members?new=1`);
  const form = page.getByRole("dialog", { name: "Invite a member" });
  await form.getByLabel("Mail address").fill("grace@example.com");
  await form.getByRole("button", { name: "Invite" }).click();
  const sent = page.getByRole("dialog", { name: "The invitation is sent" });
  await sent.getByText(`${world.url}/invitations/`).waitFor();
  await sent.getByRole("button", { name: "Done" }).click();
  await page.getByText("grace@example.com").waitFor();
  page.clean();
}

async function workspaces(world, page) {
  await page.goto("/workspaces?new=1");
  const form = page.getByRole("dialog", { name: "New workspace" });
  await form.getByLabel("Name").fill("crew");
  await form.getByRole("button", { name: "Create" }).click();
  await page.waitForURL(/\/workspaces\/wks_/);
  await page.getByRole("heading", { level: 1, name: "crew" }).waitFor();
  page.clean();
}

/** Filters are in the address and hold for the exports, which have names. */
async function audit(world, page) {
  await page.goto(`/workspaces/${world.given.workspace}/audit`);
  const entry = page.getByRole("listitem").filter({ hasText: "Invitation sent" });
  await entry.waitFor();
  await page.getByLabel("Action", { exact: true }).selectOption("invitation.sent");
  await page.waitForURL(/[?&]action=invitation.sent/);
  await page.getByText("1 entries match.").waitFor();
  await accessible(page, "a filtered audit log");
  const shown = page.getByRole("main").getByRole("listitem");
  assert.equal(await shown.count(), 1);
  const [csv] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "Export as CSV" }).click()]);
  const lines = readFileSync(await csv.path(), "utf8").trim().split("\r\n");
  assert.equal(lines.length, 2, lines.join("\n"));
  assert.match(lines[1], /,invitation\.sent,/);
  const [json] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "Export as JSON" }).click()]);
  const [exported] = JSON.parse(readFileSync(await json.path(), "utf8"));
  assert.equal(exported.action, "invitation.sent");
  assert.notEqual(exported.actorName, exported.actorUserId, "the actor has no name");
  await page.reload();
  await page.getByText("1 entries match.").waitFor();
  await page.getByLabel("To", { exact: true }).fill("2000-01-01");
  await page.getByRole("heading", { name: "Nothing matches" }).waitFor();
  await page.getByRole("button", { name: "Show all" }).click();
  await entry.waitFor();
  assert.equal(new URL(page.url()).search, "");
  page.clean();
}

/** A session of a terminal that has ended: its facts, the check of its recording, and the search in it. */
async function recordings(world, page) {
  await page.goto(`/projects/${world.given.project}/recordings`);
  const row = page.getByRole("row").filter({ hasText: "build" });
  await row.getByText("ended with 0").waitFor();
  await row.getByRole("link", { name: "Replay" }).waitFor();
  await row.getByRole("button", { name: /^Details/ }).click();
  const details = page.getByRole("dialog", { name: "Session" });
  await details.getByRole("button", { name: "Verify" }).click();
  await details.getByText("The recording is unchanged").waitFor();
  await accessible(page, "a session of a terminal");
  const [text] = await Promise.all([page.waitForEvent("download"), details.getByRole("link", { name: "Export: Text" }).click()]);
  assert.match(readFileSync(await text.path(), "utf8"), /needle-42/);
  await page.keyboard.press("Escape");
  await details.waitFor({ state: "detached" });
  await page.getByRole("link", { name: "Search recordings" }).click();
  await page.getByLabel("Text in the output").fill("NEEDLE-4");
  await page.keyboard.press("Enter");
  await page.locator("main pre").filter({ hasText: "needle-42" }).waitFor();
  await accessible(page, "lines of recordings");
  await page.reload();
  await page.locator("main pre").filter({ hasText: "needle-42" }).waitFor();
  page.clean();
}

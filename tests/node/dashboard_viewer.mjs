// A viewer in the dashboard: every page is shown, none of the actions that the role does not allow is
// offered, and a forced one is refused. The owner finds each of these actions on the same pages, so
// that a renamed button does not go unnoticed.

import assert from "node:assert/strict";

import { accessible, send } from "./browser.mjs";
import { join } from "./colleagues.mjs";

const VIEWER = { name: "Onlooker", email: "onlooker@example.com", role: "viewer" };

export async function viewer(world, owner) {
  const objects = await prepare(world, owner);
  // The forced calls are refused.
  const page = await world.open({ viewport: { width: 1440, height: 900 }, expected: [403] });
  await join(world, owner, page, VIEWER);
  const pages = pagesOf(world, objects);
  const settings = `/projects/${world.given.project}/settings`;
  await owner.goto(settings);
  for (const one of pages) await owned(owner, one);
  await page.goto(settings);
  // Later pages have the role already, because the document is not loaded again.
  await page.getByText("Your role here is viewer").waitFor();
  for (const one of pages) await viewed(page, one);
  await commands(page);
  await forced(world, page, objects);
  page.clean();
  await page.close();
}

/** Objects whose pages have actions: a domain, a reserved port and a webhook. */
async function prepare({ given }, owner) {
  const at = `/api/projects/tunnels/${given.project}`;
  const domain = await send(owner, "POST", `${at}/domains`, { hostname: "app.example.com" });
  assert.equal(domain.status, 201, JSON.stringify(domain));
  const address = await send(owner, "POST", `${at}/addresses`, {});
  assert.equal(address.status, 201, JSON.stringify(address));
  const values = { name: "door bell", config: { url: "https://example.com/in" }, events: ["domain.suspended"] };
  const webhook = await send(owner, "POST", `${at}/webhooks`, values);
  assert.equal(webhook.status, 201, JSON.stringify(webhook));
  return { domain: domain.data.id, address: address.data, webhook: webhook.data.id };
}

/**
 * Pages with links to them on the page before. `content` is there when the page is complete; `offers`
 * are the actions that a viewer does not have. `inside` is a dialog or a part that opens on the page.
 */
function pagesOf({ given }, { address, webhook }) {
  const base = `/projects/${given.project}`;
  const at = `/workspaces/${given.workspace}`;
  const heading = (name) => (page) => page.getByRole("heading", { name });
  const buttons = (...names) => names.map((name) => ["button", name]);
  const publish = [["link", "Publish something"]];
  const tunnel = {
    open: (page) => page.getByRole("link").filter({ hasText: "shop" }).first().click(),
    content: (page) => page.getByRole("heading", { level: 1, name: "shop" }),
    offers: buttons("Close…"),
  };
  const session = {
    open: (page) => page.getByRole("button", { name: /^Details of the session/ }).first().click(),
    content: (page) => page.getByRole("dialog", { name: "Session" }).getByText("Started", { exact: true }),
    offers: [...buttons("Verify", "Delete the recording"), ["link", "Export: Text"]],
    isDialog: true,
  };
  return [
    { path: base, content: heading("About this project"), offers: publish },
    { path: `${base}/tunnels`, content: (page) => page.getByRole("region", { name: /^\d+ tunnels$/ }), offers: [...publish, ["button", "Close shop"]], inside: tunnel },
    { path: `${base}/clients`, content: (page) => page.getByRole("region", { name: /^\d+ clients$/ }), offers: [] },
    { path: `${base}/requests`, content: heading("Requests"), offers: [] },
    { path: `${base}/events`, content: heading("Events"), offers: [] },
    {
      path: `${base}/domains`,
      content: heading("app.example.com"),
      offers: buttons("Add a domain", "Check the records now", "Can my provider enter them?", "Remove"),
    },
    { path: `${base}/webhooks`, content: (page) => page.getByRole("link", { name: "door bell" }), offers: buttons("New webhook") },
    {
      path: `${base}/webhooks/${webhook}`,
      content: heading("door bell"),
      offers: buttons("Edit", "Disable", "Rotate the secret", "Delete"),
    },
    {
      path: `${base}/recordings`,
      content: (page) => page.getByRole("row").filter({ hasText: "build" }),
      offers: [["link", "Search recordings"], ["link", "Replay"]],
      inside: session,
    },
    {
      path: `${base}/servers`,
      // The page before has a row with this text, too.
      content: (page) => page.getByRole("table").filter({ hasText: "Enrolled" }).getByRole("row").filter({ hasText: "build" }),
      offers: buttons("Register a server", "Edit", "Delete"),
    },
    { path: `${base}/usage`, content: heading("Plan"), offers: buttons("Change the plan") },
    {
      path: `${base}/settings`,
      content: (page) => page.getByRole("button", { name: `Copy ${address.domain}:${address.port}` }),
      offers: [
        ["heading", "Visitors"],
        ...buttons("Rename", "Save", "Reset all", "Reserve a port", `Release port ${address.port}`, "Create a credential", "Delete the project"),
      ],
    },
    { path: at, content: (page) => page.getByText("Your role", { exact: true }), offers: [["link", "New project"]] },
    {
      path: `${at}/members`,
      content: (page) => page.getByRole("row").filter({ hasText: VIEWER.email }),
      offers: [...buttons("Invite", "Suspend", "Remove", "Revoke"), ["combobox", `Role of ${VIEWER.name}`]],
    },
    { path: `${at}/billing`, content: heading("Invoices"), offers: [] },
    // A viewer has the own actions there, and not those of the workspace.
    { path: `${at}/audit`, content: heading("Audit log"), offers: [["link", "Workspace"]] },
    {
      path: `${at}/settings`,
      content: (page) => page.getByText("are settings of each project"),
      offers: buttons("Rename"),
    },
  ];
}

/** Follows the link to the page, and waits until its content is there. */
async function open(page, { path, content }) {
  await page.locator(`a[href="${path}"]`).first().click();
  await page.waitForURL((address) => address.pathname === path);
  await content(page).first().waitFor();
  await page.waitForFunction(() => !document.querySelector("main .bones"));
}

async function opened(page, { open, content }) {
  await open(page);
  await content(page).first().waitFor();
}

async function closed(page, { isDialog, content }) {
  if (!isDialog) return;
  await page.keyboard.press("Escape");
  await content(page).first().waitFor({ state: "detached" });
}

async function owned(page, one) {
  await open(page, one);
  await offered(page, one.offers);
  if (one.inside === undefined) return;
  await opened(page, one.inside);
  await offered(page, one.inside.offers);
  await closed(page, one.inside);
}

async function offered(page, offers) {
  for (const [role, name] of offers) await page.getByRole(role, { name, exact: true }).first().waitFor();
}

async function viewed(page, one) {
  await open(page, one);
  await notOffered(page, one);
  if (one.inside === undefined) return;
  await opened(page, one.inside);
  await notOffered(page, { ...one.inside, path: `a part of ${one.path}` });
  await closed(page, one.inside);
}

async function notOffered(page, { path, offers }) {
  assert.equal(await page.getByRole("alert").count(), 0, `a failure on ${path}`);
  for (const [role, name] of offers) {
    assert.equal(await page.getByRole(role, { name, exact: true }).count(), 0, `${path} offers ${name}`);
  }
  await accessible(page, `${path} of a viewer`);
}

/** The palette finds the page of domains, and not the action on it. */
async function commands(page) {
  await page.keyboard.press("Control+k");
  await page.getByRole("combobox", { name: "Search pages, tunnels and actions" }).fill("domain");
  await page.getByRole("option", { name: /^Domains/ }).waitFor();
  assert.equal(await page.getByRole("option", { name: /^Add a domain/ }).count(), 0, "the palette offers an action");
  await page.keyboard.press("Escape");
}

/** Calls of the API that the pages do not offer. */
async function forced({ given }, page, { domain, address, webhook }) {
  const project = `/api/projects/tunnels/${given.project}`;
  const workspace = `/api/workspaces/${given.workspace}`;
  const user = await send(page, "GET", "/api/user");
  assert.equal(user.data.email, VIEWER.email, JSON.stringify(user));
  const engine = `/engine/${given.project}/api/webtty/sessions`;
  const sessions = await send(page, "GET", engine);
  assert.equal(sessions.status, 200, JSON.stringify(sessions));
  const tunnels = await send(page, "GET", `/engine/${given.project}/api/tunnels`);
  assert.equal(tunnels.status, 200, JSON.stringify(tunnels));
  const calls = [
    ["DELETE", `/engine/${given.project}/api/tunnels/${tunnels.data[0].id}`],
    ["GET", `${workspace}/audit`],
    ["PATCH", project, { name: "taken over" }],
    ["DELETE", project],
    ["PATCH", `${project}/settings`, { publishedTcpEnabled: false }],
    ["DELETE", `${project}/settings`],
    ["POST", `${project}/domains`, { hostname: "other.example.com" }],
    ["DELETE", `${project}/domains/${domain}`],
    ["DELETE", `${project}/webhooks/${webhook}`],
    ["POST", `${project}/addresses`, {}],
    ["DELETE", `${project}/addresses/${address.id}`],
    ["POST", `${project}/turn-server/credentials`, {}],
    ["PATCH", workspace, { name: "taken over" }],
    ["POST", `${workspace}/invitations`, { email: "eve@example.com", role: "viewer" }],
    ["PATCH", `${workspace}/members/${user.data.id}`, { role: "admin" }],
    ["DELETE", `${engine}/${sessions.data[0].id}/recording`],
  ];
  for (const [method, path, body] of calls) {
    const { status, data } = await send(page, method, path, body);
    assert.deepEqual([status, data.code], [403, "insufficient_scope"], `${method} ${path}`);
  }
}

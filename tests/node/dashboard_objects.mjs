// Objects that an owner makes, changes and removes on their pages: a project, a domain, a webhook with its
// deliveries, a terminal server, the name of a workspace. Then an operator: users with their role,
// suspensions, and the takedown of an address.

import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";

import { startAgent, statusOf } from "./agents.mjs";
import { accessible, drive, PATIENCE, send } from "./browser.mjs";
import { join } from "./colleagues.mjs";
import { signIn } from "./looks.mjs";

const COLLEAGUE = { name: "Colleague", email: "colleague@example.com", role: "viewer" };

await drive(async (world) => {
  const service = createServer((_, response) => response.end("hello"));
  await once(service.listen(0, "127.0.0.1"), "listening");
  const agents = [];
  const start = async (name) => {
    const { engine_url: engine, token } = world.given;
    const args = ["forward", String(service.address().port), "--name", name, "--engine", engine, "--token", token];
    const agent = await startAgent(world, args);
    agents.push(agent);
    return agent;
  };
  try {
    const page = await world.open({ viewport: { width: 1440, height: 900 } });
    await signIn(world, page, world.given.email);
    await project(page);
    await domain(world, page);
    await webhook(world, page, `https://127.0.0.1:${service.address().port}/in`, start);
    await server(world, page);
    await workspace(world, page);
    const colleague = await world.open({ expected: [401, 403, 404] });
    await join(world, page, colleague, COLLEAGUE);
    await users(world, page, colleague);
    await takedown(world, page, async (path) => await statusOf(world, agents[0], path), new URL(agents[0].online.forwarding).hostname);
    await engines(page);
    await suspendAndResume(page, "workspaces", world.given.workspace);
    await suspendAndResume(page, "projects", world.given.project);
    page.clean();
  } finally {
    for (const agent of agents) agent.kill();
    service.close();
    service.closeAllConnections();
  }
  console.log(JSON.stringify({}));
});

/** Fills the field of a dialog in which an action is confirmed by the name of its object. */
async function confirmed(dialog, name, verb) {
  await dialog.getByLabel(`Type ${name} to confirm`).fill(name);
  await dialog.getByRole("button", { name: verb, exact: true }).click();
}

/** A project without a price, its new name, and its end. */
async function project(page) {
  await page.goto("/projects?new=1");
  const form = page.getByRole("dialog", { name: "New project" });
  await form.getByLabel("Name", { exact: true }).fill("second");
  await form.getByLabel("Plan", { exact: true }).selectOption("basic");
  await accessible(page, "a new project");
  await form.locator("button[type=submit]").click();
  await page.getByText("The project second is created.").waitFor();
  await page.waitForURL(/\/projects\/prj_[a-z0-9]+$/);
  await page.goto(`${new URL(page.url()).pathname}/settings`);
  await page.getByLabel("Name of the project").fill("renamed");
  await page.getByRole("button", { name: "Rename", exact: true }).click();
  await page.getByText("The project is renamed.").waitFor();
  await transfer(page);
  await page.getByRole("button", { name: "Delete the project" }).click();
  const end = page.getByRole("dialog", { name: "Delete renamed" });
  await accessible(page, "the end of a project");
  await confirmed(end, "renamed", "Delete");
  await page.getByText("The project is deleted.").waitFor();
  await page.waitForURL(/\/projects$/);
  page.clean();
}

/** The project moves to another workspace of its owner. */
async function transfer(page) {
  const made = await send(page, "POST", "/api/workspaces", { name: "archive" });
  assert.equal(made.status, 201, JSON.stringify(made));
  await page.reload();
  await page.getByRole("button", { name: "Transfer to another workspace" }).click();
  const dialog = page.getByRole("dialog", { name: "Transfer renamed" });
  await dialog.getByLabel("To the workspace").selectOption({ label: "archive" });
  await accessible(page, "the transfer of a project");
  await dialog.getByRole("button", { name: "Transfer", exact: true }).click();
  await page.getByText("The project is transferred.").waitFor();
  const id = new URL(page.url()).pathname.split("/")[2];
  const moved = await send(page, "GET", `/api/projects/tunnels/${id}`);
  assert.equal(moved.data.workspaceId, made.data.id);
}

/** The records of a domain, and its end. */
async function domain({ given }, page) {
  await page.goto(`/projects/${given.project}/domains?new=1`);
  const form = page.getByRole("dialog", { name: "Add a domain" });
  await form.getByLabel("Host name").fill("app.example.com");
  await form.getByRole("button", { name: "Add", exact: true }).click();
  await page.getByText("app.example.com is added.").waitFor();
  await page.getByRole("heading", { name: "app.example.com" }).waitFor();
  await page.getByRole("row").filter({ hasText: "TXT" }).first().waitFor();
  await accessible(page, "a domain whose records are missing");
  await page.getByRole("button", { name: "Remove", exact: true }).click();
  await confirmed(page.getByRole("dialog", { name: "Remove app.example.com" }), "app.example.com", "Remove");
  await page.getByText("app.example.com is removed.").waitFor();
  page.clean();
}

/** A webhook, a delivery that is canceled and repeated, another secret, and the end. */
async function webhook({ given }, page, target, start) {
  await page.goto(`/projects/${given.project}/webhooks`);
  await page.getByRole("button", { name: "New webhook" }).click();
  const form = page.getByRole("dialog", { name: "New webhook" });
  await form.getByLabel("Name", { exact: true }).fill("bell");
  // The service there has no TLS, so every attempt fails.
  await form.getByLabel("Target").fill(target);
  await accessible(page, "a new webhook");
  await form.getByRole("button", { name: "Create", exact: true }).click();
  await page.getByRole("dialog", { name: "Signing secret" }).getByRole("button", { name: "Done" }).click();
  await start("rings");
  await page.getByRole("link", { name: "bell" }).click();
  await page.getByRole("heading", { level: 1, name: "bell" }).waitFor();
  const delivery = page.getByRole("row").filter({ hasText: "Tunnel created" }).first();
  await delivery.waitFor();
  await page.getByRole("button", { name: "Disable", exact: true }).click();
  await delivery.getByText("canceled").waitFor();
  await page.getByRole("button", { name: "Enable", exact: true }).click();
  await page.getByRole("button", { name: "Disable", exact: true }).waitFor();
  await delivery.getByRole("button", { name: "Details" }).click();
  const details = page.getByRole("dialog", { name: "Delivery" });
  await details.getByRole("heading", { name: "Payload" }).waitFor();
  await accessible(page, "a delivery to a webhook");
  await details.getByRole("button", { name: "Deliver again" }).click();
  await page.getByText("The delivery is repeated.").waitFor();
  await page.keyboard.press("Escape");
  await details.waitFor({ state: "detached" });
  await page.getByRole("button", { name: "Rotate the secret" }).click();
  await page.getByRole("dialog", { name: "Rotate the signing secret" }).getByRole("button", { name: "Rotate", exact: true }).click();
  await page.getByRole("dialog", { name: "New signing secret" }).getByRole("button", { name: "Done" }).click();
  await page.getByRole("button", { name: "Delete", exact: true }).click();
  await page.getByRole("dialog", { name: "Delete bell" }).getByRole("button", { name: "Delete", exact: true }).click();
  await page.getByText("The webhook is deleted.").waitFor();
  page.clean();
}

async function server({ given }, page) {
  await page.goto(`/projects/${given.project}/servers`);
  await page.getByRole("button", { name: "Register a server" }).click();
  const form = page.getByRole("dialog", { name: "Register a server" });
  await form.getByLabel("Name", { exact: true }).fill("attic");
  await form.getByLabel("Labels").fill("room=9");
  await accessible(page, "a new terminal server");
  await form.getByRole("button", { name: "Save" }).click();
  await page.getByText("The server is registered.").waitFor();
  const row = page.getByRole("row").filter({ hasText: "attic" });
  await row.getByText("room=9").waitFor();
  await row.getByRole("button", { name: "Edit" }).click();
  const edit = page.getByRole("dialog", { name: "Edit attic" });
  await edit.getByLabel("Description").fill("below the roof");
  await edit.getByRole("button", { name: "Save" }).click();
  await page.getByText("The server is changed.").waitFor();
  await row.getByText("below the roof").waitFor();
  await row.getByRole("button", { name: "Delete" }).click();
  await confirmed(page.getByRole("dialog", { name: "Delete attic" }), "attic", "Delete");
  await page.getByText("The server is deleted.").waitFor();
  page.clean();
}

async function workspace({ given }, page) {
  await page.goto(`/workspaces/${given.workspace}/settings`);
  await page.getByLabel("Name of the workspace").fill("crew two");
  await page.getByRole("button", { name: "Rename", exact: true }).click();
  await page.getByText("The workspace is renamed.").waitFor();
  page.clean();
}

/** An operator makes the colleague an operator, ends that, suspends the colleague and ends that. */
async function users(world, page, colleague) {
  const { name, email } = COLLEAGUE;
  await page.goto("/installation/users");
  await page.getByRole("row").filter({ hasText: email }).getByRole("button", { name: "Details" }).click();
  const details = page.getByRole("dialog", { name, exact: true });
  await details.getByText("Last seen").waitFor();
  await details.getByRole("button", { name: "Make an operator" }).click();
  const appoint = page.getByRole("dialog", { name: `Make ${name} an operator` });
  await accessible(page, "a new operator");
  await confirmed(appoint, name, "Make an operator");
  await page.getByText(`${name} is an operator now.`).waitFor();
  await details.getByRole("button", { name: "End the role of an operator" }).waitFor();
  await colleague.goto("/installation/users");
  await colleague.getByRole("row").filter({ hasText: world.given.email }).waitFor();

  await details.getByRole("button", { name: "End the role of an operator" }).click();
  await page.getByRole("dialog", { name: `End the role of ${name}` }).getByRole("button", { name: "End the role", exact: true }).click();
  await page.getByText(`${name} is no operator any more.`).waitFor();
  assert.equal((await send(colleague, "GET", "/api/operator/users")).status, 404);

  await details.getByRole("button", { name: "Suspend", exact: true }).click();
  const suspend = page.getByRole("dialog", { name: `Suspend ${name}` });
  await suspend.getByLabel("Reason").fill("ticket 4711");
  await suspend.getByRole("button", { name: "Suspend", exact: true }).click();
  await page.getByText(`${name} is suspended.`).waitFor();
  assert.equal((await send(colleague, "GET", "/api/user")).status, 401);
  await details.getByRole("button", { name: "Resume", exact: true }).click();
  await page.getByRole("dialog", { name: `Resume ${name}` }).getByRole("button", { name: "Resume", exact: true }).click();
  await page.getByText(`${name} is active again.`).waitFor();

  await page.goto("/installation/audit?action=user.role_changed");
  const entries = page.getByRole("main").getByRole("listitem").filter({ hasText: "User role changed" });
  await entries.nth(1).waitFor();
  page.clean();
  colleague.clean();
  await colleague.close();
}

/** Visitors of an address are refused at once, and reach the tunnel again after the end of it. */
async function takedown({ given: { project } }, page, statusOf, hostname) {
  await page.goto("/installation/takedowns");
  await page.getByRole("button", { name: "Take down an address" }).click();
  const form = page.getByRole("dialog", { name: "Take down an address" });
  await form.getByLabel("Host name").fill(hostname);
  await form.getByLabel("Reason").fill("a copy of another site");
  await accessible(page, "a takedown");
  await form.getByRole("button", { name: "Take down", exact: true }).click();
  await page.getByText(`${hostname} is taken down.`).waitFor();
  await becomes(403, statusOf);
  // The members of the project read the reason with their tunnels.
  await page.goto(`/projects/${project}/tunnels`);
  const notice = page.getByRole("alert").filter({ hasText: "An operator took down" });
  await notice.getByText("a copy of another site").waitFor();
  await notice.getByText(hostname, { exact: true }).waitFor();
  await accessible(page, "tunnels with an address that was taken down");
  await page.goto("/installation/takedowns");
  const row = page.getByRole("row").filter({ hasText: hostname });
  await row.getByText("a copy of another site").waitFor();
  await row.getByRole("button", { name: "Restore" }).click();
  await page.getByRole("dialog", { name: `Restore ${hostname}` }).getByRole("button", { name: "Restore", exact: true }).click();
  await page.getByText(`${hostname} is restored.`).waitFor();
  await becomes(200, statusOf);
  const listed = page.waitForResponse((response) => response.url().endsWith(`/projects/tunnels/${project}/takedowns`));
  await page.goto(`/projects/${project}/tunnels`);
  assert.deepEqual((await (await listed).json()).takedowns, []);
  await page.getByRole("region", { name: "1 tunnels" }).waitFor();
  assert.equal(await notice.count(), 0, "the members still read of the takedown");
  page.clean();
}

/** Visits until the engine, which receives the change over its link, answers with this status. */
async function becomes(status, statusOf) {
  const until = Date.now() + PATIENCE;
  let last;
  // A connection may be refused when visits of one address are too many.
  do last = await statusOf("/").catch(() => undefined);
  while (last !== status && Date.now() < until);
  assert.equal(last, status);
}

async function engines(page) {
  await page.goto("/installation/engines");
  await page.getByText("linked", { exact: true }).first().waitFor();
  await page.getByText("Tunnels", { exact: true }).first().waitFor();
  await page.getByText(/^svc \d+\.\d+\.\d+/).first().waitFor();
  await accessible(page, "the engines of the installation");
  page.clean();
}

/** An operator suspends one object of a list, and ends that. */
async function suspendAndResume(page, kind, id) {
  await page.goto(`/installation/${kind}?chosen=${id}`);
  await page.getByRole("dialog").getByRole("button", { name: "Suspend", exact: true }).click();
  const form = page.getByRole("dialog", { name: /^Suspend / });
  await form.getByLabel("Reason").fill("ticket 4711");
  await form.getByRole("button", { name: "Suspend", exact: true }).click();
  await page.getByText(/ is suspended\.$/).waitFor();
  await page.getByRole("dialog").getByRole("button", { name: "Resume", exact: true }).click();
  await page.getByRole("dialog", { name: /^Resume / }).getByRole("button", { name: "Resume", exact: true }).click();
  await page.getByText(/ is active again\.$/).waitFor();
  page.clean();
}

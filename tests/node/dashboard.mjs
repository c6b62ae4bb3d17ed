// The dashboard of `svc up` with real agents: the first minute, requests that appear live,
// hostile text, a colleague who loses the role, and a session that ends elsewhere.

import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";

import { startAgent, statusOf } from "./agents.mjs";
import { accessible, drive, send } from "./browser.mjs";

const COLLEAGUE = "colleague@example.com";
const PASSWORD = "a password that nobody guesses";
/** Text that would run as a script if a page took it for markup. */
const HOSTILE = "<img src=x onerror=alert(1)>";
/** The same in the path of a request, which has no spaces. */
const HOSTILE_PATH = "/<img/src=x/onerror=alert(1)>";

await drive(async (world) => {
  const service = createServer((_, response) => response.end("hello"));
  await once(service.listen(0, "127.0.0.1"), "listening");
  const port = String(service.address().port);
  const agents = [];
  try {
    const admin = await world.open({ permissions: ["clipboard-read", "clipboard-write"] });
    const forwarding = await firstMinute(world, admin, port, agents);
    await requests(world, admin, forwarding);
    await overview(world, admin, port, agents);
    await hostile(world, admin, port, agents);
    await lostRole(world, admin);
    await signedOut(world, admin);
    admin.clean();
  } finally {
    for (const agent of agents) agent.kill();
    service.close();
  }
  console.log(JSON.stringify({}));
});

/** Signs in, and waits for the address that follows. */
async function signIn(world, page, next) {
  const { email, password } = world.given;
  await page.goto(`/login?next=${encodeURIComponent(next)}`);
  await page.getByLabel("Email").fill(email);
  await page.getByLabel("Password").fill(password);
  await page.keyboard.press("Enter");
  await page.waitForURL(`${world.url}${next}`);
}

/** An agent with these arguments of `svc`. Resolves to its output when it is online. */
async function online(world, agents, args) {
  const agent = await startAgent(world, args);
  agents.push(agent);
  return agent.online;
}

/** The page shows a command, and without a reload the tunnel that the command opens. */
async function firstMinute(world, page, port, agents) {
  await signIn(world, page, "/welcome");
  await page.getByRole("status").filter({ hasText: "Waiting for the tunnel" }).waitFor();
  await page.getByLabel("Port of the service on your machine").fill(port);
  await page.getByRole("button", { name: "Copy the command with a token" }).click();
  await page.getByRole("button", { name: "Copy the command", exact: true }).waitFor();
  await page.getByText("The command is in the clipboard.").waitFor();
  const command = await page.evaluate(() => navigator.clipboard.readText());
  const [program, ...args] = command.split(" ");
  assert.equal(program, "svc", command);
  const token = args.at(-1);
  assert.ok(!(await page.locator("body").innerText()).includes(token), "the token is masked");
  await page.evaluate(() => (window.isFirstDocument = true));
  const { forwarding } = await online(world, agents, args);
  await page.getByRole("link", { name: forwarding, exact: true }).waitFor();
  await page.getByRole("img", { name: `QR code of ${forwarding}` }).waitFor();
  assert.equal(await page.evaluate(() => window.isFirstDocument), true, "the page was loaded again");
  page.clean();
  return forwarding;
}

/** A request appears in the open log. Its details have an address that can be shared. */
async function requests(world, page, forwarding) {
  await page.goto(`/projects/${world.given.project}/requests`);
  await page.getByRole("heading", { name: "No requests" }).waitFor();
  await page.evaluate(() => (window.isFirstDocument = true));
  // The engine's certificate is signed by the development CA.
  const visitor = await world.open({ ignoreHTTPSErrors: true });
  await visitor.goto(`${forwarding}/from-a-visitor`);
  await visitor.getByText("hello").waitFor();
  await visitor.close();
  const row = page.getByRole("button", { name: "/from-a-visitor" });
  await row.waitFor();
  assert.equal(await page.evaluate(() => window.isFirstDocument), true, "the page was loaded again");
  await row.click();
  const details = page.getByRole("dialog", { name: "GET /from-a-visitor" });
  await details.getByText("Reference").waitFor();
  await accessible(page, "the details of a request");
  await page.reload();
  await details.getByText("Reference").waitFor();
  await page.keyboard.press("Escape");
  await details.waitFor({ state: "detached" });
  await page.goto(`/projects/${world.given.project}/requests?visit=gone`);
  const notice = page.getByRole("status").filter({ hasText: "The request of this address is not among those below" });
  await notice.getByRole("button", { name: "Show the log" }).click();
  await notice.waitFor({ state: "detached" });
  await row.waitFor();
  page.clean();
}

/**
 * The overview counts the visit, draws it in each range, which is in the address, and shows a tunnel that
 * comes and goes.
 */
async function overview(world, page, port, agents) {
  const { engine_url: engine, token, project } = world.given;
  await page.goto(`/projects/${project}`);
  const graph = page.getByRole("img", { name: /^Requests per second\. [1-9]\d* requests?, / });
  await graph.waitFor();
  const range = page.getByLabel("Range", { exact: true });
  for (const value of ["15m", "30d"]) {
    await range.selectOption(value);
    await page.waitForURL((address) => address.searchParams.get("range") === value);
    await graph.waitFor();
  }
  await page.reload();
  await graph.waitFor();
  assert.equal(await range.inputValue(), "30d");
  await accessible(page, "the overview of a project with traffic");
  await page.getByText("Live", { exact: true }).first().waitFor();
  const agent = await startAgent(world, ["forward", port, "--name", "brief", "--engine", engine, "--token", token]);
  agents.push(agent);
  const events = page.getByRole("list", { name: "Events, newest first" }).getByRole("listitem").filter({ hasText: "brief" });
  const row = page.getByRole("row").filter({ hasText: "brief" });
  await events.filter({ hasText: "Tunnel created" }).waitFor();
  await row.waitFor();
  agent.kill();
  await events.filter({ hasText: "Tunnel deleted" }).waitFor();
  await row.waitFor({ state: "detached" });
  page.clean();
}

/** Names, labels and the lines of the log with markup are shown as text. */
async function hostile(world, page, port, agents) {
  const { engine_url: engine, token, project } = world.given;
  const labels = ["--label", `note=${HOSTILE}`, "--client-label", `note=${HOSTILE}`];
  const args = ["forward", port, "--engine", engine, "--token", token, ...labels];
  let isAsked = false;
  page.on("dialog", (dialog) => {
    isAsked = true;
    void dialog.dismiss();
  });
  await page.goto(`/projects/${project}/tunnels`);
  await page.getByRole("region", { name: "1 tunnels" }).waitFor();
  const tunnel = await online(world, agents, args);
  await page.getByRole("region", { name: "2 tunnels" }).waitFor();
  const row = page.getByRole("link").filter({ hasText: HOSTILE });
  await row.waitFor();
  await row.click();
  await page.getByRole("heading", { level: 1 }).waitFor();
  await page.locator("main").getByText(`note=${HOSTILE}`).first().waitFor();
  assert.equal(await page.locator("img[src=x]").count(), 0, "the label became markup");
  await hostileVisit(world, page, tunnel);
  await hostileAgent(world, page, tunnel);
  for (const path of await hostileNames(world, page)) {
    await page.goto(path);
    await page.locator("main").getByText(HOSTILE).first().waitFor();
    assert.equal(await page.locator("img[src=x]").count(), 0, `a name became markup on ${path}`);
  }
  assert.ok(!isAsked, "a script of a text ran");
  page.clean();
}

/** A visitor chooses the path, which the log and the details of the request show. */
async function hostileVisit(world, page, tunnel) {
  assert.equal(await statusOf(world, { online: tunnel }, HOSTILE_PATH), 200);
  await page.goto(`/projects/${world.given.project}/requests`);
  const row = page.getByRole("button").filter({ hasText: "onerror=alert(1)" });
  await row.waitFor();
  await row.click();
  await page.getByRole("dialog", { name: /onerror=alert\(1\)/ }).waitFor();
  assert.equal(await page.locator("img[src]").count(), 0, "a path became markup");
}

/** The labels of an agent are in its details. */
async function hostileAgent({ given }, page, tunnel) {
  const tunnels = await send(page, "GET", `/engine/${given.project}/api/tunnels`);
  const { client_id: client } = tunnels.data.find((one) => one.id === tunnel.tunnel_id);
  await page.goto(`/projects/${given.project}/clients?client=${client}`);
  await page.getByRole("dialog").getByText(`note=${HOSTILE}`).waitFor();
  assert.equal(await page.locator("img[src]").count(), 0, "a label of an agent became markup");
}

/** Objects whose names are markup. Returns the pages that show these names. */
async function hostileNames(world, page) {
  const { workspace, project } = world.given;
  const expiresAt = new Date(Date.now() + 3_600_000).toISOString();
  const permissions = ["tunnels.resources.read-only"];
  const values = { name: HOSTILE, config: { url: "https://example.com/in" }, events: ["domain.suspended"] };
  for (const [path, body] of [
    ["/api/credentials", { type: "pat", name: HOSTILE, permissions, expiresAt }],
    [`/api/projects/tunnels/${project}/webhooks`, values],
  ]) {
    const made = await send(page, "POST", path, body);
    assert.ok(made.status < 300, JSON.stringify(made));
  }
  return ["/credentials", `/projects/${project}/webhooks`, `/workspaces/${workspace}/audit?of=me`];
}

/** Invites a colleague, who joins in another browser. */
async function joined(world, page) {
  const { workspace, token } = world.given;
  const invited = await fetch(`${world.url}/api/workspaces/${workspace}/invitations`, {
    method: "POST",
    headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
    body: JSON.stringify({ email: COLLEAGUE, role: "admin" }),
  });
  assert.ok(invited.ok, await invited.clone().text());
  await page.goto((await invited.json()).url);
  await page.getByLabel("Name").fill("Colleague");
  await page.getByLabel("Password").first().fill(PASSWORD);
  await page.keyboard.press("Enter");
  await page.waitForURL(`${world.url}/welcome`);
}

/** Two people: the open views of one of them follow the role, and keep their content when it is lost. */
async function lostRole(world, admin) {
  const { workspace, project } = world.given;
  const colleague = await world.open({ expected: [403, 404] });
  await joined(world, colleague);
  const tunnels = await world.beside(colleague);
  await tunnels.goto(`/projects/${project}/tunnels`);
  const list = tunnels.getByRole("region", { name: "2 tunnels" });
  await list.waitFor();
  await colleague.goto(`/workspaces/${workspace}/members`);
  await colleague.getByRole("button", { name: "Invite" }).waitFor();

  await admin.goto(`/workspaces/${workspace}/members`);
  await admin.getByLabel("Role of Colleague").selectOption("viewer");
  await admin.getByText("Colleague is viewer now.").waitFor();
  await colleague.getByRole("button", { name: "Invite" }).waitFor({ state: "detached" });
  await colleague.goto("/welcome");
  await colleague.getByText("Your role here is viewer").waitFor();

  // A suspended member keeps the content of the open view, which is live again after the end of it.
  const row = admin.getByRole("row").filter({ hasText: COLLEAGUE });
  await row.getByRole("button", { name: "Suspend", exact: true }).click();
  await admin.getByText("Colleague is suspended.").waitFor();
  await tunnels.getByRole("alert").first().waitFor();
  await list.waitFor();
  await row.getByRole("button", { name: "Resume", exact: true }).click();
  await admin.getByText("Colleague is active again.").waitFor();
  await tunnels.waitForFunction(() => !document.querySelector("[role=alert]"));
  await tunnels.getByText("Live", { exact: true }).first().waitFor();
  await list.waitFor();

  await row.getByRole("button", { name: "Remove" }).click();
  await admin.getByRole("dialog").getByRole("button", { name: "Remove" }).click();
  await admin.getByText("Colleague is removed.").waitFor();
  await tunnels.getByRole("alert").first().waitFor();
  await list.waitFor();
  colleague.clean();
  for (const page of [colleague, tunnels]) await page.close();
}

/** A session that is ended in another browser: the view keeps its content and leads back to itself. */
async function signedOut(world, admin) {
  const page = await world.open({ expected: [401] });
  const path = `/projects/${world.given.project}/tunnels`;
  await signIn(world, page, path);
  const list = page.getByRole("region", { name: "2 tunnels" });
  await list.waitFor();
  await admin.goto("/account");
  await admin.getByRole("button", { name: "Sign out everywhere" }).click();
  await admin.waitForURL(`${world.url}/login**`);
  const notice = page.getByRole("alert").filter({ hasText: "Your session has ended." });
  await notice.waitFor();
  await list.waitFor();
  await accessible(page, "a view whose session has ended");
  await notice.getByRole("link", { name: "Sign in again" }).click();
  await page.getByLabel("Email").fill(world.given.email);
  await page.getByLabel("Password").fill(world.given.password);
  await page.keyboard.press("Enter");
  await page.waitForURL(`${world.url}${path}`);
  await list.waitFor();
  page.clean();
}

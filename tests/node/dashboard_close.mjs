// Sharing and closing tunnels of real agents: a token for a visitor opens one tunnel; the close of a
// tunnel ends what is open, and its agent does not open it again.

import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";

import { startAgent, statusOf, visit } from "./agents.mjs";
import { accessible, copied, drive } from "./browser.mjs";
import { signIn } from "./looks.mjs";

/** Time in milliseconds from the response of the engine to the end of what is open. */
const END_MS = 1_000;

await drive(async (world) => {
  const service = createServer((asked, response) => {
    response.write("hello");
    // A download without an end.
    if (asked.url !== "/endless") response.end();
  });
  await once(service.listen(0, "127.0.0.1"), "listening");
  const port = String(service.address().port);
  const agents = [];
  const start = async (...args) => {
    const { engine_url: engine, token } = world.given;
    const agent = await startAgent(world, ["forward", port, "--engine", engine, "--token", token, ...args]);
    agents.push(agent);
    return agent;
  };
  try {
    const guarded = await start("--name", "guarded", "--token-auth");
    const other = await start("--name", "other", "--token-auth");
    const page = await world.open({ viewport: { width: 1440, height: 900 }, permissions: ["clipboard-read", "clipboard-write"] });
    await signIn(world, page, world.given.email);
    await share(world, page, guarded, other);
    await refusedVisit(world, page);
    await start("--name", "guarded", "--token-auth");
    const fair = await start("--name", "fair");
    await close(world, page, fair);
    await audited(world, page);
    page.clean();
  } finally {
    for (const agent of agents) agent.kill();
    service.close();
    service.closeAllConnections();
  }
  console.log(JSON.stringify({}));
});

/**
 * The page copies a command and an address with the token, once, also after the agent has ended. Both open this
 * tunnel and no other.
 */
async function share(world, page, guarded, other) {
  await page.goto(`/projects/${world.given.project}/tunnels`);
  await page.getByRole("button", { name: "Share guarded" }).click();
  const dialog = page.getByRole("dialog", { name: "Share guarded" });
  await dialog.getByText("Visitors must send a token.").waitFor();
  assert.equal(await statusOf(world, guarded, "/"), 401);
  await dialog.getByRole("combobox").selectOption("1");
  await dialog.getByRole("button", { name: "Create a token" }).click();
  await dialog.getByRole("button", { name: "Copy the command with the token" }).and(page.locator(":focus")).waitFor();
  const link = new URL(await copied(page, dialog.getByRole("button", { name: "Copy the address with the token" })));
  const command = await copied(page, dialog.getByRole("button", { name: "Copy the command with the token" }));
  await accessible(page, "a token for a visitor");
  const [, bearer, token] = /"Authorization: (Bearer ([^"]+))"/.exec(command);
  assert.ok(!(await dialog.innerText()).includes(token), "the token is masked");
  assert.equal(await statusOf(world, guarded, "/", { authorization: bearer }), 200);
  assert.equal(await statusOf(world, guarded, link.pathname + link.search), 200);
  assert.notEqual(await statusOf(world, other, "/", { authorization: bearer }), 200);
  guarded.kill();
  await page.getByText("1 online", { exact: true }).first().waitFor();
  await dialog.getByText("The token can be copied only here and now.").waitFor();
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "detached" });
  await page.goto("/credentials");
  await page.getByRole("row").filter({ hasText: "visit guarded" }).getByText("bounded").waitFor();
  page.clean();
}

/**
 * The refused visit is in the log. Filters are in the address, so that Back and a reload keep them. The entry
 * names the rule, the reference and the next step.
 */
async function refusedVisit(world, page) {
  await page.goto(`/projects/${world.given.project}/requests`);
  const outcome = page.getByLabel("Outcome", { exact: true });
  const visitor = page.getByLabel("Address or user of the visitor");
  await outcome.selectOption("denied");
  await page.getByLabel("Search host, path and address").fill("guarded");
  const row = page.getByRole("button").filter({ hasText: "guarded" }).filter({ hasText: "401" }).first();
  await row.waitFor();
  await visitor.fill("192.0.2.1");
  await page.getByRole("heading", { name: "Nothing matches" }).waitFor();
  await visitor.fill("127.0.0.1");
  await row.click();
  const details = page.getByRole("dialog");
  await details.getByText("Visitors need a valid token.").first().waitFor();
  await details.getByText("Next step: Send a valid token").waitFor();
  await details.getByRole("definition").getByText("token", { exact: true }).first().waitFor();
  const explain = await details.locator("code").filter({ hasText: /^svc explain [0-9a-f]{24}$/ }).innerText();
  await details.getByText(explain.split(" ").at(-1), { exact: true }).waitFor();
  await accessible(page, "the details of a refused visit");
  await page.reload();
  await details.getByText("Next step: Send a valid token").waitFor();
  await page.goBack();
  await details.waitFor({ state: "detached" });
  await row.waitFor();
  assert.deepEqual([await outcome.inputValue(), await visitor.inputValue()], ["denied", "127.0.0.1"]);
  page.clean();
}

/** The open download ends within a second. The page stays and says that the tunnel is not online. */
async function close(world, page, agent) {
  await page.goto(`/projects/${world.given.project}/tunnels`);
  await page.getByRole("link").filter({ hasText: "fair" }).first().click();
  await page.getByRole("heading", { level: 1, name: "fair" }).waitFor();
  const download = visit(world, agent, "/endless");
  const [response] = await once(download, "response");
  await once(response, "data");
  // A connection that is cut is an error of the response, too.
  const ended = new Promise((resolve) => response.once("close", () => resolve(Date.now())).on("error", () => {}).resume());
  download.on("error", () => {});
  await page.getByRole("button", { name: "Close…" }).click();
  const dialog = page.getByRole("dialog", { name: "Close fair" });
  await dialog.getByText("Its agent is").waitFor();
  await accessible(page, "closing a tunnel");
  // The time from the click to the response is that of the browser, which may be slow on a busy machine.
  const closed = page.waitForResponse((response) => response.request().method() === "DELETE").then(() => Date.now());
  await dialog.getByRole("button", { name: "Close the tunnel" }).click();
  const took = (await ended) - (await closed);
  assert.ok(took <= END_MS, `the download ended after ${took} ms`);
  await page.getByText("fair is closed.").waitFor();
  await page.getByText("This tunnel is not online").first().waitFor();
  await dialog.waitFor({ state: "detached" });
  const { code, said } = await agent.ended();
  assert.equal(code, 1, said);
  assert.match(said, /a member of the project closed the tunnel/);
  await page.goto(`/projects/${world.given.project}/tunnels`);
  await page.getByRole("region", { name: "2 tunnels" }).waitFor();
  page.clean();
}

/** The engine reports it to the platform. The list is loaded again by itself. */
async function audited(world, page) {
  await page.goto(`/workspaces/${world.given.workspace}/audit?action=tunnel.closed`);
  const entry = page.getByRole("main").getByRole("listitem").filter({ hasText: "Tunnel closed" });
  await entry.getByText("Tunnel fair").waitFor();
  page.clean();
}

// A terminal of a registered server on the pages of a running platform, with its own engine: the
// administrator opens it and restores it, a colleague watches, requests control and is granted it,
// and the recording plays. Prints the id of the session.

import assert from "node:assert/strict";

import { accessible, drive } from "./browser.mjs";
import { seen, signIn } from "./looks.mjs";
import { into, lines, shows, state, typed } from "./terminal_page.mjs";

const COLLEAGUE = "colleague@example.com";
const PASSWORD = "a password that nobody guesses";

await drive(async (world) => {
  const { given, url } = world;
  const admin = await open(world);
  await signIn(world, admin, given.email);
  const colleague = await open(world);
  await join(world, colleague);

  await admin.goto(`/projects/${given.project}/terminals`);
  await admin.getByRole("link", { name: "Open build" }).click();
  await admin.getByRole("button", { name: "Open a terminal" }).click();
  await state(admin, "The terminal is open.");
  // Only a shell evaluates this.
  await typed(admin, "echo from-$((40+2))-admin");
  await shows(admin, "from-42-admin");
  await comesBack(world, admin);
  const watch = admin.getByRole("link", { name: "Open spectator view" });
  const address = await watch.getAttribute("href");

  await colleague.goto(address);
  await state(colleague, "You are watching.");
  await shows(colleague, "from-42-admin");
  await typed(colleague, "echo not-$((1+1))-allowed");
  await colleague.getByLabel("Why do you ask for control?").fill("to look at the log");
  await colleague.getByRole("button", { name: "Ask for control" }).click();
  await admin.getByText("Colleague requests control: “to look at the log”").waitFor();
  await seen(world, admin, "requested");
  await admin.getByRole("button", { name: "Grant control to Colleague" }).click();
  await state(colleague, "You have control");
  await typed(colleague, "echo from-$((40+3))-colleague");
  for (const page of [admin, colleague]) await shows(page, "from-43-colleague");
  await admin.getByRole("button", { name: "Take control back" }).click();
  await state(colleague, "Control was taken back.");

  // The same from a page on which the administrator only watches.
  const watching = await admin.context().newPage();
  await watching.goto(address);
  await state(watching, "You are watching.");
  await colleague.getByRole("button", { name: "Ask for control" }).click();
  await watching.getByRole("button", { name: "Grant control to Colleague" }).click();
  await state(colleague, "You have control");
  await state(admin, "Colleague has control.");
  await watching.getByRole("button", { name: "Take control back" }).click();
  await state(colleague, "Control was taken back.");
  // Input there has no effect until the page is notified.
  await state(admin, "You have control.");
  await watching.close();
  await inTheDashboard(world, admin, colleague, new URL(address, url).pathname.split("/").at(-1));
  // Control returns to its grantor, though that page was reloaded in the meantime.
  await colleague.getByRole("button", { name: "Ask for control" }).click();
  await admin.getByRole("button", { name: "Grant control to Colleague" }).click();
  await state(colleague, "You have control");
  await admin.reload();
  await state(admin, "You are connected again, but another user has control.");
  await colleague.getByRole("button", { name: "Give control back" }).click();
  await state(admin, "You have control.");
  await typed(admin, "exit 7");
  for (const page of [admin, colleague]) await state(page, "The session ended with 7.");
  assert.ok(!(await lines(admin)).some((line) => line.includes("not-2-allowed")), "a spectator typed");

  const session = new URL(address, url).pathname.split("/").at(-1);
  await admin.goto(`/projects/${given.project}/sessions/${session}/replay`);
  await state(admin, "The recording is ready.");
  await admin.getByRole("heading").first().click();
  await admin.keyboard.press("End");
  await shows(admin, "from-43-colleague");
  await seen(world, admin, "replayed");
  await restricted(world, admin, colleague);
  for (const page of [admin, colleague]) page.clean();
  console.log(JSON.stringify({ session }));
});

async function open(world, expected) {
  // The engine's certificate is signed by the development CA.
  return await world.open({ ignoreHTTPSErrors: true, expected });
}

/** The same in the details of the session, which also refuse a request. */
async function inTheDashboard(world, admin, colleague, session) {
  const dashboard = await world.beside(admin);
  await dashboard.goto(`/projects/${world.given.project}/recordings?session=${session}`);
  const details = dashboard.getByRole("dialog", { name: "Session" });
  await details.getByRole("heading", { name: "Requests for control" }).waitFor();
  await colleague.getByLabel("Why do you ask for control?").fill("to finish it");
  await colleague.getByRole("button", { name: "Ask for control" }).click();
  const refuse = details.getByRole("button", { name: "Refuse control to Colleague" });
  await refuse.waitFor();
  await details.getByText("to finish it").waitFor();
  await accessible(dashboard, "requests for control of a terminal");
  // The list from before the refusal offers nothing until it is loaded again.
  let load;
  const loads = new Promise((resolve) => (load = resolve));
  const isHeld = (address) => address.pathname.endsWith("/control-requests");
  await dashboard.route(isHeld, async (route) => {
    await loads;
    await route.continue();
  });
  await refuse.click();
  await dashboard.getByText("The request is refused.").waitFor();
  await state(colleague, "Your request was refused.");
  assert.equal(await refuse.getAttribute("aria-disabled"), "true");
  load();
  await refuse.waitFor({ state: "detached" });
  await dashboard.unroute(isHeld);
  await colleague.getByRole("button", { name: "Ask for control" }).click();
  await details.getByRole("button", { name: "Grant control to Colleague" }).click();
  await dashboard.getByText("Colleague has control now.").waitFor();
  await state(colleague, "You have control");
  await state(admin, "Colleague has control.");
  await details.getByRole("button", { name: "Take control back from Colleague" }).click();
  await dashboard.getByText("Control is taken back.").waitFor();
  await state(colleague, "Control was taken back.");
  await state(admin, "You have control.");
  dashboard.clean();
  await dashboard.close();
}

/** The page is reloaded, closed and disconnected: the shell and its screen are restored. */
async function comesBack(world, admin) {
  await typed(admin, "kept=41");
  await admin.reload();
  await state(admin, "You have control.");
  await shows(admin, "from-42-admin");
  await typed(admin, "echo reloaded-$((kept+1))");
  await shows(admin, "reloaded-42");

  const next = await world.beside(admin);
  const address = admin.url();
  await admin.goto("/account");
  await next.goto(address);
  await state(next, "The terminal that you left is still open.");
  await next.getByRole("button", { name: "Go back to your terminal" }).click();
  await state(next, "You have control.");
  await typed(next, "echo next-$((kept+2))");
  await shows(next, "next-43");
  // The tab that had it before need not request it.
  await next.close();
  await admin.goto(address);
  await state(admin, "You have control.");
  await shows(admin, "next-43");
  next.clean();
}

/** Output that has scrolled off the screen is restored as well. */
async function scrollsUp(admin) {
  await typed(admin, "seq 1 100; echo many-$((40+2))");
  await shows(admin, "many-42");
  assert.ok(!(await lines(admin)).includes("vault-42"));
  await admin.reload();
  await state(admin, "You have control.");
  await shows(admin, "many-42");
  await into(admin);
  // More pages than there are.
  for (let page = 0; page < 20; page += 1) await admin.keyboard.press("Shift+PageUp");
  await shows(admin, "vault-42");
}

/** A restricted server needs the permission to manage servers, which the administrator has. */
async function restricted(world, admin, colleague) {
  const { given } = world;
  const at = `/projects/${given.project}/terminals`;
  await admin.goto(`${at}/${given.restricted}`);
  await admin.getByRole("button", { name: "Open a terminal" }).click();
  await state(admin, "The terminal is open.");
  await typed(admin, "echo vault-$((40+2))");
  await shows(admin, "vault-42");
  await admin.reload();
  await state(admin, "You have control.");
  await shows(admin, "vault-42");
  await scrollsUp(admin);
  const watch = await admin.getByRole("link", { name: "Open spectator view" }).getAttribute("href");

  await colleague.goto(`${at}/${given.restricted}`);
  await colleague.getByRole("alert").filter({ hasText: "Only users who can manage servers may open this server." }).waitFor();
  const refused = await open(world, [403]);
  await signIn({ ...world, given: { ...given, password: PASSWORD } }, refused, COLLEAGUE);
  await refused.goto(watch);
  await refused.getByRole("alert").filter({ hasText: "network.webtty-servers.read-write" }).waitFor();
  refused.clean();
  await admin.getByRole("button", { name: "End the session" }).click();
  await state(admin, /^The session ended/);
}

/** A user is invited, and joins. */
async function join(world, page) {
  const { given } = world;
  const invited = await fetch(`${world.url}/api/workspaces/${given.workspace}/invitations`, {
    method: "POST",
    headers: { authorization: `Bearer ${given.token}`, "content-type": "application/json" },
    body: JSON.stringify({ email: COLLEAGUE, role: "member" }),
  });
  assert.ok(invited.ok, await invited.clone().text());
  await page.goto((await invited.json()).url);
  await page.getByLabel("Name").fill("Colleague");
  await page.getByLabel("Password").first().fill(PASSWORD);
  await page.keyboard.press("Enter");
  await page.waitForURL((address) => !address.pathname.startsWith("/invitations/"));
}

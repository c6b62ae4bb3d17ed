// The views of the dashboard during failures below them: the network of the browser, the engine, the
// platform, and a suspension of the project. Each view shows this in place, keeps its content and
// recovers automatically; no page is loaded again.
//
// The script prints its steps, one line of JSON each, and the test performs them.

import assert from "node:assert/strict";

import { accessible, drive } from "./browser.mjs";

/** Console errors that belong to the failures: refused requests, and those without a response. */
const EXPECTED = [409, 502, 503, "net::ERR_"];

await drive(async (world) => {
  const views = await open(world);
  await stoppedEngine(views);
  await stoppedPlatform(views);
  await lostNetwork(views);
  await suspended(views);
  for (const { page } of views) {
    assert.equal(await page.evaluate(() => window.isFirstDocument), true, "a page was loaded again");
    page.clean();
  }
  step("end");
});

/** Lets the test do something. The next expectation waits for its effect. */
function step(name) {
  console.log(JSON.stringify({ step: name }));
}

/**
 * Pages that show something, each in a separate browser, since connections of one browser to a host
 * are limited. `isLive` ones show what the engine reports.
 */
async function open(world) {
  const { email, password, project } = world.given;
  const first = await world.open({ expected: EXPECTED });
  await first.goto("/login?next=/projects");
  await first.getByLabel("Email").fill(email);
  await first.getByLabel("Password").fill(password);
  await first.keyboard.press("Enter");
  await first.waitForURL(`${world.url}/projects`);
  const storageState = await first.context().storageState();
  const base = `/projects/${project}`;
  await first.goto(`${base}/tunnels`);
  await first.getByRole("region", { name: "1 tunnels" }).waitFor();
  const tunnel = await first.getByRole("link").filter({ hasText: "shop" }).first().getAttribute("href");

  const live = { isLive: true };
  const plans = [
    { ...live, path: base, content: (page) => page.getByRole("link", { name: /shop/ }) },
    { ...live, path: `${base}/tunnels`, content: (page) => page.getByRole("region", { name: "1 tunnels" }) },
    { ...live, path: tunnel, content: (page) => page.getByRole("heading", { level: 1, name: "shop" }) },
    { ...live, path: `${base}/clients`, content: (page) => page.getByRole("region", { name: "1 clients" }) },
    { path: `${base}/requests`, content: (page) => page.getByRole("heading", { name: "No requests" }) },
    { path: `${base}/settings`, content: (page) => page.getByRole("heading", { level: 1, name: "Settings" }) },
  ];
  const views = [];
  for (const plan of plans) {
    const page = await world.open({ storageState, expected: EXPECTED });
    await page.goto(plan.path);
    await page.evaluate(() => (window.isFirstDocument = true));
    const view = { ...plan, page };
    await recovered(view);
    views.push(view);
  }
  await first.context().close();
  return views;
}

/** The view shows its content, and no failure. */
async function recovered({ page, path, content }) {
  await content(page).first().waitFor();
  // A view may report a failure again until the engine has reconnected to its platform.
  const hasNoAlert = () => !document.querySelector("[role=alert]");
  await page.waitForFunction(hasNoAlert).catch((error) => {
    throw new Error(`${path} reports a failure`, { cause: error });
  });
}

/** The view reports the failure with this text, in place, above its content. */
async function reports({ page, path, content }, text) {
  await page.getByRole("alert").filter({ hasText: text }).first().waitFor();
  assert.ok(await content(page).first().isVisible(), `${path} lost its content`);
}

async function stoppedEngine(views) {
  const live = views.filter((view) => view.isLive);
  step("stop engine");
  for (const view of live) await reports(view, "The engine of this project");
  await accessible(live[1].page, "a list whose engine has stopped");
  // The platform serves the others.
  for (const view of views.filter((view) => !view.isLive)) await recovered(view);
  step("start engine");
  for (const view of views) await recovered(view);
}

async function stoppedPlatform(views) {
  step("stop platform");
  for (const view of views) await reports(view, "The platform is not reachable");
  await accessible(views[1].page, "a list whose platform has stopped");
  step("start platform");
  for (const view of views) await recovered(view);
}

/** The network of the browser, as the operating system reports it. */
async function lostNetwork(views) {
  for (const { page } of views) await page.context().setOffline(true);
  for (const view of views) await reports(view, "This device is offline");
  await accessible(views[1].page, "a list without a network");
  for (const { page } of views) await page.context().setOffline(false);
  for (const view of views) await recovered(view);
}

/**
 * An operator suspends the project, which ends its tunnels, and resumes it. A live view may still
 * receive the end of the tunnels, so that only the others keep their content for certain.
 */
async function suspended(views) {
  step("suspend project");
  for (const view of views) {
    const text = "An operator suspended this project";
    if (view.isLive) await view.page.getByRole("alert").filter({ hasText: text }).first().waitFor();
    else await reports(view, text);
  }
  await accessible(views[1].page, "a list of a suspended project");
  step("resume project");
  for (const view of views) await recovered(view);
  // Live again, not only quiet.
  await views[1].page.getByText("Live", { exact: true }).first().waitFor();
}

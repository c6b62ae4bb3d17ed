// Settings of a project, and its plan with the billing of the workspace, as an owner.

import assert from "node:assert/strict";

import { accessible, send } from "./browser.mjs";

/** "Reset all" discards other edits instead of saving them. "Save" saves them. */
export async function settings({ given }, page) {
  const path = `/api/projects/tunnels/${given.project}/settings`;
  // The form starts again when the settings change, so that they change before it is there.
  const changed = await send(page, "PATCH", path, { minTlsVersion: "tls1.3" });
  assert.equal(changed.status, 200, JSON.stringify(changed));
  await page.goto(`/projects/${given.project}/settings`);
  await hasTls(page, "tls1.3");
  const sent = [];
  page.on("request", (request) => {
    if (request.url().endsWith(path) && request.method() !== "GET") sent.push(request.method());
  });
  const trusted = page.getByLabel("Trusted addresses");
  await trusted.fill("192.0.2.0/24");
  await page.getByRole("button", { name: "Reset all" }).click();
  const reset = page.getByRole("dialog", { name: "Reset the settings" });
  await accessible(page, "a reset of the settings of a project");
  await reset.getByRole("button", { name: "Reset", exact: true }).click();
  await page.getByText("The settings are reset.").waitFor();
  await hasTls(page, "");
  assert.equal(await trusted.inputValue(), "", "the edit is still there");
  assert.deepEqual(sent, ["DELETE"], "the edit was saved");
  const defaults = await send(page, "GET", path);
  assert.deepEqual([defaults.data.trustedIps ?? null, defaults.data.minTlsVersion ?? null], [null, null]);

  await trusted.fill("192.0.2.0/24");
  await page.getByRole("button", { name: "Save", exact: true }).click();
  await page.getByText("The settings are saved.").waitFor();
  const saved = await send(page, "GET", path);
  assert.deepEqual(saved.data.trustedIps, ["192.0.2.0/24"]);
  // Later steps visit tunnels.
  assert.equal((await send(page, "DELETE", path)).status, 204);
  page.clean();
}

/** Waits until the form shows this minimum TLS version. */
async function hasTls(page, version) {
  await page.waitForFunction((version) => {
    const label = [...document.querySelectorAll("label")].find((one) => one.textContent === "Minimum TLS version");
    return label?.control?.value === version;
  }, version);
}

/**
 * The price and the limits of another plan, billing on the platform's page, the change, and then the
 * subscription and the invoice of the workspace.
 */
export async function plan(world, page) {
  const { project, workspace } = world.given;
  const dialog = page.getByRole("dialog", { name: "Change the plan" });
  const confirm = dialog.getByRole("button", { name: "Change the plan" });
  const preview = async () => {
    await page.goto(`/projects/${project}/usage`);
    await page.getByRole("button", { name: "Change the plan" }).click();
    await dialog.getByText("7 days → 30 days").waitFor();
    return await dialog.locator(".note strong").first().innerText();
  };
  const cost = await preview();
  const [, now, monthly] = /^(€\d+\.\d\d) now, then (€\d+\.\d\d) per month$/.exec(cost) ?? assert.fail(cost);
  await dialog.getByText("The workspace has no subscription that can be charged.").waitFor();
  assert.equal(await confirm.getAttribute("aria-disabled"), "true", "a change without billing is offered");
  await accessible(page, "a change of the plan before billing is set up");
  await dialog.getByLabel("New plan").selectOption("enterprise");
  await dialog.getByText("This plan is sold by arrangement with the operator.").waitFor();
  await dialog.getByLabel("New plan").selectOption("pro");
  await dialog.getByRole("link", { name: "Set up billing" }).click();
  await page.getByRole("button", { name: "Charge this workspace" }).click();
  await page.waitForURL(`${world.url}/account`);

  assert.equal(await preview(), cost);
  await confirm.click();
  await page.getByText("The plan is changed.").waitFor();
  await dialog.waitFor({ state: "detached" });
  await page.getByText("For teams: webhooks, longer logs, more capacity.").waitFor();

  await page.goto(`/workspaces/${workspace}/billing`);
  const card = (name) => page.locator("section.card").filter({ has: page.getByRole("heading", { name }) });
  const subscription = card("Subscription");
  await subscription.getByText(`${monthly} per month`).waitFor();
  await subscription.getByText("set up", { exact: true }).waitFor();
  const item = subscription.getByRole("listitem").filter({ hasText: "· pro" });
  await item.getByText(monthly, { exact: true }).waitFor();
  const invoice = card("Invoices").getByRole("listitem");
  await invoice.locator("code").filter({ hasText: /^bil_/ }).waitFor();
  await invoice.locator("strong").filter({ hasText: now }).waitFor();
  await invoice.getByText("open", { exact: true }).waitFor();
  assert.equal(await invoice.count(), 1, "the change was charged more than once");
  await accessible(page, "the billing of a workspace");
  page.clean();
}

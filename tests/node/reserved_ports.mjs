// Reserved TCP ports in the settings of a project: an owner reserves, copies and releases ports with the
// keyboard, up to the limit of the plan. The range of the cluster has no port for another project then,
// also not one that was just released. Each refusal names the next step.

import assert from "node:assert/strict";

import { accessible, copied, drive } from "./browser.mjs";
import { signIn } from "./looks.mjs";

await drive(async (world) => {
  const { owner, other, domain, ports: [first, last] } = world.given;
  const permissions = ["clipboard-read", "clipboard-write"];
  const page = await world.open({ viewport: { width: 1440, height: 900 }, expected: [409], permissions });
  await signIn(world, page, owner.email);
  await page.goto(`/projects/${owner.project}/settings`);
  await reservesToTheLimit(page, owner, `${domain}:${first}`, `${domain}:${last}`);
  await releases(page, first);
  const stranger = await world.open({ expected: [404, 409] });
  await signIn(world, stranger, other.email);
  await exhausted(stranger, other);
  await foreign(stranger, owner);
  // The project that released the port gets it back.
  await reserve(page);
  await row(page, first).waitFor();
  await counted(page, owner);
  await forbidden(page, owner);
  page.clean();
  stranger.clean();
});

function card(page) {
  return page.locator("section.card").filter({ has: page.getByRole("heading", { name: "Reserved TCP ports" }) });
}

function row(page, port) {
  return card(page).getByRole("listitem").filter({ hasText: `:${port}` });
}

/** Presses the button with the keyboard, which keeps the focus. Ends when the action has ended. */
async function reserve(page) {
  const button = card(page).getByRole("button", { name: "Reserve a port" });
  await button.focus();
  const answered = page.waitForResponse((response) => response.request().method() === "POST");
  await page.keyboard.press("Enter");
  await answered;
  await button.and(page.locator(":focus:not([aria-disabled])")).waitFor();
}

/** The list is empty first, then has one address after the other, and then a refusal with its next step. */
async function reservesToTheLimit(page, { project }, ...addresses) {
  await card(page).getByRole("heading", { name: "No reserved port" }).waitFor();
  for (const address of addresses) {
    await reserve(page);
    await page.getByText(`${address} is reserved.`).waitFor();
    assert.equal(await copied(page, card(page).getByRole("button", { name: `Copy ${address}` })), address);
  }
  await reserve(page);
  const refusal = card(page).getByRole("alert");
  await refusal.getByText("The plan of the project has 2 TCP addresses.").waitFor();
  const next = refusal.getByRole("link", { name: "Usage" });
  assert.equal(await next.getAttribute("href"), `/projects/${project}/usage`);
  assert.equal(await card(page).getByRole("listitem").count(), addresses.length, "the refusal changed the list");
  await accessible(page, "reserved ports up to the limit of the plan");
}

/** Escape changes nothing, and returns the focus. The release removes the row, and the refusal above it. */
async function releases(page, port) {
  const button = row(page, port).getByRole("button", { name: `Release port ${port}` });
  const dialog = page.getByRole("dialog", { name: `Release port ${port}` });
  await button.focus();
  await page.keyboard.press("Enter");
  await dialog.getByText("This project can reserve it again.").waitFor();
  await accessible(page, "the release of a port");
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "detached" });
  await button.and(page.locator(":focus")).waitFor();
  await page.keyboard.press("Enter");
  // The first button of the dialog has the focus.
  await dialog.getByRole("button", { name: "Release", exact: true }).and(page.locator(":focus")).waitFor();
  await page.keyboard.press("Enter");
  await page.getByText("The port is released.").waitFor();
  await row(page, port).waitFor({ state: "detached" });
  assert.equal(await card(page).getByRole("alert").count(), 0, "the refusal is still there");
  // The button that had the focus is gone.
  await page.locator("h1:focus").waitFor();
}

/** One port of the range is reserved, and the other one is kept for the project that released it. */
async function exhausted(page, { project }) {
  await page.goto(`/projects/${project}/settings`);
  await card(page).getByRole("heading", { name: "No reserved port" }).waitFor();
  await reserve(page);
  const refusal = card(page).getByRole("alert");
  await refusal.getByText("No port of the cluster is free. The operator of the platform can add some").waitFor();
  await card(page).getByRole("heading", { name: "No reserved port" }).waitFor();
  await accessible(page, "a range of ports that is exhausted");
}

/** The pages of another tenant's project show that it does not exist for this user, and nothing of it. */
async function foreign(page, { project }) {
  await page.goto(`/projects/${project}/settings`);
  await page.getByRole("alert").getByText("It was deleted, or your role no longer shows it.").first().waitFor();
  assert.equal(await card(page).count(), 0, "the ports of another project are shown");
}

async function counted(page, { project }) {
  await page.goto(`/projects/${project}/usage`);
  await page.getByText("2 of 2 used", { exact: true }).waitFor();
}

/** The project's own rules forbid TCP tunnels. The refusal names the setting. */
async function forbidden(page, { project }) {
  await page.goto(`/projects/${project}/settings`);
  const name = "TCP tunnels may be published";
  await page.getByLabel(name).uncheck();
  await page.getByRole("button", { name: "Save", exact: true }).click();
  await page.getByText("The settings are saved.").waitFor();
  await reserve(page);
  const refusal = card(page).getByRole("alert");
  await refusal.getByText("The project's policy does not allow TCP tunnels to be published.").waitFor();
  await refusal.getByText(name).waitFor();
}

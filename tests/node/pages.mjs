// Every page: in light and dark, on a phone and on a desktop, with the keyboard, with axe-core, and
// without scripts.

import assert from "node:assert/strict";

import { drive, focused, submitted } from "./browser.mjs";
import { LOOKS, lookAt, signIn } from "./looks.mjs";

await drive(async (world) => {
  const links = await prepare(world);
  for (const [visit, { look, options }] of LOOKS.entries()) {
    await strangers(world, options, look, links);
    await members(world, options, look, links);
    await secondFactor(world, options, look, links, visit);
  }
  await withoutScripts(world, links);
});

/** Objects that the pages need: an invitation, an offer, a second factor, a reset link. */
async function prepare(world) {
  const page = await world.open();
  await signIn(world, page, "ada@example.com");
  const send = (method, path, data) =>
    page.context().request.fetch(path, { method, data, headers: { origin: world.url } });
  const workspaces = await (await send("GET", "/api/workspaces")).json();
  const workspace = workspaces.workspaces[0].id;
  const made = `/api/workspaces/${workspace}/invitations`;
  const invitation = await (
    await send("POST", made, { email: "new@example.com", role: "member" })
  ).json();
  const creation = `/api/workspaces/${workspace}/projects/tunnels`;
  const config = await (await send("GET", `${creation}/plan/config`)).json();
  const offer = await send("POST", creation, {
    name: "shop",
    plan: "pro",
    provider: "other",
    region: "local",
    creationFingerprint: config.plans[1].creationFingerprint,
    idempotencyKey: "pages",
  });
  assert.equal(offer.status(), 402);
  const checkout = (await offer.json()).url;

  const grace = await world.open();
  await signIn(world, grace, "grace@example.com");
  await grace.getByRole("button", { name: "Set up an app" }).click();
  const key = await grace.locator("code").textContent();
  await grace.getByRole("img", { name: "QR code" }).waitFor();
  await focused(grace, "The code that it shows now");
  await grace.keyboard.type(world.code(key, -1));
  await grace.keyboard.press("Enter");
  // The link comes after the codes, so all of them have been rendered.
  await grace.getByRole("link", { name: "I have saved these codes" }).waitFor();
  const codes = await grace.locator("code").allTextContents();

  await page.goto("/reset");
  await focused(page, "Email");
  await page.keyboard.type("ada@example.com");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "Check your email" }).waitFor();
  page.clean();
  grace.clean();
  const reset = await world.link("/reset/");
  const setup = `/billing/setup?workspaceId=${workspace}`;
  return { invitation: invitation.url, checkout, setup, reset, key, codes };
}

async function strangers(world, options, look, links) {
  const page = await world.open(options);
  const see = (name) => lookAt(world, page, `${name}-${look}`);
  await page.goto("/login?next=/account");
  await see("login");
  await page.keyboard.type("ada@example.com");
  await page.keyboard.press("Tab");
  await page.keyboard.type("not the password");
  await page.keyboard.press("Enter");
  await page.getByRole("alert").first().waitFor();
  await focused(page, "Password");
  await see("login-wrong");
  // The address is kept, and the focus is on the wrong field.
  await page.keyboard.type(world.given.password);
  await page.keyboard.press("Enter");
  await page.waitForURL(`${world.url}/account`);
  await page.getByRole("button", { name: "Sign out", exact: true }).press("Enter");
  await page.waitForURL(`${world.url}/login`);

  for (let attempt = 0; attempt < 7; attempt += 1) {
    await page.getByLabel("Email").fill("nobody@example.com");
    await page.getByLabel("Password").fill("guess");
    await submitted(page);
    await page.getByRole("alert").first().waitFor();
    if (await page.getByText("Too many attempts").count()) break;
  }
  await page.getByText("Too many attempts").waitFor();
  await see("login-throttled");

  await page.goto("/reset");
  await see("reset");
  // Browsers validate addresses as well. Other invalid ones are reported by the page.
  await page.locator("form").evaluate((form) => (form.noValidate = true));
  await page.keyboard.type("nobody");
  await page.keyboard.press("Enter");
  await page.getByRole("alert").waitFor();
  await focused(page, "Email");
  await see("reset-wrong");
  await page.goto(links.reset);
  await see("new-password");
  await page.keyboard.type("aaaaaaaaaaaa");
  await page.keyboard.press("Enter");
  await page.getByRole("alert").waitFor();
  await focused(page, "New password");
  await see("new-password-wrong");
  await page.goto("/reset/gone");
  await see("reset-gone");
  await page.goto(links.invitation);
  await see("invitation");
  await page.keyboard.type("New");
  await page.keyboard.press("Tab");
  await page.keyboard.type("aaaaaaaaaaaa");
  await page.keyboard.press("Enter");
  await page.getByRole("alert").waitFor();
  await focused(page, "Choose a password");
  await see("invitation-wrong");
  page.clean();
}

async function members(world, options, look, links) {
  const page = await world.open(options);
  const see = (name) => lookAt(world, page, `${name}-${look}`);
  await signIn(world, page, "ada@example.com");
  await see("account");
  await page.locator("#current").fill(world.given.password);
  await page.locator("#new").fill("aaaaaaaaaaaa");
  await page.keyboard.press("Enter");
  await page.getByRole("alert").waitFor();
  await focused(page, "New password");
  await see("account-wrong");
  await page.goto("/account");
  await page.getByRole("button", { name: "Set up an app" }).press("Enter");
  await page.getByRole("img", { name: "QR code" }).waitFor();
  await see("enrol");
  await page.keyboard.type("000000");
  await page.keyboard.press("Enter");
  await page.getByRole("alert").waitFor();
  await focused(page, "The code that it shows now");
  await see("enrol-wrong");
  await page.goto("/account/confirm?next=/account");
  await see("confirm");
  await page.keyboard.type("not the password");
  await page.keyboard.press("Enter");
  await page.getByRole("alert").first().waitFor();
  await focused(page, "Password");
  await see("confirm-wrong");
  await page.keyboard.type(world.given.password);
  await page.keyboard.press("Enter");
  await page.waitForURL(`${world.url}/account`);
  await page.goto("/account/passkeys/new");
  await see("add-passkey");
  await page.goto(links.checkout);
  await see("checkout");
  await page.goto(links.setup);
  await see("billing-setup");
  await page.goto("/billing/setup?workspaceId=nothing");
  await see("error");
  page.clean();
}

async function secondFactor(world, options, look, links, visit) {
  const page = await world.open(options);
  const see = (name) => lookAt(world, page, `${name}-${look}`);
  await page.goto("/login?next=/account");
  await page.getByLabel("Email").fill("grace@example.com");
  await page.getByLabel("Password").fill(world.given.password);
  await page.keyboard.press("Enter");
  await page.waitForURL(`${world.url}/login/second-factor?next=/account`);
  await see("second-step");
  await page.keyboard.type("000000");
  await page.keyboard.press("Enter");
  await page.getByRole("alert").first().waitFor();
  await focused(page, "Code");
  await see("second-step-wrong");
  // A code works once: two time steps of the app, then recovery codes.
  await page.keyboard.type(visit < 2 ? world.code(links.key, visit) : links.codes[visit]);
  await page.keyboard.press("Enter");
  await page.waitForURL(`${world.url}/account`);
  await see("account-with-app");
  page.clean();
}

/** The whole sequence without scripts: sign-in, app set-up, sign-out, sign-in with it, reset. */
async function withoutScripts(world, links) {
  const page = await world.open({ javaScriptEnabled: false, expected: [401, 422] });
  await signIn(world, page, "alan@example.com");
  await page.getByRole("button", { name: "Set up an app" }).click();
  const key = await page.locator("code").textContent();
  await page.getByLabel("The code").fill(world.code(key, 0));
  await page.keyboard.press("Enter");
  await page.getByRole("link", { name: "I have saved these codes" }).click();
  await page.getByRole("button", { name: "Sign out", exact: true }).click();
  await page.waitForURL(`${world.url}/login`);
  await page.goto("/login?next=/account");
  await page.getByLabel("Email").fill("alan@example.com");
  await page.getByLabel("Password").fill(world.given.password);
  await page.keyboard.press("Enter");
  await page.getByLabel("Code").fill(world.code(key, 1));
  await page.keyboard.press("Enter");
  await page.getByRole("button", { name: "Turn off" }).click();
  await page.getByText("The authenticator app was removed.").waitFor();
  await page.getByRole("button", { name: "Sign out", exact: true }).click();
  await page.goto(links.reset);
  await page.getByLabel("New password").fill("another horse battery");
  await page.keyboard.press("Enter");
  await page.getByText("Your new password is set.").waitFor();
  await page.goto(links.invitation);
  await page.getByLabel("Your name").fill("New");
  await page.getByLabel("Choose a password").fill("a stable of horses");
  await page.keyboard.press("Enter");
  await page.waitForURL(`${world.url}/welcome`);
  await page.goto(links.invitation);
  await page.getByRole("heading", { name: "does not work any more" }).waitFor();
}

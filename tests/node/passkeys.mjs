// Passkeys with Chromium's virtual authenticator: added, used alone, used after a password,
// refused, removed, and the pages without scripts.

import assert from "node:assert/strict";

import { accessible, drive, focused } from "./browser.mjs";

await drive(async (world) => {
  const page = await world.open();
  await page.devtools.send("WebAuthn.enable");
  const { authenticatorId } = await page.devtools.send("WebAuthn.addVirtualAuthenticator", {
    options: {
      protocol: "ctap2",
      transport: "internal",
      hasResidentKey: true,
      hasUserVerification: true,
      isUserVerified: true,
      automaticPresenceSimulation: true,
    },
  });
  const verified = (isUserVerified) =>
    page.devtools.send("WebAuthn.setUserVerified", { authenticatorId, isUserVerified });

  const password = async () => {
    await page.goto("/login?next=/account");
    await focused(page, "Email");
    await page.keyboard.type(world.given.email);
    await page.getByLabel("Password").fill(world.given.password);
    await page.keyboard.press("Enter");
  };
  const signOut = async () => {
    await page.getByRole("button", { name: "Sign out", exact: true }).click();
    await page.waitForURL(`${world.url}/login`);
    await page.goto("/login?next=/account");
  };

  // Added with the keyboard alone.
  await password();
  await page.waitForURL(`${world.url}/account`);
  await page.getByRole("link", { name: "Add a passkey" }).press("Enter");
  await page.waitForURL(`${world.url}/account/passkeys/new`);
  await accessible(page, "add a passkey");
  await world.shoot(page, "add-passkey");
  await focused(page, "Name");
  await page.keyboard.type("Laptop");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "Keep these codes" }).waitFor();
  // It comes after the codes, so all of them have been rendered.
  await page.getByRole("link", { name: "I have saved these codes" }).waitFor();
  assert.equal(await page.locator("code").count(), 8);
  await accessible(page, "recovery codes");
  await world.shoot(page, "recovery-codes");
  await page.getByRole("link", { name: "I have saved these codes" }).click();
  await page.getByText("Laptop").waitFor();
  await accessible(page, "account with a passkey");
  await world.shoot(page, "account-with-passkey");

  // The same device has one already, so the browser does not create another.
  await page.getByRole("link", { name: "Add a passkey" }).click();
  await page.waitForURL(`${world.url}/account/passkeys/new`);
  await focused(page, "Name");
  await page.keyboard.type("Laptop again");
  await page.keyboard.press("Enter");
  await page.getByRole("alert").filter({ hasText: "already" }).waitFor();
  await world.shoot(page, "add-passkey-again");
  await page.goto("/account");
  await signOut();

  // Alone.
  const alone = page.getByRole("button", { name: "Sign in with a passkey" });
  await alone.press("Enter");
  await page.waitForURL(`${world.url}/account`);
  await page.getByText("last used").waitFor();
  await signOut();

  // Not without user verification.
  await verified(false);
  await alone.press("Enter");
  await page.getByRole("alert").filter({ hasText: "No passkey was used" }).waitFor();
  assert.ok(await alone.evaluate((button) => button === document.activeElement), "focus is kept");
  await accessible(page, "no passkey");
  await world.shoot(page, "no-passkey");
  await verified(true);
  await alone.press("Enter");
  await page.waitForURL(`${world.url}/account`);
  await signOut();

  // After a password.
  await password();
  await page.waitForURL(`${world.url}/login/second-factor?next=/account`);
  await accessible(page, "second step with a passkey");
  await world.shoot(page, "second-step-passkey");
  await page.getByRole("button", { name: "Use a passkey" }).press("Enter");
  await page.waitForURL(`${world.url}/account`);

  // As a confirmation.
  await page.goto("/account/confirm?next=/account/passkeys/new");
  await accessible(page, "confirm with a passkey");
  await world.shoot(page, "confirm-passkey");
  await page.getByRole("button", { name: "Use a passkey" }).press("Enter");
  await page.waitForURL(`${world.url}/account/passkeys/new`);

  // After its removal the password is enough again, and the passkey is not accepted any more.
  await page.goto("/account");
  await page.getByRole("button", { name: "Remove the passkey Laptop" }).press("Enter");
  await page.getByText("The passkey was removed.").waitFor();
  await signOut();
  page.clean();
  const refused = page.waitForResponse((response) => response.status() === 401);
  await alone.press("Enter");
  await refused;
  await page.getByText("That passkey was not accepted.").waitFor();
  await accessible(page, "passkey refused");
  await world.shoot(page, "passkey-refused");

  // Without scripts the pages show a hint, and the rest works.
  const plain = await world.open({ javaScriptEnabled: false });
  await plain.goto("/login?next=/account");
  // Playwright finds no text in `noscript`, but its content is visible.
  const hint = plain.locator("noscript p");
  await hint.waitFor();
  assert.match(await hint.textContent(), /need scripts/);
  assert.equal(await plain.getByRole("button", { name: "passkey" }).count(), 0);
  await plain.getByLabel("Email").fill(world.given.email);
  await plain.getByLabel("Password").fill(world.given.password);
  await plain.keyboard.press("Enter");
  await plain.waitForURL(`${world.url}/account`);
  await plain.goto("/account/passkeys/new");
  await hint.waitFor();
  assert.match(await hint.textContent(), /authenticator app/);
  await world.shoot(plain, "add-passkey-no-scripts");
  plain.clean();
});

// Signs in with the keyboard, and out again.

import assert from "node:assert/strict";

import { accessible, drive } from "./browser.mjs";

await drive(async (world) => {
  const page = await world.open({ expected: [401] });
  await page.goto("/account");
  assert.equal(new URL(page.url()).pathname, "/login");
  await accessible(page, "sign in");
  await page.keyboard.type(world.given.email);
  await page.keyboard.press("Tab");
  await page.keyboard.type("not the password");
  await page.keyboard.press("Enter");
  await page.getByRole("alert").waitFor();
  await page.keyboard.type(world.given.password);
  await page.keyboard.press("Enter");
  await page.waitForURL("**/account");
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.waitForURL("**/login");
  page.clean();
});

// A user at an application that a proxy authenticates: signs in at the platform, agrees to share the
// details, and is a user of the application. It prints what the application received.

import assert from "node:assert/strict";

import { drive } from "./browser.mjs";
import { signIn } from "./person.mjs";

await drive(async (world) => {
  const { given } = world;
  const page = await world.open({ ignoreHTTPSErrors: true });
  await page.goto(`${given.app}/reports?page=2#section-4`);
  await signIn(page, given);
  await page.getByRole("heading", { name: "Share your details" }).waitFor();
  const shared = await page.locator("main").textContent();
  assert.ok(page.url().startsWith(`${world.url}/edge/sign-in?`), page.url());
  await page.getByRole("button", { name: "Continue" }).click();
  await page.waitForURL(`${given.app}/reports?page=2#section-4`);
  const seen = JSON.parse(await page.locator("body").textContent());
  // The headers that a script of the page can add.
  const forged = await page.evaluate(async () => {
    const names = ["Remote-User", "Remote_User", "Remote.User", "svc-user-name", "svc_assertion"];
    const headers = Object.fromEntries(names.map((name) => [name, "root"]));
    return (await fetch("/forged", { headers })).json();
  });
  page.clean();
  console.log(JSON.stringify({ shared, seen, forged }));
});

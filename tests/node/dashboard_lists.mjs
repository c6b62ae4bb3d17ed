// Lists of two pages: a dialog opens on the second page, which stays behind it, also after a
// reload. The removal of the last row of a page leads to the page before. An operator finds a user and
// ends a session of theirs, which the open view of the user reports.

import assert from "node:assert/strict";

import { accessible, drive } from "./browser.mjs";
import { signIn } from "./looks.mjs";

await drive(async (world) => {
  const page = await world.open({ viewport: { width: 1440, height: 900 } });
  await signIn(world, page, "ada@example.com");
  await servers(world, page);
  await users(page);
  await sessions(world, page);
  page.clean();
});

/** The number of the page in the address. */
async function isAt(page, number) {
  await page.waitForURL((address) => (address.searchParams.get("page") ?? "1") === number);
}

/** Follows the list to its second page. Returns the name in the only row, or in the first one. */
async function second(page) {
  await page.getByText(/^Page 1 of 2 · \d+ in all$/).waitFor();
  await page.getByRole("button", { name: "Next" }).click();
  await isAt(page, "2");
  await page.getByText(/^Page 2 of 2 · \d+ in all$/).waitFor();
  return await page.getByRole("row").nth(1).getByRole("cell").first().locator("span").first().innerText();
}

async function servers({ given }, page) {
  await page.goto(`/projects/${given.project}/servers`);
  const name = (await second(page)).trim();
  assert.match(name, /^server \d+$/);
  const row = page.getByRole("row").filter({ hasText: name });
  assert.equal(await page.getByRole("row").count(), 2, "the second page has more than the head and one row");
  const edit = page.getByRole("dialog", { name: `Edit ${name}` });
  await row.getByRole("button", { name: "Edit" }).click();
  await edit.waitFor();
  await isAt(page, "2");
  await page.reload();
  await edit.waitFor();
  await page.keyboard.press("Escape");
  await edit.waitFor({ state: "detached" });
  await isAt(page, "2");
  // The page had no control with the focus before the dialog of its address.
  await page.locator("h1:focus").waitFor();
  await accessible(page, "the second page of a list");

  await row.getByRole("button", { name: "Delete" }).click();
  const end = page.getByRole("dialog", { name: `Delete ${name}` });
  await end.getByLabel(`Type ${name} to confirm`).fill(name);
  await end.getByRole("button", { name: "Delete", exact: true }).click();
  await page.getByText("The server is deleted.").waitFor();
  await isAt(page, "1");
  await page.getByRole("row").nth(given.page).waitFor();
  assert.equal(await page.getByRole("row").count(), given.page + 1);
  await page.locator("h1:focus").waitFor();
  page.clean();
}

/** A user of the second page has details there. A search starts at the first page. */
async function users(page) {
  await page.goto("/installation/users");
  await second(page);
  await page.getByRole("button", { name: "Details" }).first().click();
  const details = page.getByRole("dialog");
  await details.getByRole("heading", { name: "Sessions" }).waitFor();
  await isAt(page, "2");
  await page.keyboard.press("Escape");
  await details.waitFor({ state: "detached" });
  await page.getByRole("button", { name: "Details" }).first().and(page.locator(":focus")).waitFor();
  await page.getByLabel("Search users").fill("user7@example.com");
  await isAt(page, "1");
  await page.getByRole("row").filter({ hasText: "user7@example.com" }).waitFor();
  await page.waitForFunction(() => document.querySelectorAll("tbody tr").length === 1);
  page.clean();
}

/** The end is confirmed, removes the row, and leaves the focus in the details. */
async function sessions(world, page) {
  const user = await world.open({ expected: [401] });
  await signIn(world, user, "user7@example.com");
  await user.goto("/credentials");
  await user.getByRole("heading", { name: "No credential yet" }).or(user.getByRole("row").first()).first().waitFor();
  await page.getByRole("button", { name: "Details" }).click();
  const details = page.getByRole("dialog", { name: "User7", exact: true });
  await details.getByRole("button", { name: "End", exact: true }).click();
  const confirm = page.getByRole("dialog", { name: "End the session", exact: true });
  await accessible(page, "the end of a session of a user");
  await confirm.getByRole("button", { name: "End the session" }).click();
  await confirm.waitFor({ state: "detached" });
  await details.getByText("This user is not signed in.").waitFor();
  await details.getByRole("button", { name: "Close", exact: true }).and(page.locator(":focus")).waitFor();
  // The view learns it with its next request.
  await user.getByLabel("Search names").fill("robot");
  await user.getByRole("alert").filter({ hasText: "Your session has ended." }).first().waitFor();
  user.clean();
  await user.close();
}

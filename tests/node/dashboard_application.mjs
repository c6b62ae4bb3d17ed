// An application that a user has connected on the consent page: their credentials list it with its limits,
// and Revoke ends its access.

import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";

import { accessible, drive } from "./browser.mjs";
import { signIn } from "./looks.mjs";
import { approve, refused } from "./person.mjs";

const SCOPE = "account.projects.read-only";

await drive(async (world) => {
  const token = await connect(world);
  const whoami = await fetch(`${world.url}/api/whoami`, { headers: { authorization: `Bearer ${token}` } });
  assert.equal(whoami.status, 200, await whoami.text());
  const page = await world.open({ viewport: { width: 1440, height: 900 } });
  await signIn(world, page, world.given.email);
  await revoke(world, page);
  await refused(world, token);
  page.clean();
  console.log(JSON.stringify({}));
});

/** The grant with a code and PKCE. Returns the token of the application. */
async function connect(world) {
  const { client, callback } = world.given;
  const metadata = await (await fetch(`${world.url}/.well-known/oauth-authorization-server`)).json();
  const verifier = randomBytes(32).toString("base64url");
  const address = new URL(metadata.authorization_endpoint);
  address.search = new URLSearchParams({
    client_id: client,
    redirect_uri: callback,
    response_type: "code",
    scope: SCOPE,
    code_challenge: createHash("sha256").update(verifier).digest("base64url"),
    code_challenge_method: "S256",
    state: "a-state",
  });
  const returned = await approve(world, address);
  assert.equal(returned.searchParams.get("state"), "a-state");
  const body = new URLSearchParams({
    grant_type: "authorization_code",
    client_id: client,
    redirect_uri: callback,
    code: returned.searchParams.get("code"),
    code_verifier: verifier,
  });
  const response = await fetch(metadata.token_endpoint, { method: "POST", body });
  const tokens = await response.json();
  assert.equal(response.status, 200, JSON.stringify(tokens));
  return tokens.access_token;
}

/** The row names the application. Its details have no rotation, which is for tokens of scripts. */
async function revoke({ given }, page) {
  await page.goto("/credentials");
  const row = page.getByRole("row").filter({ hasText: `connected application ${given.client}` });
  await row.getByRole("cell", { name: "Connected application", exact: true }).waitFor();
  await row.getByRole("button", { name: "Details" }).click();
  const details = page.getByRole("dialog");
  await details.getByText(SCOPE, { exact: true }).waitFor();
  assert.equal(await details.getByRole("button", { name: "Rotate" }).count(), 0, "a connected application is rotated");
  await accessible(page, "a connected application");
  await details.getByRole("button", { name: "Revoke" }).click();
  const confirm = page.getByRole("dialog", { name: /^Revoke / });
  await confirm.getByRole("button", { name: "Revoke", exact: true }).click();
  await page.getByText(/ is revoked\.$/).waitFor();
  await row.waitFor({ state: "detached" });
  // The button that had the focus was in this row.
  await page.locator("h1:focus").waitFor();
}

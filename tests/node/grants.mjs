// The pages on which users approve clients and devices: consent, the code of a device, its
// approval, and the result pages.

import assert from "node:assert/strict";

import { drive, focused, submitted } from "./browser.mjs";
import { LOOKS, lookAt, signIn } from "./looks.mjs";

const READ = "account.projects.read-only";
/** Some scopes of each group: a bundle of the interface, highlighted ones, and others. */
const MUCH =
  "account.projects.read-only tunnels.tunnels.create-delete account.credentials.read-write " +
  "network.webhooks.read-only";

await drive(async (world) => {
  for (const [visit, { look, options }] of LOOKS.entries()) {
    // Wrong codes are counted per user.
    const person = `${world.given.people[visit]}@example.com`;
    await consent(world, options, look, person);
    await device(world, options, look, person);
  }
  await withoutScripts(world, `${world.given.people.at(-1)}@example.com`);
});

async function consent(world, options, look, person) {
  const page = await world.open(options);
  const see = (name) => lookAt(world, page, `${name}-${look}`);
  // First the sign-in, and then the request.
  await page.goto(authorize(world, MUCH));
  await focused(page, "Email");
  await page.keyboard.type(person);
  await page.keyboard.press("Tab");
  await page.keyboard.type(world.given.password);
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "Allow Web Client to access your account?" }).waitFor();
  await see("consent");
  assert.equal((await decide(world, page, "Deny")).get("error"), "access_denied");

  await page.goto(authorize(world, READ));
  await see("consent-small");
  assert.ok((await decide(world, page, "Approve")).get("code"));

  const unregistered = authorize(world, READ).replace("client_id=web", "client_id=nobody");
  const answer = await page.goto(unregistered);
  assert.equal(answer.status(), 400);
  await page.getByRole("heading", { name: "This link does not work" }).waitFor();
  await see("consent-unregistered");
  page.clean();
}

async function device(world, options, look, person) {
  const page = await world.open(options);
  const see = (name) => lookAt(world, page, `${name}-${look}`);
  await signIn(world, page, person);
  for (const [button, heading] of [
    ["Approve", "Approved"],
    ["Deny", "Denied"],
  ]) {
    const code = await begin(world, page);
    await page.goto("/device");
    await see("device");
    await page.keyboard.type("BCDF-GHJK");
    await page.keyboard.press("Enter");
    await page.getByRole("alert").waitFor();
    await focused(page, "Code");
    await see("device-wrong");
    // The wrong input is kept and selected, so that typing replaces it.
    await page.keyboard.press("Control+A");
    await page.keyboard.type(code.toLowerCase());
    await page.keyboard.press("Enter");
    await page.getByText(code, { exact: true }).waitFor();
    await page.getByText("The device reports:").waitFor();
    await see("device-approval");
    await press(page, button);
    await page.getByRole("heading", { name: heading, exact: true }).waitFor();
    await see(`device-${heading.toLowerCase()}`);
  }

  // An older window that is still open is too late.
  const code = await begin(world, page);
  const late = await page.context().newPage();
  for (const window of [page, late]) {
    await window.goto(`/device?user_code=${code}`);
    await window.getByRole("button", { name: "Continue" }).press("Enter");
    await window.getByRole("button", { name: "Approve" }).waitFor();
  }
  await press(late, "Deny");
  await late.getByRole("heading", { name: "Denied" }).waitFor();
  await press(page, "Approve");
  await page.getByRole("heading", { name: "This request has already ended" }).waitFor();
  await see("device-gone");

  await page.getByRole("link", { name: "Enter another code" }).press("Enter");
  for (let attempt = 0; attempt < 5; attempt += 1) {
    await page.getByLabel("Code").fill("BCDF-GHJK");
    await submitted(page);
    await page.getByRole("alert").waitFor();
    if (await page.getByText("Too many attempts").count()) break;
  }
  await page.getByText("Too many attempts").waitFor();
  await see("device-throttled");
  page.clean();
}

/** Both grants without scripts. */
async function withoutScripts(world, person) {
  const page = await world.open({ javaScriptEnabled: false });
  await signIn(world, page, person);
  await page.goto(authorize(world, READ));
  assert.ok((await decide(world, page, "Approve")).get("code"));
  const code = await begin(world, page);
  await page.goto("/device");
  await page.getByLabel("Code").fill(code);
  await page.keyboard.press("Enter");
  await press(page, "Approve");
  await page.getByRole("heading", { name: "Approved" }).waitFor();
  page.clean();
}

/** The address to which a client sends users. */
function authorize(world, scope) {
  const asked = new URLSearchParams({
    response_type: "code",
    client_id: "web",
    redirect_uri: world.given.callback,
    scope,
    state: "xyz",
    code_challenge: "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM",
    code_challenge_method: "S256",
  });
  return `/oauth/authorize?${asked}`;
}

/** The first request of a device. Returns its code. */
async function begin(world, page) {
  const answer = await page.context().request.post("/oauth/device_authorization", {
    form: {
      client_id: "svc-cli",
      scope: MUCH,
      svc_source: JSON.stringify([
        { key: "host", value: `${"a-rather-long-name.".repeat(6)}example`, label: "Host" },
        { key: "os", value: "linux", label: "System" },
      ]),
    },
  });
  assert.equal(answer.status(), 200, await answer.text());
  return (await answer.json()).user_code;
}

/**
 * Decides on the consent page. No client is running: the test checks the request that the browser
 * sends to it, if the policy of the page allows it.
 */
async function decide(world, page, button) {
  const returned = page.waitForRequest((request) => request.url().startsWith(world.given.callback));
  // The browser shows its own error page for an unknown name.
  const predicate = () => page.url().startsWith("chrome-error:");
  const shown = page.waitForEvent("load", { predicate });
  await press(page, button);
  const back = new URL((await returned).url());
  assert.equal(back.searchParams.get("state"), "xyz");
  assert.equal(back.searchParams.get("iss"), world.url);
  await shown;
  return back.searchParams;
}

/** Moves to a button with the keyboard and presses it. */
async function press(page, name) {
  const button = await page.getByRole("button", { name, exact: true }).elementHandle();
  for (let stop = 0; stop < 8; stop += 1) {
    await page.keyboard.press("Tab");
    if (await button.evaluate((node) => node === document.activeElement)) {
      await page.keyboard.press("Enter");
      return;
    }
  }
  assert.fail(`the keyboard does not reach ${name}`);
}

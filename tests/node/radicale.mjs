// A user of Radicale, a server of calendars that a proxy authenticates: signs in at the platform, and
// Radicale's page shows their own collections. Someone else has a calendar there.

import assert from "node:assert/strict";

import { drive } from "./browser.mjs";
import { signIn } from "./person.mjs";

const OTHER = "someone-else@example.com";

await drive(async (world) => {
  const { given } = world;
  // Only the proxy reaches the service. This is its request for the other user.
  const made = await fetch(`http://${given.service}/${OTHER}/private/`, {
    method: "MKCALENDAR",
    headers: { "X-Remote-User": OTHER },
  });
  assert.equal(made.status, 201);

  // Its page asks for an extension that is off (404).
  const page = await world.open({ ignoreHTTPSErrors: true, expected: [403, 404] });
  await page.goto(`${given.app}/.web/`);
  await signIn(page, given);
  await page.getByRole("heading", { name: "Share your details" }).waitFor();
  await page.getByRole("button", { name: "Continue" }).click();
  await page.waitForURL(`${given.app}/.web/`);
  await page.getByText(`${given.email}'s Collections`).waitFor();

  const call = (request) => page.evaluate(send, request);
  const created = await call({ method: "MKCALENDAR", path: `/${given.email}/meetings/` });
  assert.equal(created.status, 201);
  await page.reload();
  await page.getByText(`${given.email}/meetings`).waitFor();

  const seen = principal(await call({ method: "PROPFIND", path: "/" }));
  const forged = [];
  // Gateways of the CGI family, such as its server, do not distinguish these.
  for (const name of ["X-Remote-User", "x_remote_user", "X.Remote.User", "X-Remote_User"]) {
    const headers = { [name]: OTHER };
    forged.push({
      principal: principal(await call({ method: "PROPFIND", path: "/", headers })),
      other: (await call({ method: "PROPFIND", path: `/${OTHER}/private/`, headers })).status,
    });
  }
  page.clean();
  console.log(JSON.stringify({ other: OTHER, seen, forged }));
});

/** Runs in the page. */
async function send({ method, path, headers }) {
  const response = await fetch(path, { method, headers });
  return { status: response.status, text: await response.text() };
}

/** The user whom the service sees (RFC 5397). */
function principal({ status, text }) {
  assert.equal(status, 207, text);
  const [, href] = text.match(/<current-user-principal><href>([^<]*)</) ?? [];
  return href && decodeURIComponent(href);
}

// A page of one tunnel that calls an API behind another, protected tunnel: without a credential, with
// a token, and with the session of its user. It prints the requests that the API received.

import assert from "node:assert/strict";

import { drive } from "./browser.mjs";
import { signIn } from "./person.mjs";

// Browsers do not trust the development CA.
const TRUSTING = { ignoreHTTPSErrors: true };

await drive(async (world) => {
  const { given } = world;
  const page = await world.open({ ...TRUSTING, expected: [401] });
  await page.goto(`${given.page}/`);

  // The page reads why it was refused.
  const refused = await call(page, `${given.api}/refused`);
  assert.equal(refused.status, 401);
  assert.equal(refused.body.code, "unauthenticated");
  assert.equal(refused.body.detail, "This address needs a token or a browser session.");
  assert.match(refused.challenge, /^Bearer/);
  assert.equal(refused.reference, refused.body.reference);
  const wrong = await call(page, `${given.api}/wrong`, "a.b.c");
  assert.deepEqual([wrong.status, wrong.body.code], [401, "invalid_token"]);

  const byToken = await call(page, `${given.api}/token`, given.token);
  assert.deepEqual([byToken.status, byToken.body.way], [200, "token"]);

  // The user signs in at the API in another tab.
  const tab = await page.context().newPage();
  await tab.goto(`${given.api}/hello`);
  await signIn(tab, given);
  await tab.waitForURL(`${given.api}/hello`);
  const bySession = await call(page, `${given.api}/session`);
  assert.deepEqual([bySession.status, bySession.body.way], [200, "session"]);

  // A page that the tunnel does not list: neither it nor the API receives anything.
  const other = await page.context().newPage();
  await other.goto(`${given.other}/`);
  for (const token of [undefined, given.token]) {
    const blocked = await call(other, `${given.api}/blocked`, token);
    assert.equal(blocked.error, "TypeError");
  }
  const { body } = await call(page, `${given.api}/last`);
  page.clean();
  console.log(JSON.stringify({ seen: body.seen.filter((line) => !line.startsWith("GET ")) }));
});

/** A request that needs a preflight, with the cookies of the API. */
async function call(page, address, token) {
  return await page.evaluate(
    async ([address, token]) => {
      const headers = { "content-type": "application/json", "x-own": "1" };
      if (token) headers.authorization = `Bearer ${token}`;
      try {
        const reply = await fetch(address, { method: "PUT", credentials: "include", headers, body: "{}" });
        return {
          status: reply.status,
          challenge: reply.headers.get("www-authenticate"),
          reference: reply.headers.get("svc-reference"),
          body: await reply.json(),
        };
      } catch (error) {
        return { error: error.name };
      }
    },
    [address, token],
  );
}

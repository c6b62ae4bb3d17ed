// openid-client: discovery, authorization code with PKCE, revocation; and the device grant.

import assert from "node:assert/strict";
import { createRequire } from "node:module";

import { drive } from "./browser.mjs";
import { approve, letIn, refused, toolCall, toolResult } from "./person.mjs";

const require = createRequire(`${process.env.SVC_TEST_NODE_PACKAGES}/`);
const client = await import(require.resolve("openid-client"));

// Clients add scopes of other servers. The platform ignores them.
const SCOPE = "openid account.projects.read-only offline_access";

await drive(async (world) => {
  const code = await codeGrant(world);
  const device = await deviceGrant(world);
  console.log(JSON.stringify({ code, device }));
});

/** A client of the platform, without a secret. */
function discover(world, id) {
  return client.discovery(new URL(world.url), id, undefined, client.None(), {
    algorithm: "oauth2",
    // The platform of a test has no TLS.
    execute: [client.allowInsecureRequests],
  });
}

async function codeGrant(world) {
  const config = await discover(world, world.given.client);
  const verifier = client.randomPKCECodeVerifier();
  const state = client.randomState();
  const address = client.buildAuthorizationUrl(config, {
    redirect_uri: world.given.callback,
    scope: SCOPE,
    resource: world.url,
    code_challenge: await client.calculatePKCECodeChallenge(verifier),
    code_challenge_method: "S256",
    state,
  });
  const returned = await approve(world, address);
  // It checks `state` and, because the metadata announce it, `iss` (RFC 9207).
  const tokens = await client.authorizationCodeGrant(config, returned, {
    pkceCodeVerifier: verifier,
    expectedState: state,
  });
  return await use(world, config, tokens);
}

async function deviceGrant(world) {
  const config = await discover(world, "svc-cli");
  const started = await client.initiateDeviceAuthorization(config, { scope: SCOPE });
  const polled = client.pollDeviceAuthorizationGrant(config, started);
  await letIn(world, started.verification_uri, started.user_code);
  return await use(world, config, await polled);
}

/** Calls the API and a tool, and revokes the token. */
async function use(world, config, tokens) {
  assert.equal(tokens.token_type, "bearer");
  assert.equal(tokens.refresh_token, undefined);
  const get = (path, { method = "GET", body, headers } = {}) =>
    client.fetchProtectedResource(
      config,
      tokens.access_token,
      new URL(path, world.url),
      method,
      body,
      new Headers(headers),
    );
  const whoami = await (await get("/api/whoami")).json();
  const listed = await toolResult(await get("/api/mcp", toolCall("svc_project_list")));
  await client.tokenRevocation(config, tokens.access_token);
  await refused(world, tokens.access_token);
  return { whoami, listed, scope: tokens.scope, expires_in: tokens.expires_in };
}

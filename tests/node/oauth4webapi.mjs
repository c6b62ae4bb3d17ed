// oauth4webapi, a low-level library: each step is a request and a check of its answer. It also acts
// as the resource server of RFC 9068, and reads its token.
//
// It signs in twice: with the address of the platform, and with the MCP endpoint that requires a token,
// whose challenge leads to its metadata.

import assert from "node:assert/strict";
import { createRequire } from "node:module";

import { drive } from "./browser.mjs";
import { approve, refused, toolCall, toolResult } from "./person.mjs";

const require = createRequire(`${process.env.SVC_TEST_NODE_PACKAGES}/`);
const oauth = await import(require.resolve("oauth4webapi"));

const SCOPE = "account.projects.read-only";
// The platform of a test has no TLS.
const insecure = { [oauth.allowInsecureRequests]: true };

await drive(async (world) => {
  const origin = await signedIn(world, new URL(world.url), "/api/mcp");
  const endpoint = new URL("/api/mcp/sign-in", world.url);
  const { resource_metadata: metadata } = await challenged(endpoint);
  assert.equal(metadata, `${world.url}/.well-known/oauth-protected-resource${endpoint.pathname}`);
  const signIn = await signedIn(world, endpoint, endpoint.pathname);
  console.log(JSON.stringify({ origin, sign_in: signIn }));
});

/** The parameters of the challenge of a request with an invalid token (RFC 6750). */
async function challenged(endpoint) {
  const { method, headers, body } = toolCall("svc_project_list");
  const refusal = await oauth
    .protectedResourceRequest("invalid", method, endpoint, new Headers(headers), body, insecure)
    .catch((error) => error);
  assert.ok(refusal instanceof oauth.WWWAuthenticateChallengeError, String(refusal));
  assert.equal(refusal.status, 401);
  const [{ scheme, parameters }] = refusal.cause;
  assert.equal(scheme, "bearer");
  assert.equal(parameters.error, "invalid_token");
  return parameters;
}

/** The whole grant for a resource: discovery, sign-in, use of the API and of a tool, and revocation. */
async function signedIn(world, identifier, tools) {
  const issuer = new URL(world.url);
  // RFC 9728 leads from the resource to its authorization server.
  const resource = await oauth.processResourceDiscoveryResponse(
    identifier,
    await oauth.resourceDiscoveryRequest(identifier, insecure),
  );
  assert.deepEqual(resource.authorization_servers, [world.url]);
  const server = await oauth.processDiscoveryResponse(
    issuer,
    await oauth.discoveryRequest(issuer, { algorithm: "oauth2", ...insecure }),
  );

  const client = { client_id: world.given.client };
  const verifier = oauth.generateRandomCodeVerifier();
  const state = oauth.generateRandomState();
  const address = new URL(server.authorization_endpoint);
  address.search = new URLSearchParams({
    client_id: client.client_id,
    response_type: "code",
    redirect_uri: world.given.callback,
    scope: SCOPE,
    resource: resource.resource,
    code_challenge: await oauth.calculatePKCECodeChallenge(verifier),
    code_challenge_method: "S256",
    state,
  });
  const returned = await approve(world, address);
  const params = oauth.validateAuthResponse(server, client, returned, state);
  const redeem = () =>
    oauth.authorizationCodeGrantRequest(
      server,
      client,
      oauth.None(),
      params,
      world.given.callback,
      verifier,
      { ...insecure, additionalParameters: { resource: resource.resource } },
    );
  const tokens = await oauth.processAuthorizationCodeResponse(server, client, await redeem());
  const token = tokens.access_token;

  const headers = { authorization: `Bearer ${token}` };
  // OA-6: a token is for the whole platform.
  const claims = await oauth.validateJwtAccessToken(
    server,
    new Request(world.url, { headers }),
    world.url,
    insecure,
  );
  assert.equal(claims.client_id, client.client_id);
  assert.equal(claims.scope, SCOPE);

  const get = (path, { method = "GET", body, headers } = {}) =>
    oauth.protectedResourceRequest(
      token,
      method,
      new URL(path, world.url),
      new Headers(headers),
      body,
      insecure,
    );
  const whoami = await (await get("/api/whoami")).json();
  const listed = await toolResult(await get(tools, toolCall("svc_project_list")));

  await oauth.processRevocationResponse(
    await oauth.revocationRequest(server, client, oauth.None(), token, insecure),
  );
  await refused(world, token);

  // The redeemed code is refused.
  await assert.rejects(
    async () => oauth.processAuthorizationCodeResponse(server, client, await redeem()),
    { error: "invalid_grant" },
  );
  return { whoami, listed, scope: tokens.scope };
}

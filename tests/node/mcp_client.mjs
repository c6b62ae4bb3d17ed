// The TypeScript SDK of the Model Context Protocol. It starts the flow on a 401. The endpoint that
// requires a token returns one at once. The endpoint with public lists does not return one without a
// credential, so there the client has an invalid bearer, as after a revocation (MC-7).

import assert from "node:assert/strict";
import { createRequire } from "node:module";

import { drive } from "./browser.mjs";
import { approve, refused } from "./person.mjs";

const require = createRequire(`${process.env.SVC_TEST_NODE_PACKAGES}/`);
const sdk = (path) => import(require.resolve(`@modelcontextprotocol/sdk/${path}`));
const { Client } = await sdk("client/index.js");
const { StreamableHTTPClientTransport } = await sdk("client/streamableHttp.js");
const { UnauthorizedError } = await sdk("client/auth.js");

const NAME = { name: "test", version: "1" };

/** Data that a client stores about a server. */
class Memory {
  constructor({ client, callback }, held) {
    this.client = client;
    this.redirectUrl = callback;
    this.word = "a state of the test";
    this.held = held;
  }

  get clientMetadata() {
    return { redirect_uris: [this.redirectUrl], token_endpoint_auth_method: "none" };
  }

  clientInformation() {
    return { client_id: this.client };
  }

  state() {
    return this.word;
  }

  tokens() {
    return this.held;
  }

  saveTokens(tokens) {
    this.held = tokens;
  }

  redirectToAuthorization(address) {
    this.address = address;
  }

  saveCodeVerifier(verifier) {
    this.verifier = verifier;
  }

  codeVerifier() {
    return this.verifier;
  }
}

await drive(async (world) => {
  const stale = { access_token: "stale", token_type: "bearer" };
  const publicEndpoint = await run(world, "/api/mcp", stale);
  const signIn = await run(world, "/api/mcp/sign-in", undefined);
  console.log(JSON.stringify({ public: publicEndpoint, sign_in: signIn }));
});

async function run(world, path, held) {
  const endpoint = new URL(path, world.url);
  const memory = new Memory(world.given, held);
  const transport = () => new StreamableHTTPClientTransport(endpoint, { authProvider: memory });

  const first = transport();
  await assert.rejects(new Client(NAME).connect(first), UnauthorizedError);
  assert.ok(memory.address, "it sends the person nowhere");
  const returned = await approve(world, memory.address);
  assert.equal(returned.searchParams.get("state"), memory.word);
  assert.equal(returned.searchParams.get("iss"), world.url);
  await first.finishAuth(returned.searchParams.get("code"));

  const client = new Client(NAME);
  await client.connect(transport());
  const { tools } = await client.listTools();
  const called = await client.callTool({ name: "svc_project_list", arguments: {} });
  const whoami = await client.callTool({ name: "svc_whoami", arguments: {} });
  await client.close();

  const token = memory.held.access_token;
  await fetch(`${world.url}/oauth/revoke`, {
    method: "POST",
    body: new URLSearchParams({ token }),
  });
  await refused(world, token);
  return {
    tools: tools.map((tool) => tool.name),
    listed: called.structuredContent,
    whoami: whoami.structuredContent,
    asked: new URL(memory.address).searchParams.get("scope"),
    resource: new URL(memory.address).searchParams.get("resource"),
  };
}

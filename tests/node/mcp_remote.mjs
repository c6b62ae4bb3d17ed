// mcp-remote, which connects MCP clients that only start programs to a remote server. A client of the
// SDK starts it. It prints the address that a user has to open, and serves the callback itself.

import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";

import { drive } from "./browser.mjs";
import { consent, letIn, refused } from "./person.mjs";

const require = createRequire(`${process.env.SVC_TEST_NODE_PACKAGES}/`);
const sdk = (path) => import(require.resolve(`@modelcontextprotocol/sdk/${path}`));
const { Client } = await sdk("client/index.js");
const { StdioClientTransport } = await sdk("client/stdio.js");

const PROXY = join(process.env.SVC_TEST_NODE_PACKAGES, "node_modules/mcp-remote/dist/proxy.js");

await drive(async (world) => {
  const { callback, client, port } = world.given;
  const { hostname, pathname } = new URL(callback);
  const code = await signedIn(world, "code", {
    args: [String(port), "--host", hostname, "--callback-path", pathname, ...registered(client)],
    prompt: new RegExp(`(${world.url}/oauth/authorize\\?\\S+)\\s`),
    approve: ([, address]) => consent(world, address),
  });
  // Without a browser on this machine.
  const device = await signedIn(world, "device", {
    args: ["--device-code", ...registered("svc-cli")],
    prompt: new RegExp(`(${world.url}/device\\?user_code=([A-Z-]+))\\s`),
    approve: ([, address, userCode]) => letIn(world, address, userCode),
  });
  console.log(JSON.stringify({ code, device }));
});

/** There is no dynamic client registration. */
function registered(client) {
  return ["--static-oauth-client-info", JSON.stringify({ client_id: client })];
}

/** The results after a sign-in. The program keeps the token for its next start, until it is revoked. */
async function signedIn(world, name, { args, prompt, approve }) {
  const directory = join(world.given.directory, name);
  const first = start(world, directory, args, prompt);
  const page = first.prompted.then(approve);
  try {
    // A failed approval ends the script at once.
    await Promise.race([first.connected, page.then(() => first.connected)]);
  } catch (error) {
    await first.client.close();
    throw error;
  }
  const results = await use(first.client);
  const { searchParams } = new URL((await first.prompted)[1]);
  results.asked = searchParams.get("scope");
  results.resource = searchParams.get("resource");

  const second = start(world, directory, args, prompt);
  await second.connected.catch(async (error) => {
    await second.client.close();
    throw error;
  });
  assert.deepEqual((await use(second.client)).tools, results.tools);
  assert.ok(!prompt.test(second.said()), second.said());

  const token = stored(directory).access_token;
  await fetch(`${world.url}/oauth/revoke`, { method: "POST", body: new URLSearchParams({ token }) });
  await refused(world, token);
  return results;
}

async function use(client) {
  try {
    const { tools } = await client.listTools();
    const listed = await client.callTool({ name: "svc_project_list", arguments: {} });
    const whoami = await client.callTool({ name: "svc_whoami", arguments: {} });
    return {
      tools: tools.map((tool) => tool.name),
      listed: listed.structuredContent,
      whoami: whoami.structuredContent,
    };
  } finally {
    await client.close();
  }
}

/** Starts the program and a client of it. `prompted` is the match in its output for the user. */
function start(world, directory, args, prompt) {
  const transport = new StdioClientTransport({
    command: process.execPath,
    // Time for the user, who waits for a browser on a busy machine.
    args: [PROXY, `${world.url}/api/mcp/sign-in`, ...args, "--auth-timeout", "120"],
    // Without a path, it finds no browser of this machine.
    env: { HOME: directory, MCP_REMOTE_CONFIG_DIR: directory, PATH: "/nonexistent" },
    stderr: "pipe",
  });
  let said = "";
  const prompted = Promise.withResolvers();
  transport.stderr.setEncoding("utf8").on("data", (text) => {
    said += text;
    const found = said.match(prompt);
    if (found) prompted.resolve(found);
  });
  const client = new Client({ name: "test", version: "1" });
  const connected = client.connect(transport, { timeout: 120_000 }).catch((error) => {
    throw new Error(`${error.message}: ${said}`);
  });
  return { client, connected, prompted: prompted.promise, said: () => said };
}

/** The tokens in the program's directory. */
function stored(directory) {
  const name = readdirSync(directory, { recursive: true }).find((file) => file.endsWith("_tokens.json"));
  assert.ok(name, readdirSync(directory, { recursive: true }).join());
  return JSON.parse(readFileSync(join(directory, name), "utf8"));
}

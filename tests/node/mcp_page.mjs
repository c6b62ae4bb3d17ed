// A web page that is an MCP client, with the TypeScript SDK: it signs its user in at the platform,
// which is another origin, and calls a tool. The script serves the page and the packages of the SDK.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { join } from "node:path";

import { drive } from "./browser.mjs";
import { signIn } from "./person.mjs";

const SDK = "/packages/@modelcontextprotocol/sdk/dist/esm/client";
// A browser does not read the `package.json` of packages.
const IMPORTS = {
  "zod/v4": "/packages/zod/v4/index.js",
  "pkce-challenge": "/packages/pkce-challenge/dist/index.browser.js",
  "eventsource-parser/stream": "/packages/eventsource-parser/dist/stream.js",
  "content-type": "/packages/content-type/index.js",
};
// This package is not a module, which browsers need.
const COMMON_JS = "content-type/index.js";

await drive(async (world) => {
  const { given } = world;
  const server = createServer((request, response) => void serve(world, request, response));
  await new Promise((resolve) => server.listen(given.port, "127.0.0.1", resolve));
  try {
    // The endpoint has no stream of its own, which the SDK asks for.
    const page = await world.open({ expected: [401, 405] });
    // The page leads to the platform while it loads.
    await page.goto(`${given.origin}/`, { waitUntil: "commit" });
    await page.waitForURL(`${world.url}/login?**`);
    await signIn(page, given);
    await page.getByRole("button", { name: "Approve" }).click();
    await page.waitForURL(`${given.origin}/callback?**`);
    const result = page.locator("#result");
    await result.waitFor();
    const listed = JSON.parse(await result.textContent());
    page.clean();

    // The same page at an origin that no client lists.
    const other = await world.open({ expected: ["CORS policy", "net::ERR_FAILED"] });
    await other.goto(`http://127.0.0.1:${given.port}/`);
    const failure = other.locator("#failure");
    await failure.waitFor();
    assert.match(await failure.textContent(), /^TypeError/);
    other.clean();
    console.log(JSON.stringify({ listed }));
  } finally {
    server.close();
    server.closeAllConnections();
  }
});

async function serve(world, request, response) {
  const { pathname } = new URL(request.url, world.given.origin);
  try {
    if (pathname === "/client.js") {
      response.writeHead(200, { "content-type": "text/javascript" }).end(client(world));
    } else if (pathname.startsWith("/packages/")) {
      const name = pathname.slice("/packages/".length);
      const text = await readFile(join(process.env.SVC_TEST_NODE_PACKAGES, name), "utf8");
      const isCommonJs = name === COMMON_JS;
      const module = isCommonJs ? `const exports = {};\n${text}\nexport default exports;` : text;
      response.writeHead(200, { "content-type": "text/javascript" }).end(module);
    } else if (pathname === "/" || pathname === "/callback") {
      const map = JSON.stringify({ imports: IMPORTS });
      const html = `<!doctype html><html lang="en"><title>A client</title><link rel="icon" href="data:,">
        <script type="importmap">${map}</script><script type="module" src="/client.js"></script>`;
      response.writeHead(200, { "content-type": "text/html; charset=utf-8" }).end(html);
    } else {
      response.writeHead(404).end();
    }
  } catch (error) {
    response.writeHead(500).end(String(error));
  }
}

/** The module of the page. Its tokens and its verifier stay in the storage of its tab during redirects. */
function client({ url, given }) {
  return `
import { StreamableHTTPClientTransport } from "${SDK}/streamableHttp.js";
import { UnauthorizedError } from "${SDK}/auth.js";

const memory = {
  redirectUrl: location.origin + "/callback",
  clientMetadata: { redirect_uris: [location.origin + "/callback"], token_endpoint_auth_method: "none" },
  clientInformation: () => ({ client_id: ${JSON.stringify(given.client)} }),
  state: () => "a state of the page",
  tokens: () => JSON.parse(sessionStorage.getItem("tokens")) ?? undefined,
  saveTokens: (tokens) => sessionStorage.setItem("tokens", JSON.stringify(tokens)),
  redirectToAuthorization: (address) => location.assign(address),
  saveCodeVerifier: (verifier) => sessionStorage.setItem("verifier", verifier),
  codeVerifier: () => sessionStorage.getItem("verifier"),
};
const transport = new StreamableHTTPClientTransport(new URL(${JSON.stringify(`${url}/api/mcp/sign-in`)}), {
  authProvider: memory,
});
const answers = new Map();
transport.onmessage = (message) => answers.get(message.id)?.(message);

/** Sends a request, and returns its result. */
async function call(method, params) {
  const id = answers.size + 1;
  const answered = new Promise((resolve) => answers.set(id, resolve));
  await transport.send({ jsonrpc: "2.0", id, method, params });
  const { result, error } = await answered;
  if (error) throw new Error(error.message);
  return result;
}

function show(id, text) {
  const shown = document.createElement("pre");
  shown.id = id;
  shown.textContent = text;
  document.body.append(shown);
}

try {
  const returned = new URLSearchParams(location.search);
  if (returned.has("code")) {
    if (returned.get("state") !== memory.state()) throw new Error("another state");
    await transport.finishAuth(returned.get("code"));
  }
  await transport.start();
  const clientInfo = { name: "page", version: "1" };
  const { protocolVersion } = await call("initialize", {
    protocolVersion: "2025-11-25",
    capabilities: {},
    clientInfo,
  });
  transport.setProtocolVersion(protocolVersion);
  await transport.send({ jsonrpc: "2.0", method: "notifications/initialized" });
  const { structuredContent } = await call("tools/call", { name: "svc_project_list", arguments: {} });
  show("result", JSON.stringify(structuredContent));
} catch (error) {
  // The user is on the way to the platform.
  if (!(error instanceof UnauthorizedError)) show("failure", error.name + ": " + error.message);
}
`;
}

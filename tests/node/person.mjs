// The user's part of a grant in a real browser: they sign in, read the request, and press Approve.

import assert from "node:assert/strict";
import { createServer } from "node:http";

/** The address at the client to which the user returns after the approval. */
export async function approve(world, address) {
  const { given } = world;
  const returned = Promise.withResolvers();
  // The page to which users return belongs to the client. Here it ends the script.
  const server = createServer((request, response) => {
    response.end("done");
    if (request.url.startsWith("/callback")) {
      returned.resolve(new URL(request.url, given.callback));
    }
  });
  await new Promise((resolve) => server.listen(given.port, "127.0.0.1", resolve));
  try {
    const page = await consent(world, address);
    await page.waitForURL(`${given.callback}?**`);
    return await returned.promise;
  } finally {
    server.close();
    server.closeAllConnections();
  }
}

/** Signs in and approves on the consent page. The client answers at its callback itself. */
export async function consent(world, address) {
  const page = await world.open({ expected: [404] });
  await page.goto(String(address));
  await signIn(page, world.given);
  await page.getByRole("button", { name: "Approve" }).click();
  return page;
}

/** Enters the code of a device and approves it. */
export async function letIn(world, address, code) {
  const page = await world.open();
  await page.goto(String(address));
  await signIn(page, world.given);
  await page.getByLabel("Code", { exact: true }).fill(code);
  await page.getByRole("button", { name: "Continue" }).click();
  // The page shows the same code as the device.
  await page.getByText(code, { exact: true }).waitFor();
  await page.getByRole("button", { name: "Approve" }).click();
  await page.getByRole("button", { name: "Approve" }).waitFor({ state: "detached" });
  page.clean();
}

export async function signIn(page, { email, password }) {
  await page.getByLabel("Email").fill(email);
  await page.getByLabel("Password").fill(password);
  await page.getByRole("button", { name: "Sign in", exact: true }).click();
}

/** Calls a tool like any HTTP client: one message, one answer. */
export function toolCall(name) {
  return {
    method: "POST",
    headers: {
      "content-type": "application/json",
      accept: "application/json, text/event-stream",
      "mcp-protocol-version": "2025-11-25",
    },
    body: JSON.stringify({
      jsonrpc: "2.0",
      id: 1,
      method: "tools/call",
      params: { name, arguments: {} },
    }),
  };
}

/** The result of a tool, from either kind of answer. */
export async function toolResult(response) {
  assert.equal(response.status, 200);
  const text = await response.text();
  const data = text.split("\n").find((line) => line.startsWith("data: {"));
  const answer = JSON.parse(data?.slice(6) ?? text);
  assert.equal(answer.error, undefined, text);
  assert.notEqual(answer.result.isError, true, text);
  return answer.result.structuredContent;
}

/** Checks that the token is refused everywhere. */
export async function refused(world, token) {
  const authorization = `Bearer ${token}`;
  const whoami = await fetch(`${world.url}/api/whoami`, { headers: { authorization } });
  assert.equal(whoami.status, 401);
  const call = toolCall("svc_project_list");
  const tool = await fetch(`${world.url}/api/mcp`, {
    ...call,
    headers: { ...call.headers, authorization },
  });
  // MC-7: an invalid bearer is answered by HTTP, not by the tool.
  assert.equal(tool.status, 401);
  assert.match(tool.headers.get("www-authenticate"), /^Bearer .*invalid_token/);
}

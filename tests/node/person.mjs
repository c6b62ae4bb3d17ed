// The person's part of a grant, in a real browser: they sign in where they are asked to, read what
// is asked for, and press Approve.

import assert from "node:assert/strict";
import { createServer } from "node:http";

/** What the client sees when the person has approved: the address that they are sent back to. */
export async function approve(world, address) {
  const { given } = world;
  const returned = Promise.withResolvers();
  // The page that people return to is the client's: here, the end of the story.
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

/** Signs in and approves on the consent page; the client answers at its callback itself. */
export async function consent(world, address) {
  const page = await world.open({ expected: [404] });
  await page.goto(String(address));
  await signIn(page, world.given);
  await page.getByRole("button", { name: "Approve" }).click();
  return page;
}

/** Types the code of a device and lets the device in. */
export async function letIn(world, address, code) {
  const page = await world.open();
  await page.goto(String(address));
  await signIn(page, world.given);
  await page.getByLabel("Code", { exact: true }).fill(code);
  await page.getByRole("button", { name: "Continue" }).click();
  // What is shown is what the device shows.
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

/** Calls a tool as any HTTP client can: one message, one answer. */
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

/** The result of a tool, from an answer of either kind. */
export async function toolResult(response) {
  assert.equal(response.status, 200);
  const text = await response.text();
  const data = text.split("\n").find((line) => line.startsWith("data: {"));
  const answer = JSON.parse(data?.slice(6) ?? text);
  assert.equal(answer.error, undefined, text);
  assert.notEqual(answer.result.isError, true, text);
  return answer.result.structuredContent;
}

/** With this token, nothing goes any more. */
export async function refused(world, token) {
  const authorization = `Bearer ${token}`;
  const whoami = await fetch(`${world.url}/api/whoami`, { headers: { authorization } });
  assert.equal(whoami.status, 401);
  const call = toolCall("svc_project_list");
  const tool = await fetch(`${world.url}/api/mcp`, {
    ...call,
    headers: { ...call.headers, authorization },
  });
  // MC-7: a bearer that is none is an answer of HTTP, not of the tool.
  assert.equal(tool.status, 401);
  assert.match(tool.headers.get("www-authenticate"), /^Bearer .*invalid_token/);
}

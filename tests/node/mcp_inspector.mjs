// The command line of the Model Context Protocol's inspector. Each command is a process. The first one
// prints the address that a user has to open and serves the callback itself; the others use its token.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { text } from "node:stream/consumers";

import { drive } from "./browser.mjs";
import { consent, refused } from "./person.mjs";

const INSPECTOR = join(
  process.env.SVC_TEST_NODE_PACKAGES,
  "node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js",
);

/** Its exit code when it has to sign in and may not. */
const AUTH_REQUIRED = 3;

await drive(async (world) => {
  const { callback, client, directory } = world.given;
  // There is no dynamic client registration.
  const list = ["--method", "tools/list", "--client-id", client, "--callback-url", callback];
  const { tools, asked } = await approved(world, list);
  const call = (tool) => ["--stored-auth-only", "--method", "tools/call", "--tool-name", tool];
  const listed = await result(start(world, call("svc_project_list")));
  const whoami = await result(start(world, call("svc_whoami")));

  // `--relogin` does not revoke the token: the program has not kept the metadata of the server.
  const token = stored(directory);
  await fetch(`${world.url}/oauth/revoke`, { method: "POST", body: new URLSearchParams({ token }) });
  await refused(world, token);
  const late = start(world, call("svc_whoami"));
  assert.equal(await late.status, AUTH_REQUIRED, late.said());
  console.log(
    JSON.stringify({
      tools: tools.map((tool) => tool.name),
      listed: listed.structuredContent,
      whoami: whoami.structuredContent,
      asked: asked.get("scope"),
      resource: asked.get("resource"),
    }),
  );
});

/** The result of a command that lets the user sign in. */
async function approved(world, args) {
  const command = start(world, args);
  const page = command.prompted.then((address) => consent(world, address));
  try {
    // A failed approval ends the script at once.
    const answer = await Promise.race([result(command), page.then(() => result(command))]);
    return { ...answer, asked: new URL(await command.prompted).searchParams };
  } finally {
    command.stop();
  }
}

async function result(command) {
  assert.equal(await command.status, 0, command.said());
  return JSON.parse(await command.output).result;
}

/** `prompted` is the address for the user, if it prints one. */
function start(world, args) {
  const fixed = ["--server-url", `${world.url}/api/mcp/sign-in`, "--transport", "http"];
  const command = spawn(
    process.execPath,
    [INSPECTOR, "--cli", ...fixed, "--format", "json", "--connect-timeout", "120000", ...args],
    {
      stdio: ["ignore", "pipe", "pipe"],
      env: {
        HOME: world.given.directory,
        MCP_INSPECTOR_SECRET_STORE: "file",
        // Without a terminal it refuses to sign in, except with this. It prints the address nevertheless.
        MCP_AUTO_OPEN_ENABLED: "true",
        // Without a path, it finds no browser of this machine.
        PATH: "/nonexistent",
      },
    },
  );
  let said = "";
  const prompted = Promise.withResolvers();
  command.stderr.setEncoding("utf8").on("data", (more) => {
    said += more;
    const found = said.match(new RegExp(`(${world.url}/oauth/authorize\\?\\S+)\\s`));
    if (found) prompted.resolve(found[1]);
  });
  const status = new Promise((resolve) => command.on("close", resolve));
  return {
    status,
    output: text(command.stdout),
    prompted: prompted.promise,
    said: () => said,
    stop: () => command.kill(),
  };
}

/** The token in the file with its secrets. */
function stored(directory) {
  const { secrets } = JSON.parse(readFileSync(join(directory, ".mcp-inspector/secrets.json"), "utf8"));
  const [tokens] = Object.entries(secrets).filter(([name]) => name.includes(":tokens:"));
  return JSON.parse(tokens[1]).access_token;
}

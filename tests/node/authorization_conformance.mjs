// The suite's `authorization` command: it prints the address that a user has to open, serves the
// callback itself, and reports the results of its checks.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { join } from "node:path";

import { drive } from "./browser.mjs";
import { consent } from "./person.mjs";

const SUITE = join(
  process.env.SVC_TEST_NODE_PACKAGES,
  "node_modules/@modelcontextprotocol/conformance/dist/index.js",
);

await drive(async (world) => {
  const { client, port } = world.given;
  const args = ["authorization", "--url", world.url, "--client-id", client, "-p", String(port)];
  const suite = spawn(process.execPath, [SUITE, ...args], { stdio: ["ignore", "pipe", "pipe"] });
  let said = "";
  let isAsked = false;
  const approved = Promise.withResolvers();
  const listen = (bytes) => {
    said += bytes;
    const found = address(said, world);
    if (found && !isAsked) {
      isAsked = true;
      // It requests no scope, and the platform grants only requested scopes.
      found.searchParams.append("scope", "account.projects.read-only");
      consent(world, found).then(approved.resolve, approved.reject);
    }
  };
  suite.stdout.setEncoding("utf8").on("data", listen);
  suite.stderr.setEncoding("utf8").on("data", listen);
  const ended = new Promise((resolve) => suite.on("close", resolve));
  try {
    const status = await Promise.race([ended, approved.promise.then(() => ended)]);
    assert.equal(status, 0, said);
  } finally {
    // It would wait for minutes for a user who failed.
    suite.kill();
  }
  console.log(JSON.stringify({ said }));
});

/** The whole address in the output so far, once its line is complete. */
function address(said, world) {
  const found = said.match(new RegExp(`(${world.url}/oauth/authorize\\?\\S+)\\s`));
  return found && new URL(found[1]);
}

// Agents of `svc` that a script starts, and visits to their tunnels, with the values that the test gave.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { request } from "node:https";
import { createInterface } from "node:readline";

/** An agent with these arguments of `svc`, once it is online. */
export async function startAgent(world, args) {
  const all = [...args, "--ca-file", world.given.ca_file, "--output", "json"];
  // No context: only the arguments lead to the engine.
  const env = { HOME: world.given.directory, SVC_CONFIG: `${world.given.directory}/empty` };
  const agent = spawn(world.given.program, all, { stdio: ["ignore", "pipe", "pipe"], env });
  const ended = once(agent, "close");
  let said = "";
  agent.stderr.setEncoding("utf8").on("data", (more) => (said += more));
  for await (const line of createInterface({ input: agent.stdout })) {
    const printed = JSON.parse(line);
    if (printed.status !== "online") continue;
    // A full pipe would stop the agent.
    agent.stdout.resume();
    return {
      online: printed,
      kill: () => agent.kill(),
      /** The exit code and the text of stderr, after the end. */
      ended: async () => ({ code: (await ended)[0], said }),
    };
  }
  throw new Error(`the agent ended: ${said}`);
}

/** A request to a tunnel, at the address of this machine. The names of the engine are no names of it. */
export function visit(world, agent, path, headers = {}) {
  const { hostname, port } = new URL(agent.online.forwarding);
  const options = { host: "127.0.0.1", port, path, servername: hostname, ca: readFileSync(world.given.ca_file) };
  const asked = request({ ...options, agent: false, headers: { host: `${hostname}:${port}`, ...headers } });
  asked.end();
  return asked;
}

/** The status of the response to such a request. */
export async function statusOf(world, agent, path, headers) {
  const [response] = await once(visit(world, agent, path, headers), "response");
  response.resume();
  return response.statusCode;
}

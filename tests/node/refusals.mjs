// Error pages of the edge: in light and dark, on a phone and on a desktop, with axe-core, and
// without scripts, and the answers for programs at the same addresses.

import assert from "node:assert/strict";
import { request } from "node:https";

import { drive } from "./browser.mjs";
import { LOOKS, lookAt } from "./looks.mjs";

// Test certificates are signed by an authority that browsers do not trust.
const TRUSTING = { ignoreHTTPSErrors: true };

/** Each refusal: the name of its address, the path, the status, and a word of the next step. */
const REFUSALS = [
  { at: "unknown", status: 404, code: "tunnel_not_found", step: "spelling" },
  { at: "offline", status: 503, code: "tunnel_offline", step: "in 5 seconds" },
  { at: "unreachable", status: 502, code: "upstream_unreachable", step: "Try again later" },
  { at: "timeout", status: 504, code: "upstream_timeout", step: "slow or stuck" },
  { at: "token", status: 401, code: "unauthenticated", step: "with the token" },
  { at: "token", path: "/?svc.token=wrong-one.wrong-two.wrong-three", status: 401, code: "invalid_token", step: "expired" },
  { at: "elsewhere", status: 403, code: "address_not_trusted", step: "an allowed network" },
  { at: "session", path: "/.well-known/svc/callback?code=x&state=y", status: 403, code: "sign_in_failed", step: "cookies" },
  { at: "limited", status: 429, code: "rate_limited", step: "in a second" },
];

await drive(async (world) => {
  for (let visit = 0; visit < world.given.visits; visit += 1) {
    const reply = await ask(world.given.limited, "*/*");
    assert.equal(reply.status, 200);
  }
  for (const refusal of REFUSALS) await programs(world, refusal);
  for (const { look, options } of LOOKS) {
    const expected = REFUSALS.map(({ status }) => status);
    const page = await world.open({ ...TRUSTING, ...options, expected });
    for (const refusal of REFUSALS) await people(world, page, refusal, look);
    page.clean();
  }
  await withoutScripts(world);
});

function address(world, { at, path = "/" }) {
  return `${world.given[at]}${path}`;
}

/** The page shows the text of the problem, and nothing else of the request. */
async function people(world, page, refusal, look) {
  const reply = await page.goto(address(world, refusal));
  assert.equal(reply.status(), refusal.status, refusal.at);
  const policy = reply.headers()["content-security-policy"];
  assert.match(policy, /^default-src 'none'; style-src 'sha256-/);
  const html = await reply.text();
  assert.ok(html.length < 6 * 1024, `${refusal.at}: ${html.length} bytes`);
  for (const secret of ["wrong-one", ...world.given.secrets]) {
    assert.ok(!html.includes(secret), `${secret} on ${refusal.at}`);
  }
  const said = await page.locator("main").innerText();
  for (const word of [refusal.code, refusal.step, "If this address is yours", "svc explain"]) {
    assert.ok(said.includes(word), `no "${word}" on ${refusal.at}: ${said}`);
  }
  await lookAt(world, page, `${refusal.code}-${look}`);
}

/** Programs get the same text as JSON, or as plain text on request. */
async function programs(world, refusal) {
  const at = address(world, refusal);
  const page = (await ask(at, "text/html")).body;
  const json = await ask(at, "*/*");
  assert.equal(json.headers["content-type"], "application/problem+json");
  const problem = JSON.parse(json.body);
  assert.deepEqual([problem.status, problem.code], [refusal.status, refusal.code]);
  assert.ok(page.includes(`<title>${problem.status} ${problem.title}</title>`), page);
  assert.ok(page.includes(`<h1>${problem.detail}</h1>`), page);
  const text = await ask(at, "text/plain");
  assert.equal(text.headers["content-type"], "text/plain; charset=utf-8");
  const first = `${problem.status} ${problem.title}: ${problem.detail}\n`;
  assert.ok(text.body.startsWith(first));
}

/** A request without a browser. Names under localhost resolve to this machine (RFC 6761). */
function ask(address, accept) {
  const { hostname, port, pathname, search } = new URL(address);
  const options = {
    host: "127.0.0.1",
    port,
    servername: hostname,
    path: `${pathname}${search}`,
    headers: { host: `${hostname}:${port}`, accept },
    rejectUnauthorized: false,
    agent: false,
  };
  return new Promise((resolve, reject) => {
    const sent = request(options, (reply) => {
      const chunks = [];
      reply.on("data", (chunk) => chunks.push(chunk));
      reply.on("end", () => {
        const body = Buffer.concat(chunks).toString();
        resolve({ status: reply.statusCode, headers: reply.headers, body });
      });
      reply.on("error", reject);
    });
    sent.on("error", reject);
    sent.end();
  });
}

async function withoutScripts(world) {
  const page = await world.open({ ...TRUSTING, javaScriptEnabled: false, expected: [503] });
  await page.goto(world.given.offline);
  await page.getByRole("heading", { level: 1, name: "its agent is not connected" }).waitFor();
  await page.getByText("svc doctor").waitFor();
}

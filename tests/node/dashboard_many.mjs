// A project with 10,000 tunnels: the page contains only the rows around the visible ones, and follows
// a burst of 5,000 events. The stream is the script's, in place of the engine's.

import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";

import { accessible, drive } from "./browser.mjs";
import { signIn } from "./looks.mjs";

const TUNNELS = 10_000;
const BURST = 5_000;
/** A window of 900 px shows 19 rows of 48 px. The others are the margin. */
const MAX_ROWS = 40;

await drive(async (world) => {
  const stream = await openStream();
  try {
    const page = await world.open({ viewport: { width: 1440, height: 900 } });
    await page.route("**/engine/*/api/sse", (route) => route.continue({ url: stream.url }));
    await signIn(world, page, world.given.email);
    await page.goto(`/projects/${world.given.project}/tunnels`);
    const list = page.getByRole("region", { name: `${TUNNELS} tunnels` });
    await list.waitFor();
    await rows(page, "tunnel-00000");
    await accessible(page, "a list of many tunnels");

    await list.evaluate((box) => box.scrollTo({ top: box.scrollHeight }));
    await rows(page, "tunnel-09999");
    const name = (index) => `tunnel-${String(index).padStart(5, "0")}`;
    stream.send(Array.from({ length: BURST }, (_, at) => event("tunnel.deleted", tunnel(at), at)));
    await page.getByRole("region", { name: `${TUNNELS - BURST} tunnels` }).waitFor();
    await rows(page, "tunnel-09999");
    await page.getByLabel("Search names, addresses and ids").fill(name(BURST));
    await page.getByRole("region", { name: "1 tunnels" }).waitFor();
    await focusedRow(page, stream, BURST, name(BURST));
    page.clean();
  } finally {
    stream.close();
  }
  console.log(JSON.stringify({}));
});

/** The tunnel of the row that has the focus ends: the list has the focus then, and not the start of the page. */
async function focusedRow(page, stream, at, name) {
  const count = TUNNELS - BURST;
  await page.getByLabel("Search names, addresses and ids").fill("");
  await page.getByRole("region", { name: `${count} tunnels` }).waitFor();
  const row = page.getByRole("link").filter({ hasText: name });
  await row.focus();
  stream.send([event("tunnel.deleted", tunnel(at), "focused")]);
  await page.getByRole("region", { name: `${count - 1} tunnels` }).and(page.locator(":focus")).waitFor();
  assert.equal(await row.count(), 0, "the row is still there");
}

/** The row with this name is there, and few others. */
async function rows(page, name) {
  await page.getByRole("link").filter({ hasText: name }).first().waitFor();
  const count = await page.locator(".vrow").count();
  assert.ok(count > 0 && count <= MAX_ROWS, `${count} rows exist`);
}

/** A server with one endless stream, which starts with the tunnels. */
async function openStream() {
  const responses = new Set();
  const server = createServer((_, response) => {
    response.writeHead(200, { "content-type": "text/event-stream", "cache-control": "no-store" });
    const tunnels = Array.from({ length: TUNNELS }, (_, at) => tunnel(at));
    response.write(event("state.initial", { tunnels, clients: [] }, "first"));
    responses.add(response);
    response.on("close", () => responses.delete(response));
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  return {
    url: `http://127.0.0.1:${server.address().port}/`,
    send: (events) => {
      for (const response of responses) for (const one of events) response.write(one);
    },
    close: () => {
      server.close();
      server.closeAllConnections();
    },
  };
}

function tunnel(at) {
  const name = `tunnel-${String(at).padStart(5, "0")}`;
  return {
    id: `tun_${at}`,
    client_id: "cli_1",
    name,
    hostname: `${name}.example.com`,
    protocol: "http",
    publish: true,
    status: "online",
    creation_date: "2026-01-01T00:00:00Z",
    labels: { number: String(at) },
  };
}

function event(type, object, id) {
  const data = { id: `evt_${id}`, type, created_at: "2026-01-01T00:00:00Z", object };
  return `data: ${JSON.stringify(data)}\n\n`;
}

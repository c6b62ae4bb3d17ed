// A developer at the inspector's page: requests of visitors appear, and can be searched, read,
// replayed and saved, with the keyboard, in light and dark, on a phone and on a desktop.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { connect } from "node:http2";
import { createRequire } from "node:module";
import { connect as connectTls } from "node:tls";

import { accessible, drive } from "./browser.mjs";
import { LOOKS } from "./looks.mjs";

const require = createRequire(`${process.env.SVC_TEST_NODE_PACKAGES}/`);
const Ajv = require("ajv").default;

await drive(async (world) => {
  const { web, calls, secure } = world.given;
  const page = await world.open({ permissions: ["clipboard-read", "clipboard-write"], acceptDownloads: true });
  await page.goto(web.inspector);
  await page.getByText("No requests yet").waitFor();
  assert.equal(new URL(page.url()).hash, "", "the token does not stay in the address");
  await visits(world, web.forwarding);
  await list(page);
  await reading(page);
  await messages(page);
  await hurried(page);
  await masked(page);
  await repeated(page);
  await keyboard(page);
  await archive(page);
  await pausedAndCleared(page, world, web.forwarding);
  page.clean();
  await grpc(world, calls);
  await grpc(world, secure);
  await echoed(world, secure);
  await visits(world, web.forwarding);
  for (const { look, options } of LOOKS) await looks(world, web, look, options);
  await strangers(world, web);
  console.log(JSON.stringify({}));
});

/** A visitor with a separate browser. */
async function visits(world, forwarding) {
  const page = await world.open({ ignoreHTTPSErrors: true, expected: [403, 404] });
  await page.goto(forwarding);
  await page.evaluate(async () => {
    await (await fetch("/json?api_key=hush", { method: "POST", body: "a question", headers: { authorization: "Bearer hush" } })).text();
    const form = { "content-type": "application/x-www-form-urlencoded" };
    await fetch("/login", { method: "POST", body: "user=ada&password=hush", headers: form });
    await fetch("/missing");
    await fetch("/refused");
    await new Promise((done) => {
      const events = new EventSource("/events");
      events.onerror = () => {
        events.close();
        done();
      };
    });
    await new Promise((done) => {
      const socket = new WebSocket(`wss://${location.host}/echo`);
      socket.onopen = () => {
        socket.send("hello ".repeat(20));
        socket.send('{"a":1}');
        socket.send(new Uint8Array([1, 2, 255]));
      };
      let heard = 0;
      socket.onmessage = () => {
        heard += 1;
        if (heard === 3) socket.close(1000, "bye");
      };
      socket.onclose = done;
    });
  });
  await page.close();
}

function row(page, text) {
  return page.locator("#list button", { hasText: text });
}

async function list(page) {
  await row(page, "/echo").getByText("WebSocket").waitFor();
  await row(page, "/events").first().getByText("events", { exact: true }).waitFor();
  await row(page, "/refused").getByText("hint").waitFor();
  const paths = await page.locator("#list .path").allTextContents();
  assert.ok(paths.includes("/json?api_key=[masked]"), paths.join(" "));

  const filter = page.getByLabel("Filter requests");
  for (const [words, path] of [["404 missing", "/missing"], ["websocket", "/echo"], ["post login", "/login"]]) {
    await filter.fill(words);
    await page.waitForFunction(() => document.querySelectorAll("#list li").length === 1);
    assert.equal(await page.locator("#list .path").textContent(), path);
  }
  await filter.fill("nothing is like this");
  await page.getByText("No request is like that").waitFor();
  // A word of a compressed body.
  await filter.fill("haystack");
  await page.getByLabel("in headers and bodies").check();
  await row(page, "/json").waitFor();
  assert.equal(await page.locator("#list li").count(), 1);
  await row(page, "/json").click();
  await page.locator("#part mark", { hasText: "haystack" }).waitFor();
  await filter.fill("");
  await page.getByLabel("in headers and bodies").uncheck();
}

async function reading(page) {
  await row(page, "/json").click();
  const part = page.locator("#part");
  await part.locator(".key", { hasText: '"needle"' }).waitFor();
  assert.match(await part.textContent(), /12345678901234567890/, "no number is rounded");
  assert.match(await part.textContent(), /shown without gzip/);
  await page.getByRole("button", { name: "Hex" }).click();
  await part.getByText("7b 22 6e 65 65 64 6c 65").waitFor();
  await page.getByRole("button", { name: "Text" }).click();
  await part.getByText('{"needle":"in a haystack"').waitFor();
  await page.getByRole("button", { name: "Request", exact: true }).click();
  await part.getByText("a question").waitFor();

  await row(page, "/refused").click();
  await page.getByText("Vite refuses the tunnel's host name").waitFor();
}

async function messages(page) {
  await row(page, "/echo").click();
  const items = page.locator("#messages li");
  await page.getByText("close 1000").first().waitFor();
  assert.equal(await items.filter({ hasText: "hello hello" }).count(), 2, "both ways, unfolded");
  assert.equal(await items.filter({ hasText: "01 02 ff" }).count(), 2);
  await row(page, "/events").first().click();
  await items.filter({ hasText: "event tick, id 7" }).getByText("second").waitFor();
  assert.equal(await items.count(), 3);
}

/** Actions before the chosen request is loaded apply to it, not to the previous one. */
async function hurried(page) {
  const details = /\/api\/exchanges\/\d+\?reveal=/;
  const held = Promise.withResolvers();
  await page.route(details, async (route) => {
    await held.promise;
    await route.continue();
  });
  await row(page, "/login").click();
  // The events are still shown, and their parts can be clicked.
  await page.getByRole("button", { name: "Request", exact: true }).click();
  await page.getByRole("button", { name: "Edit and replay" }).click();
  held.resolve();
  const editor = page.getByRole("dialog", { name: "Edit and replay" });
  await editor.waitFor();
  assert.equal(await editor.getByLabel("Path").inputValue(), "/login");
  await editor.getByRole("button", { name: "Cancel" }).click();
  await editor.waitFor({ state: "hidden" });
  await page.getByRole("row", { name: "password [masked]" }).waitFor();
  await page.unroute(details);
}

async function masked(page) {
  await row(page, "/login").click();
  await page.getByRole("button", { name: "Response", exact: true }).click();
  await page.getByRole("cell", { name: "sid=[masked]; Path=/" }).waitFor();
  await page.getByRole("cell", { name: "/?token=[masked]" }).waitFor();
  await page.getByRole("button", { name: "Request", exact: true }).click();
  await page.getByRole("row", { name: "password [masked]" }).waitFor();

  await row(page, "/json").click();
  await page.getByRole("button", { name: "Request", exact: true }).click();
  await page.getByRole("cell", { name: "Bearer [masked]" }).waitFor();
  await page.getByRole("button", { name: "Copy as curl" }).click();
  await page.getByText("Copied; secrets are masked.").waitFor();
  const command = await page.evaluate(() => navigator.clipboard.readText());
  assert.match(command, /^curl --globoff --path-as-is \\\n {2}'https:.*\/json\?api_key=\[masked\]'/);
  assert.match(command, /-H 'authorization: Bearer \[masked\]'/i);
  assert.match(command, /--data-raw 'a question'/);

  await page.getByRole("button", { name: "Secrets" }).click();
  await page.getByRole("cell", { name: "Bearer hush" }).waitFor();
  await page.getByRole("button", { name: "Secrets shown" }).click();
  await page.getByRole("cell", { name: "Bearer [masked]" }).waitFor();
}

async function repeated(page) {
  await row(page, "/json").click();
  await page.getByRole("button", { name: "Edit and replay" }).click();
  const editor = page.getByRole("dialog", { name: "Edit and replay" });
  await editor.getByLabel("Path").fill("/received?api_key=[masked]");
  const headers = await editor.getByLabel("Headers").inputValue();
  assert.match(headers, /authorization: Bearer \[masked\]/i);
  await editor.getByLabel("Headers").fill(`${headers}\nX-Added: yes`);
  await editor.getByLabel("Body").fill("another question");
  await accessible(page, "the editor");
  await editor.getByRole("button", { name: "Send" }).click();
  await editor.waitFor({ state: "hidden" });
  await row(page, "/received").getByText("replayed").waitFor();
  await page.locator("#facts", { hasText: "replayed from #" }).waitFor();
  await page.getByRole("button", { name: "Text" }).click();
  const told = JSON.parse(await page.locator("#part pre").textContent());
  assert.equal(told.method, "POST");
  assert.equal(told.body, "another question");
  assert.equal(told.headers["x-added"], "yes");
  assert.equal(told.headers.authorization, "Bearer hush", "what was masked is sent as it was");
  assert.equal(told.headers["content-length"], "16");

  // A request that cannot be sent stays in the editor, with the reason.
  await page.getByRole("button", { name: "Edit and replay" }).click();
  await editor.getByLabel("Headers").fill("no colon");
  await editor.getByRole("button", { name: "Send" }).click();
  await editor.getByRole("alert").filter({ hasText: "Name: value" }).waitFor();
  await editor.getByRole("button", { name: "Cancel" }).click();
  await editor.waitFor({ state: "hidden" });
}

/** Keys belong to the page again when the dialog has closed, which is a moment later. */
async function escape(page) {
  await page.keyboard.press("Escape");
  await page.locator("dialog[open]").waitFor({ state: "detached" });
}

async function keyboard(page) {
  const chosen = () => page.locator("#list button[aria-current=true]").getAttribute("data-id");
  await page.keyboard.press("Escape");
  await page.locator("#detail-pane").waitFor({ state: "hidden" });
  await page.keyboard.press("j");
  const newest = Number(await chosen());
  await page.keyboard.press("j");
  assert.ok(Number(await chosen()) < newest);
  await page.keyboard.press("k");
  assert.equal(Number(await chosen()), newest);
  await page.keyboard.press("/");
  assert.equal(await page.evaluate(() => document.activeElement.id), "filter");
  await page.keyboard.type("missing");
  await page.keyboard.press("Escape");
  await page.waitForFunction(() => document.querySelectorAll("#list li").length === 1);
  await page.keyboard.press("j");
  await page.locator("#facts", { hasText: "404 Not Found" }).waitFor();
  await page.keyboard.press("r");
  await page.getByText("Sent again.").waitFor();
  await page.waitForFunction(() => document.querySelectorAll("#list li").length === 2);
  // The same status as before, of another request.
  await page.locator("#facts", { hasText: /404 Not Found.*replayed from #/ }).waitFor();
  await page.keyboard.press("c");
  await page.getByText("Copied; secrets are masked.").waitFor();
  await page.keyboard.press("e");
  await page.getByRole("dialog", { name: "Edit and replay" }).waitFor();
  await escape(page);
  await page.keyboard.press("?");
  await page.getByRole("dialog", { name: "Keys" }).waitFor();
  await accessible(page, "the keys");
  await escape(page);
  await page.getByLabel("Filter requests").fill("");
}

/** The archive follows HAR 1.2, by the schema that other tools use, and has no secret. */
async function archive(page) {
  const [saved] = await Promise.all([
    page.waitForEvent("download"),
    page.getByRole("button", { name: "HAR" }).first().click(),
  ]);
  const har = JSON.parse(readFileSync(await saved.path(), "utf8"));
  const ajv = new Ajv({ strict: false, validateFormats: false });
  ajv.addMetaSchema(require("ajv/dist/refs/json-schema-draft-06.json"));
  const schemas = require("har-schema");
  for (const schema of Object.values(schemas)) ajv.addSchema(schema);
  const valid = ajv.getSchema("har.json#");
  assert.ok(valid(har), JSON.stringify(valid.errors));
  // Except for a body that repeats the request, because bodies are not masked.
  const told = JSON.stringify(har.log.entries.filter(({ request }) => !request.url.includes("/received")));
  assert.ok(!told.includes("hush") && !told.includes("confidential"), "secrets are masked");
  const entry = har.log.entries.find(({ request }) => request.url.includes("/json"));
  assert.match(entry.response.content.text, /haystack/);
  const socket = har.log.entries.find(({ request }) => request.url.includes("/echo"));
  assert.equal(socket._webSocketMessages.length, 6);
}

async function pausedAndCleared(page, world, forwarding) {
  await page.keyboard.press("p");
  await page.getByRole("button", { name: "Paused" }).waitFor();
  await page.getByRole("button", { name: "Clear" }).click();
  await page.getByText("Recording is paused").waitFor();
  const visitor = await world.open({ ignoreHTTPSErrors: true, expected: [404] });
  await visitor.goto(`${forwarding}/unseen`);
  await page.getByRole("button", { name: "Paused" }).click();
  await page.getByText("No requests yet").waitFor();
  await visitor.goto(`${forwarding}/seen`);
  await row(page, "/seen").waitFor();
  assert.equal(await row(page, "/unseen").count(), 0);
  await visitor.close();
}

/** An HTTP/2 call from end to end. */
async function grpc(world, { forwarding, inspector }) {
  const url = new URL(forwarding);
  const session = connect(forwarding, {
    createConnection: () =>
      connectTls({
        host: "127.0.0.1",
        port: url.port,
        servername: url.hostname,
        ALPNProtocols: ["h2"],
        rejectUnauthorized: false,
      }),
  });
  await new Promise((done, failed) => {
    const call = session.request({
      ":method": "POST",
      ":path": "/test.Echo/Say",
      "content-type": "application/grpc",
      te: "trailers",
    });
    call.on("data", () => {}).on("end", done).on("error", failed);
    call.end(Buffer.from([0, 0, 0, 0, 2, 0x08, 1]));
  });
  session.close();
  const page = await world.open();
  await page.goto(inspector);
  await row(page, "/test.Echo/Say").getByText("gRPC").waitFor();
  await row(page, "/test.Echo/Say").click();
  const items = page.locator("#messages li");
  await items.filter({ hasText: '1: "hi"' }).waitFor();
  assert.match(await items.last().locator("pre").textContent(), /2: \{\s+1: 150\s+\}/);
  await page.getByRole("button", { name: "Response", exact: true }).click();
  await page.getByRole("row", { name: "grpc-status 0" }).waitFor();
  await page.getByRole("button", { name: "Replay", exact: true }).click();
  await page.locator("#facts", { hasText: "replayed from #1" }).waitFor();
  await items.filter({ hasText: '1: "hi"' }).waitFor();
  page.clean();
  await page.close();
}

/** A WebSocket to a service that also offers HTTP/2, over TLS. */
async function echoed(world, { forwarding, inspector }) {
  const visitor = await world.open({ ignoreHTTPSErrors: true });
  await visitor.goto(forwarding);
  await visitor.evaluate(
    () =>
      new Promise((done) => {
        const socket = new WebSocket(`wss://${location.host}/echo`);
        socket.onopen = () => socket.send("said over TLS");
        socket.onmessage = () => socket.close();
        socket.onclose = done;
      }),
  );
  await visitor.close();
  const page = await world.open();
  await page.goto(inspector);
  await row(page, "/echo").getByText("WebSocket").waitFor();
  await row(page, "/echo").click();
  await page.locator("#messages li", { hasText: "said over TLS" }).nth(1).waitFor();
  page.clean();
  await page.close();
}

/** Light and dark, phone and desktop: the layout fits, and axe finds no error. */
async function looks(world, web, look, options) {
  const page = await world.open(options);
  const see = async (name) => {
    await world.shoot(page, `inspector-${name}-${look}`);
    await accessible(page, `${name}-${look}`);
    const fits = await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth);
    assert.ok(fits, `${name}-${look} is too wide`);
  };
  await page.goto(web.inspector);
  await row(page, "/echo").first().waitFor();
  await see("list");
  for (const [path, name] of [["/json", "json"], ["/echo", "messages"], ["/refused", "hint"]]) {
    await row(page, path).first().click();
    await page.locator("#what", { hasText: path }).waitFor();
    await see(name);
    if (await page.getByRole("button", { name: "Back" }).isVisible()) {
      await page.getByRole("button", { name: "Back" }).click();
    }
  }
  page.clean();
  await page.close();
}

/** Without the token there are no data, and pages of another site never get any. */
async function strangers(world, { inspector, forwarding }) {
  const { origin, hash } = new URL(inspector);
  const bare = await world.open({ expected: [401] });
  await bare.goto(origin);
  await bare.getByText("This page needs its whole address").waitFor();
  await accessible(bare, "without a token");
  bare.clean();

  const other = await world.open({ ignoreHTTPSErrors: true, expected: [403], permissions: [] });
  await other.goto(forwarding);
  const answers = await other.evaluate(
    async ([at, token]) => {
      const headers = { authorization: `Bearer ${token}` };
      const tried = [fetch(`${at}/api/exchanges`), fetch(`${at}/api/exchanges`, { headers })];
      return (await Promise.allSettled(tried)).map(({ status }) => status);
    },
    [origin, hash.slice(1)],
  );
  assert.deepEqual(answers, ["rejected", "rejected"]);
}

// Terminals on the pages, used with the keyboard alone: a user opens a terminal, another one
// watches it, requests control and is granted it, and the recording plays. In light and dark, on a
// phone and on a desktop, with axe-core.

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { setTimeout as pause } from "node:timers/promises";

import { PATIENCE, drive, watched } from "./browser.mjs";
import { FakeEngine } from "./fake_engine.mjs";
import { LOOKS, seen } from "./looks.mjs";
import { inTerminal, into, lines, open, press, shows, tabTo } from "./terminal_page.mjs";

const require = createRequire(`${process.env.SVC_TEST_NODE_PACKAGES}/`);
const { Terminal } = require("@xterm/headless");

await drive(async (world) => {
  const engine = new FakeEngine(world);
  await engine.start();
  try {
    // Each state in light on a phone and in dark on a desktop.
    const looks = LOOKS.filter(({ look }) => ["light-phone", "dark-desk"].includes(look));
    for (const { look, options } of looks) await story(world, engine, look, options);
    await ruled(world, engine);
    await impostors(world);
    await attacks(world, engine);
    await pastes(world, engine);
    await inserts(world, engine);
    await touches(world, engine);
    await spectators(world, engine);
    await withoutScripts(world);
  } finally {
    engine.stop();
  }
});

async function story(world, engine, look, options) {
  const { project } = world.given;
  const ada = await open(world, "ada", options);
  const grace = await open(world, "grace", options);
  const see = (page, name) => seen(world, page, `${name}-${look}`);

  await ada.goto(`/projects/${project}/terminals`);
  const server = ada.getByRole("link", { name: "Open web-1" });
  await server.waitFor();
  assert.equal(await ada.getByRole("link", { name: "Open inside" }).count(), 0);
  await see(ada, "terminals");
  await tabTo(ada, server);
  await ada.keyboard.press("Enter");
  await ada.state("No terminal is open yet.");
  await see(ada, "terminal-closed");
  await press(ada, "Open a terminal");
  await ada.state("The terminal is open.");
  await inTerminal(ada);
  await shows(ada, "$");
  await ada.keyboard.type("colours");
  await ada.keyboard.press("Enter");
  await shows(ada, "red yellow faint reverse blue");
  // Tab is a key of the terminal while the user types, and there is a way out.
  await ada.keyboard.press("Tab");
  await inTerminal(ada);
  await ada.locator("#people").getByText("You have control").waitFor();
  await see(ada, "terminal-open");
  await ada.keyboard.press("Control+Shift+Enter");
  await ada.waitForFunction(() => document.activeElement?.id === "terminal");
  await tabTo(ada, ada.getByRole("link", { name: "Open spectator view" }));
  const address = await ada.evaluate(() => document.activeElement.href);

  await grace.goto(address);
  await grace.state("You are watching.");
  await shows(grace, "red yellow faint reverse blue");
  await see(grace, "watching");
  // Keys of a spectator have no effect, and Tab moves the focus.
  await into(grace);
  await grace.keyboard.type("rm");
  await tabTo(grace, grace.getByLabel("Why do you ask for control?"));
  await grace.keyboard.type("to look at the <b>log</b>");
  await tabTo(grace, grace.getByLabel("Minutes"));
  await press(grace, "Ask for control");
  await grace.state("You asked for control.");
  await see(grace, "asked");

  await ada.getByText("Grace requests control: “to look at the <b>log</b>”").waitFor();
  await see(ada, "requested");
  await press(ada, "Grant control to Grace");
  await ada.state("Grace has control.");
  await grace.state("You have control");
  // Input in the meantime does not reach the terminal automatically.
  await grace.waitForFunction(() => document.activeElement?.id === "terminal");
  await see(grace, "granted");
  await into(grace);
  await grace.keyboard.type("hello");
  await grace.keyboard.press("Enter");
  for (const page of [ada, grace]) await shows(page, "hello: said");
  assert.ok(!(await lines(ada)).some((line) => line.includes("rm")), "a spectator typed");
  await ada.getByRole("button", { name: "Take control back" }).waitFor();
  await see(ada, "handed-over");
  // The former controller cannot type.
  await into(ada);
  await ada.keyboard.type("nothing");
  await press(ada, "Take control back");
  await grace.state("Control was taken back.");
  await ada.state("You have control.");

  await grace.getByLabel("Why do you ask for control?").focus();
  await press(grace, "Ask for control");
  await press(ada, "Refuse control to Grace");
  await grace.state("Your request was refused.");
  // Once more, and returned by its holder.
  await press(grace, "Ask for control");
  await press(ada, "Grant control to Grace");
  // Before she has it again, which the page announces with the same text.
  await ada.state("Grace has control.");
  await grace.state("You have control");
  await into(grace);
  await grace.keyboard.press("Control+Shift+Enter");
  await press(grace, "Give control back");
  await grace.state("Control was taken back.");

  await ada.state("You have control.");
  await into(ada);
  await ada.keyboard.type("exit");
  await ada.keyboard.press("Enter");
  for (const page of [ada, grace]) await page.state("The session ended with 0.");
  await see(ada, "ended");
  await see(grace, "ended-for-who-watched");

  const session = address.split("/").at(-1);
  if (look === "dark-desk") await removed(engine, ada, grace, world);
  await replay(world, engine, ada, session, look);
  for (const page of [ada, grace]) {
    page.clean();
    await page.context().close();
  }
}

/** A removed participant gets a notice, and their slot stays empty. */
async function removed(engine, ada, grace, world) {
  await ada.goto(`/projects/${world.given.project}/terminals/wsv_1`);
  await press(ada, "Open a terminal");
  await inTerminal(ada);
  const session = [...engine.sessions.keys()].at(-1);
  await grace.goto(`/projects/${world.given.project}/sessions/${session}`);
  await grace.state("You are watching.");
  await ada.keyboard.press("Control+Shift+Enter");
  await press(ada, "Remove Grace");
  await grace.state("You were removed from this session.");
  await seen(world, grace, "removed");
  await press(grace, "Watch again");
  await grace.state("You are watching.");
  // The connection breaks, and the page joins again.
  const tryingAgain = await watched(grace, "#state", "Trying again");
  for (const { socket, user } of engine.sessions.get(session).people.values()) {
    if (user === world.given.people.grace) socket?.terminate();
  }
  await tryingAgain();
  await grace.state("You are watching.");
  await press(ada, "End the session");
  await grace.state("The session ended with 143.");
}

/** An owner of the project who only watches grants control, and takes it back. */
async function ruled(world, engine) {
  const [grace, linus, ada] = await Promise.all(["grace", "linus", "ada"].map((name) => open(world, name, {})));
  await grace.goto(`/projects/${world.given.project}/terminals/wsv_1`);
  await press(grace, "Open a terminal");
  await inTerminal(grace);
  const session = [...engine.sessions.keys()].at(-1);
  for (const page of [linus, ada]) {
    await page.goto(`/projects/${world.given.project}/sessions/${session}`);
    await page.state("You are watching.");
  }
  await press(linus, "Ask for control");
  await press(ada, "Grant control to Linus");
  await linus.state("You have control");
  await press(ada, "Take control back");
  await linus.state("Control was taken back.");
  await grace.state("You have control.");
  await grace.getByRole("button", { name: "End the session" }).click();
  for (const page of [grace, linus, ada]) {
    await page.state("The session ended with 143.");
    page.clean();
    await page.context().close();
  }
}

/** The replay on the page equals that of another terminal implementation. */
async function replay(world, engine, page, session, look) {
  await page.goto(`/projects/${world.given.project}/terminals`);
  const link = page.getByRole("link", { name: /^Replay/ }).last();
  await link.waitFor();
  await page.goto(`/projects/${world.given.project}/sessions/${session}/replay`);
  await page.state("The recording is ready.");
  await page.keyboard.press("Tab");
  await seen(world, page, `replay-${look}`);
  await page.getByRole("heading").click();
  await page.keyboard.press("End");
  const { events } = engine.sessions.get(session);
  const oracle = new Terminal({ allowProposedApi: true });
  for (const event of events) {
    const size = event.metadata?.terminal_size;
    if (size) oracle.resize(size.col, size.row);
    if (event.payload_plaintext) {
      await new Promise((done) => oracle.write(Buffer.from(event.payload_plaintext, "base64"), done));
    }
  }
  const { active } = oracle.buffer;
  const rows = [...Array(oracle.rows).keys()].map((row) =>
    active.getLine(active.baseY + row).translateToString(true).trimEnd(),
  );
  const wanted = rows.filter(Boolean);
  await shows(page, wanted.at(-1));
  assert.deepEqual(await lines(page), wanted);
  await seen(world, page, `replay-end-${look}`);

  await page.keyboard.press("Home");
  await page.waitForFunction(() => document.querySelector("#position").value === "0");
  for (const key of [">", ">", ">"]) await page.keyboard.press(key);
  assert.equal(await page.getByLabel("Speed").inputValue(), "16");
  const plays = await watched(page, "#play", "Pause");
  await page.keyboard.press(" ");
  await plays();
  await page.state("The recording is at its end.");
  await shows(page, wanted.at(-1));
  assert.deepEqual(await lines(page), wanted);
  await page.keyboard.press("ArrowLeft");
  const at = Number(await page.getByLabel("Position").inputValue());
  const length = Number(await page.getByLabel("Position").getAttribute("max"));
  assert.ok(at <= Math.max(length - 5, 0) + 0.2, `${at} of ${length}`);
}

/** Unverified labels of a tunnel do not make it a registered server. */
async function impostors(world) {
  const page = await open(world, "ada", {});
  const base = `/projects/${world.given.project}/terminals`;
  const server = (id, name) => ({ id, name, status: "active" });
  const servers = [server("wsv_1", "web-1"), server("wsv_2", "web-2")];
  await page.route("**/webtty/servers?*", (route) => route.fulfill({ json: { servers } }));
  await page.goto(base);
  const rows = page.locator("#servers > li");
  await rows.first().waitFor();
  const texts = ["web-1Debian", "web-2offline", "posingImpostor", "wsv_2Impostor"];
  assert.deepEqual(
    (await rows.locator("> span").allTextContents()).sort(),
    [...texts, "insideprivate: open it with svc webtty"].sort(),
  );
  const link = (name) => page.getByRole("link", { name, exact: true });
  assert.equal(await link("Open web-1").getAttribute("href"), `${base}/wsv_1`);
  assert.equal(await link("Open web-2").count(), 0);

  const told = { wsv_1: "on web-1", posing: "on posing" };
  for (const [subject, name] of Object.entries(told)) {
    await page.goto(`${base}/${subject}`);
    await page.state("No terminal is open yet.");
    assert.equal(await page.locator("#name").textContent(), name);
  }
  const refused = { wsv_2: "This server is not online.", bytes: "This tunnel is not a terminal server." };
  for (const [subject, why] of Object.entries(refused)) {
    await page.goto(`${base}/${subject}`);
    await page.getByRole("alert").filter({ hasText: why }).waitFor();
  }
  page.clean();
}

/** A program writes escape sequences that target the browser. */
async function attacks(world, engine) {
  const page = await open(world, "ada", {});
  await page.context().grantPermissions(["clipboard-read", "clipboard-write"], { origin: world.url });
  await page.goto(`/projects/${world.given.project}/terminals/wsv_1`);
  await press(page, "Open a terminal");
  await inTerminal(page);
  const title = await page.title();
  assert.match(title, /^web-1 · /);
  await page.evaluate(() => navigator.clipboard.writeText("mine"));
  await page.keyboard.type("attack");
  await page.keyboard.press("Enter");
  await shows(page, "trap link harmless");
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), "mine");
  assert.equal(await page.title(), title);
  assert.equal(await page.locator("img").count(), 0);
  // Invalid links are not links, and others ask for confirmation.
  const asked = [];
  page.on("dialog", async (dialog) => {
    asked.push(dialog.message());
    await dialog.dismiss();
  });
  const row = page.locator(".xterm-rows > div").filter({ hasText: "trap link" });
  // The session can be ended for everyone once the page has its id.
  await page.getByRole("link", { name: "Open spectator view" }).waitFor();
  const box = await row.boundingBox();
  const letter = box.width / engine.sessions.get([...engine.sessions.keys()].at(-1)).size.col;
  const move = async (column) => await page.mouse.move(box.x + letter * (column - 0.5), box.y + box.height / 2);
  const click = async (column) => await page.mouse.click(box.x + letter * (column + 0.5), box.y + box.height / 2);
  const pointer = page.locator(".xterm-cursor-pointer");
  // First the link that is one, so that the terminal has found the links of the row.
  await move(6);
  await pointer.waitFor();
  await click(6);
  await move(1);
  await pointer.waitFor({ state: "detached" });
  await click(1);
  assert.deepEqual(asked, ["Open https://example.com/?"]);
  assert.equal(page.context().pages().length, 1);
  await page.getByRole("button", { name: "End the session" }).click();
  await page.state("The session ended with 143.");
  page.clean();
}

/** Clipboard text of a page does not become keys. Several lines need a confirmation. */
async function pastes(world, engine) {
  const page = await open(world, "ada", {});
  await page.goto(`/projects/${world.given.project}/terminals/wsv_1`);
  await press(page, "Open a terminal");
  await inTerminal(page);
  await shows(page, "$");
  const session = [...engine.sessions.values()].at(-1);
  const paste = async (text) => {
    await page.evaluate((text) => {
      const clipboardData = new DataTransfer();
      clipboardData.setData("text/plain", text);
      const event = new ClipboardEvent("paste", { clipboardData, bubbles: true, cancelable: true });
      document.activeElement.dispatchEvent(event);
    }, text);
  };
  /** Output since the last call, up to this mark. */
  const arrived = async (mark) => {
    await page.keyboard.type(mark);
    const until = Date.now() + PATIENCE;
    while (!session.input.includes(mark)) {
      assert.ok(Date.now() < until, `${mark} is not in ${JSON.stringify(session.input)}`);
      await pause(20);
    }
    const input = session.input;
    session.input = "";
    return input.slice(0, input.indexOf(mark));
  };
  /** Lets the program set bracketed paste, and waits until the page has processed it. */
  const says = async (program, mark) => {
    await page.keyboard.press("Enter");
    await page.keyboard.type(program);
    await page.keyboard.press("Enter");
    await arrived(mark);
    await shows(page, `$ ${mark}`);
  };
  const asked = [];
  let answer = "dismiss";
  page.on("dialog", async (dialog) => {
    asked.push(dialog.message());
    await dialog[answer]();
  });
  const hostile = "echo harmless\x1b[201~\necho INJECTED\n\x03\x9b201~\ttab\x7f";
  const clean = "echo harmless[201~\recho INJECTED\r201~\ttab";

  await says("brackets", "one");
  await paste(hostile);
  assert.equal(await arrived("two"), `\x1b[200~${clean}\x1b[201~`);
  assert.deepEqual(asked, []);

  await says("plain", "three");
  await paste(hostile);
  assert.equal(await arrived("four"), "");
  assert.equal(asked.length, 1);
  assert.match(asked[0], /^Paste 3 lines, which run immediately\?/);
  answer = "accept";
  await paste(hostile);
  assert.equal(await arrived("five"), clean);
  assert.equal(asked.length, 2);
  // A part of a line needs no confirmation.
  await paste("a piece");
  assert.equal(await arrived("six"), "a piece");
  assert.equal(asked.length, 2);
  await page.keyboard.press("Enter");
  await page.keyboard.type("exit");
  await page.keyboard.press("Enter");
  await page.state("The session ended with 0.");
  page.clean();
}

/** Text reaches the program once, however it is entered, with and without a screen reader. */
async function inserts(world, engine) {
  const page = await open(world, "ada", {});
  await page.goto(`/projects/${world.given.project}/terminals/wsv_1`);
  await press(page, "Open a terminal");
  await inTerminal(page);
  await shows(page, "$");
  const session = [...engine.sessions.values()].at(-1);
  const arrived = async (mark) => {
    await page.keyboard.type(mark);
    await until(() => session.input.endsWith(mark), () => JSON.stringify(session.input));
    const input = session.input.slice(0, -mark.length);
    session.input = "";
    return input;
  };
  const composed = async (pieces, text) => {
    for (const piece of pieces) {
      const at = { text: piece, selectionStart: piece.length, selectionEnd: piece.length };
      await page.devtools.send("Input.imeSetComposition", at);
    }
    await page.devtools.send("Input.insertText", { text });
    // The page reads the text after the event.
    await page.evaluate(() => new Promise((done) => setTimeout(done, 0)));
  };
  await arrived(";");
  const reader = page.getByRole("button", { name: "Screen reader mode" });
  for (const state of ["false", "true", "false"]) {
    assert.equal(await reader.getAttribute("aria-pressed"), state);
    await page.keyboard.type("Typed aB");
    assert.equal(await arrived(";"), "Typed aB", state);
    await page.keyboard.insertText("héllo 世界 🙂");
    assert.equal(await arrived(";"), "héllo 世界 🙂", state);
    // The same character twice, as by a key and by a picker.
    await page.keyboard.type("x");
    await page.keyboard.insertText("x");
    assert.equal(await arrived(";"), "xx", state);
    await composed(["k", "か", "漢"], "漢字");
    assert.equal(await arrived(";"), "漢字", state);
    await page.evaluate(() => {
      const clipboardData = new DataTransfer();
      clipboardData.setData("text/plain", "pästed");
      document.activeElement.dispatchEvent(
        new ClipboardEvent("paste", { clipboardData, bubbles: true, cancelable: true }),
      );
    });
    assert.equal(await arrived(";"), "pästed", state);
    // The page keeps the choice.
    await reader.click();
    await page.locator("#terminal").click();
    await inTerminal(page);
  }
  await page.reload();
  await page.state("You have control.");
  // The terminal has the focus after a reload.
  await inTerminal(page);
  assert.equal(await reader.getAttribute("aria-pressed"), "true");
  await page.locator(".xterm-accessibility").waitFor({ state: "attached" });
  session.end(0);
  await page.state("The session ended with 0.");
  page.clean();
  await page.context().close();
}

/** Touch screens have a row of keys. */
async function touches(world, engine) {
  const page = await open(world, "ada", { hasTouch: true, isMobile: true, viewport: { width: 390, height: 664 } });
  await page.goto(`/projects/${world.given.project}/terminals/wsv_1`);
  await press(page, "Open a terminal");
  await inTerminal(page);
  const session = [...engine.sessions.values()].at(-1);
  const tap = (name) => page.getByRole("button", { name, exact: true }).tap();
  await tap("Esc");
  await tap("Tab");
  await tap("Up");
  await tap("Ctrl");
  await page.keyboard.insertText("c");
  await page.keyboard.insertText("c");
  const keys = "\x1b\t\x1b[A\x03c";
  await until(() => session.input === keys, () => JSON.stringify(session.input));
  await inTerminal(page);
  // The last row is on the page.
  const [row, height] = await page.evaluate(() => [
    document.querySelector(".xterm-rows > div:last-child").getBoundingClientRect().bottom,
    innerHeight,
  ]);
  assert.ok(row <= height, `the last row ends at ${row} of ${height}`);
  session.end(0);
  await page.state("The session ended with 0.");
  page.clean();
  await page.context().close();
}

/** A spectator sees the cursor, withdraws a request, and is told what is not sent. */
async function spectators(world, engine) {
  const [ada, grace] = await Promise.all(["ada", "grace"].map((name) => open(world, name, {})));
  await ada.goto(`/projects/${world.given.project}/terminals/wsv_1`);
  await press(ada, "Open a terminal");
  await inTerminal(ada);
  const [id, session] = [...engine.sessions].at(-1);
  await grace.goto(`/projects/${world.given.project}/sessions/${id}`);
  await grace.state("You are watching.");
  await grace.waitForFunction(() => document.title.startsWith("web-1 · "));
  await grace.locator(".xterm-cursor").waitFor();
  await into(grace);
  await grace.keyboard.type("x");
  await grace.state("What you type is not sent: you are watching.");
  await press(grace, "Ask for control");
  await ada.getByText("Grace requests control").waitFor();
  await press(grace, "Withdraw your request");
  await grace.state("You have withdrawn your request.");
  await grace.waitForFunction(() => document.activeElement?.id === "reason");
  // The request goes away.
  await ada.getByText("Grace requests control").waitFor({ state: "detached" });

  // The focus stays when the list of participants changes.
  await ada.keyboard.press("Control+Shift+Enter");
  await press(grace, "Ask for control");
  await press(ada, "Grant control to Grace");
  await grace.state("You have control");
  await press(ada, "Take control back");
  await ada.state("You have control.");
  await ada.getByRole("button", { name: "Take control back" }).waitFor({ state: "detached" });
  assert.equal(await ada.evaluate(() => document.activeElement.ariaLabel), "Remove Grace");
  // Names do not affect the text around them.
  const names = await ada.locator("#people bdi").allTextContents();
  assert.deepEqual(names, ["You", "Grace"]);

  // A granted controller whose program prints very much keeps control.
  await press(grace, "Ask for control");
  await press(ada, "Grant control to Grace");
  await grace.state("You have control");
  await into(grace);
  const line = `${"0123456789".repeat(7)}\r\n`;
  session.flood(line.repeat(20 * 2 ** 20 / line.length));
  await grace.keyboard.type("done");
  await grace.keyboard.press("Enter");
  await shows(grace, "done: said");
  assert.ok(await grace.getByRole("button", { name: "Give control back" }).isVisible());
  await ada.getByRole("button", { name: "End the session" }).click();
  for (const page of [ada, grace]) {
    await page.state("The session ended with 143.");
    assert.ok(await page.getByRole("alert").isHidden());
    page.clean();
    await page.context().close();
  }
}

async function until(holds, describe) {
  const end = Date.now() + PATIENCE;
  while (!holds()) {
    assert.ok(Date.now() < end, describe());
    await pause(20);
  }
}

async function withoutScripts(world) {
  const page = await open(world, "ada", { javaScriptEnabled: false });
  await page.goto(`/projects/${world.given.project}/terminals/wsv_1`);
  await page.getByText("JavaScript is required for terminals.").waitFor();
  page.clean();
}

// The tools of a terminal on the pages, used with the keyboard: search, size of letters, full screen,
// links, copying, and those of the player.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { setTimeout as pause } from "node:timers/promises";

import { PATIENCE, drive } from "./browser.mjs";
import { FakeEngine } from "./fake_engine.mjs";
import { LOOKS, seen } from "./looks.mjs";
import { inTerminal, into, lines, open, press, shows } from "./terminal_page.mjs";

await drive(async (world) => {
  const engine = new FakeEngine(world);
  await engine.start();
  try {
    await links(world, engine);
    await searches(world, engine);
    await sizes(world, engine);
    const looks = LOOKS.filter(({ look }) => ["light-phone", "dark-desk"].includes(look));
    for (const { look, options } of looks) await fullScreen(world, engine, look, options);
    await player(world, engine);
  } finally {
    engine.stop();
  }
});

/** A page with an open terminal, and its session. */
async function terminal(world, engine, options = {}) {
  const page = await open(world, "ada", options);
  await page.goto(`/projects/${world.given.project}/terminals/wsv_1`);
  await press(page, "Open a terminal");
  await inTerminal(page);
  await shows(page, "$");
  return { page, session: [...engine.sessions.values()].at(-1) };
}

async function finished(page, session) {
  session.end(0);
  await page.state("The session ended with 0.");
  page.clean();
  await page.context().close();
}

/** Addresses in the output are links, which open after a confirmation. The tab has the server's name. */
async function links(world, engine) {
  const { page, session } = await terminal(world, engine);
  await page.context().route("https://example.com/**", (route) => route.fulfill({ body: "An example." }));
  await page.waitForFunction(() => document.title.startsWith("web-1 · "));
  await page.keyboard.type("address");
  await page.keyboard.press("Enter");
  await shows(page, "see https://example.com/a_(b), or more");
  const row = page.locator(".xterm-rows > div").filter({ hasText: "see https" });
  const follow = async (answer) => {
    const asked = new Promise((message) => {
      page.once("dialog", async (dialog) => {
        await dialog[answer]();
        message(dialog.message());
      });
    });
    const box = await row.boundingBox();
    const letter = box.width / session.size.col;
    await page.mouse.move(box.x + letter * 9, box.y + box.height / 2);
    await page.locator(".xterm-cursor-pointer").waitFor();
    await page.mouse.click(box.x + letter * 9.5, box.y + box.height / 2);
    assert.equal(await asked, "Open https://example.com/a_(b)?");
  };
  await follow("dismiss");
  assert.equal(page.context().pages().length, 1);
  const opening = page.context().waitForEvent("page");
  await follow("accept");
  const opened = await opening;
  await opened.waitForURL("https://example.com/a_(b)");
  assert.equal(await opened.evaluate(() => window.opener), null);
  assert.equal(await opened.evaluate(() => document.referrer), "");
  await finished(page, session);
}

/** Ctrl+Shift+F searches in all rows, in both directions, and Ctrl+Shift+C copies what it found. */
async function searches(world, engine) {
  const { page, session } = await terminal(world, engine, { viewport: { width: 900, height: 600 } });
  await page.context().grantPermissions(["clipboard-read", "clipboard-write"], { origin: world.url });
  const copied = async (text) => {
    await into(page);
    await page.keyboard.press("Control+Shift+C");
    await page.waitForFunction(async (text) => (await navigator.clipboard.readText()) === text, text);
    await page.keyboard.press("Control+Shift+F");
  };
  const result = async (text) => await page.locator("#find-result").getByText(text, { exact: true }).waitFor();
  await page.keyboard.type("words");
  await page.keyboard.press("Enter");
  await until(async () => (await lines(page)).some((line) => line.endsWith("NEEDLE")), () => "no line");
  session.input = "";

  await page.keyboard.press("Control+Shift+F");
  await page.waitForFunction(() => document.activeElement?.id === "needle");
  await page.keyboard.type("needle");
  // Upwards from the last row, and from the top again after it.
  await page.keyboard.press("Enter");
  await result("3 of 3");
  await copied("NEEDLE");
  await page.keyboard.press("Enter");
  await result("2 of 3");
  await copied("needle");
  await page.keyboard.press("Enter");
  await result("1 of 3");
  await copied("Needle");
  await page.keyboard.press("Enter");
  await result("3 of 3");
  await page.keyboard.press("Shift+Enter");
  await result("1 of 3");
  await press(page, "Next");
  await result("2 of 3");
  await press(page, "Previous");
  await result("1 of 3");
  // A text that continues on the next row, and one after wide characters.
  await page.keyboard.press("Control+Shift+F");
  await page.keyboard.type("long ".repeat(60).trim());
  await page.keyboard.press("Enter");
  await result("1 of 1");
  await copied("long ".repeat(60).trim());
  await page.keyboard.type("界 n");
  await page.keyboard.press("Enter");
  await result("1 of 1");
  await copied("界 N");
  await page.keyboard.type("nowhere to be found");
  await page.keyboard.press("Enter");
  await result("Not found.");
  // Escape goes back to the terminal. Nothing of the search was typed there.
  await page.keyboard.press("Escape");
  await page.waitForFunction(() => document.activeElement?.id === "terminal");
  assert.equal(session.input, "");
  await seen(world, page, "search");
  await finished(page, session);
}

/** Ctrl with plus, minus and zero, and buttons, set the size of letters, which the browser keeps. */
async function sizes(world, engine) {
  const { page, session } = await terminal(world, engine);
  const { col } = session.size;
  const columns = async (holds) => await until(() => holds(session.size.col), () => `${session.size.col} of ${col}`);
  await page.keyboard.press("Control+=");
  await columns((now) => now < col);
  await page.keyboard.press("Control+-");
  await columns((now) => now === col);
  await page.keyboard.press("Control+-");
  await columns((now) => now > col);
  await page.keyboard.press("Control+0");
  await columns((now) => now === col);
  await inTerminal(page);
  assert.equal(session.input, "");
  await page.keyboard.press("Control+Shift+Enter");
  await press(page, "Smaller letters");
  await columns((now) => now > col);
  await press(page, "Normal letters");
  await columns((now) => now === col);
  await press(page, "Larger letters");
  await columns((now) => now < col);
  const larger = session.size.col;
  await page.reload();
  await page.state("You have control.");
  await columns((now) => now === larger);
  await finished(page, session);
}

/** Full screen shows the terminal with its tools and requests, and the last row. */
async function fullScreen(world, engine, look, options) {
  const { page, session } = await terminal(world, engine, options);
  const before = session.size.row;
  await page.keyboard.press("Control+Shift+Enter");
  await press(page, "Full screen");
  await page.locator("#full-screen[aria-pressed=true]").waitFor();
  assert.equal(await page.evaluate(() => document.fullscreenElement?.id), "stage");
  await until(() => session.size.row > before, () => `${session.size.row} of ${before}`);
  assert.ok(await page.getByRole("button", { name: "End the session" }).isVisible());
  assert.ok(await page.getByRole("status").isVisible());
  await into(page);
  await page.keyboard.type("inside");
  await page.keyboard.press("Enter");
  await shows(page, "inside: said");
  await lastRow(page);
  await seen(world, page, `full-screen-${look}`);
  await page.keyboard.press("Control+Shift+Enter");
  await press(page, "Full screen");
  await page.locator("#full-screen[aria-pressed=false]").waitFor();
  await until(() => session.size.row === before, () => `${session.size.row} of ${before}`);
  // In a small window, too.
  await page.setViewportSize({ width: 640, height: 360 });
  await into(page);
  await lastRow(page);
  await finished(page, session);
}

/** The last row of the terminal is on the page. */
async function lastRow(page) {
  await page.waitForFunction(() => {
    const { bottom } = document.querySelector(".xterm-rows > div:last-child").getBoundingClientRect();
    return bottom > 0 && bottom <= innerHeight;
  });
}

/** The player finds outputs, skips idle time, and exports the recording. */
async function player(world, engine) {
  const { page, session } = await terminal(world, engine);
  for (const line of ["first", "second", "first"]) {
    await page.keyboard.type(line);
    await page.keyboard.press("Enter");
  }
  await until(() => session.output.split("first: said").length === 3, () => session.output);
  session.end(0);
  await page.state("The session ended with 0.");
  // A pause of ten minutes before the last command.
  const later = session.output.lastIndexOf("$ first");
  let length = 0;
  for (const event of session.events) {
    if (length > later) event.created_at = new Date(Date.parse(event.created_at) + 600_000).toISOString();
    length += Buffer.from(event.payload_plaintext ?? "", "base64").length;
  }
  await page.goto(`/projects/${world.given.project}/sessions/${session.id}/replay`);
  await page.state("The recording is ready.");
  const position = async () => Number(await page.getByLabel("Position").inputValue());

  const result = async (text) => await page.locator("#find-result").getByText(text, { exact: true }).waitFor();
  await page.keyboard.press("Control+Shift+F");
  await page.keyboard.type("FIRST: SAID");
  await page.keyboard.press("Enter");
  await result("1 of 2");
  assert.ok((await position()) < 600);
  await shows(page, "first: said");
  await page.keyboard.press("Enter");
  await result("2 of 2");
  assert.ok((await position()) >= 600);
  await page.keyboard.press("Shift+Enter");
  await result("1 of 2");
  assert.ok((await position()) < 600);
  await page.keyboard.press("Control+A");
  await page.keyboard.type("third");
  await page.keyboard.press("Enter");
  await result("Not found.");

  const downloading = page.waitForEvent("download");
  await press(page, "Export");
  const download = await downloading;
  assert.equal(download.suggestedFilename(), `${session.id}.cast`);
  const [header, ...events] = readFileSync(await download.path(), "utf8").trimEnd().split("\n").map((line) => JSON.parse(line));
  assert.equal(header.version, 2);
  const played = events.filter(([, kind]) => kind === "o").map(([, , text]) => text);
  assert.equal(played.join(""), session.output);
  assert.ok(events.at(-1)[0] >= 600);

  // The whole recording in a moment.
  await page.getByLabel("Skip idle time").check();
  await page.getByRole("heading", { name: "Recording" }).click();
  await page.keyboard.press("Home");
  await page.keyboard.press(" ");
  await page.state("The recording is at its end.");
  const isDrawn = async () => (await lines(page)).filter((line) => line === "first: said").length === 2;
  await until(isDrawn, () => "the output is not drawn");
  page.clean();
  await page.context().close();
}

async function until(holds, describe) {
  const end = Date.now() + PATIENCE;
  while (!(await holds())) {
    assert.ok(Date.now() < end, describe());
    await pause(20);
  }
}

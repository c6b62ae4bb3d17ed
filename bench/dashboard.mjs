// The browser's part of dashboard.py: opens the dashboard in Chromium, and prints lines of JSON with
// what it measured. Each view is measured after the line `{"ready": …}` for it, when events arrive.

import { createRequire } from "node:module";

const world = JSON.parse(process.env.BENCH_WORLD);
const require = createRequire(`${world.packages}/`);
const { chromium } = require("playwright-core");
/** A trace is kept in memory, so that it is only of the last minute. */
const MAX_TRACED_SECONDS = 60;
const print = (line) => console.log(JSON.stringify(line));

const browser = await chromium.launch({ executablePath: world.chromium, args: ["--no-sandbox"] });
try {
  const page = await signedIn();
  await firstLoad(await page.context().storageState());
  await list(page);
  for (const [view, seconds] of world.views) await follow(page, view, seconds);
} finally {
  await browser.close();
}

async function open(options) {
  const context = await browser.newContext({ baseURL: world.url, viewport: { width: 1440, height: 900 }, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(120_000);
  await page.addInitScript(observe);
  page.devtools = await context.newCDPSession(page);
  return page;
}

/** Runs in the page before its scripts: long tasks, the time of the first content, gaps between frames. */
function observe() {
  window.bench = { tasks: [], gaps: [], shownMs: undefined, listMs: undefined };
  new PerformanceObserver((found) => {
    for (const task of found.getEntries()) window.bench.tasks.push(task.duration);
  }).observe({ type: "longtask", buffered: true });
  new MutationObserver(() => {
    if (document.querySelector("main h1") && !document.querySelector("main .bones")) window.bench.shownMs ??= performance.now();
    if (document.querySelector(".vrow")) window.bench.listMs ??= performance.now();
  }).observe(document, { childList: true, subtree: true });
  let last = performance.now();
  const frame = () => {
    const now = performance.now();
    window.bench.gaps.push(now - last);
    last = now;
    requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
}

async function signedIn() {
  const page = await open({});
  await page.goto("/login?next=/projects");
  await page.getByLabel("Email").fill(world.email);
  await page.getByLabel("Password").fill(world.password);
  await page.keyboard.press("Enter");
  await page.waitForURL(`${world.url}/projects`);
  return page;
}

/** The first page of a browser with an empty cache: the projects. */
async function firstLoad(storageState) {
  for (let round = 0; round < world.loads; round += 1) {
    const page = await open({ storageState });
    await page.goto("/projects");
    await page.waitForFunction(() => window.bench.shownMs !== undefined);
    const first = await page.evaluate(() => ({
      shownMs: window.bench.shownMs,
      tasks: window.bench.tasks,
      bytes: performance
        .getEntries()
        .filter((one) => one.entryType === "navigation" || one.name.includes("/assets/"))
        .reduce((sum, one) => sum + one.encodedBodySize, 0),
    }));
    print({ first });
    await page.context().close();
  }
}

/** The list of all tunnels, from the address to its first rows. */
async function list(page) {
  await browser.startTracing(page, { categories: ["toplevel"] });
  await page.goto(`/projects/${world.project}/tunnels`);
  await page.waitForFunction(() => window.bench.listMs !== undefined);
  const taskCpuMs = longestCpuMs(JSON.parse(await browser.stopTracing()).traceEvents);
  print({ list: { taskCpuMs, ...(await page.evaluate(() => ({ listMs: window.bench.listMs, tasks: window.bench.tasks, rows: document.querySelectorAll(".vrow").length }))) } });
}

/** Bytes of the JavaScript heap after a collection. */
async function heap(page) {
  await page.devtools.send("HeapProfiler.collectGarbage");
  return (await page.devtools.send("Runtime.getHeapUsage")).usedSize;
}

async function follow(page, view, seconds) {
  await page.goto(`/projects/${world.project}${view}`);
  await page.locator("main h1").waitFor();
  print({ ready: view });
  // The first seconds are those of the load, in which everything is compiled.
  await page.waitForTimeout(world.warmUpMs);
  let streamBytes = 0;
  page.devtools.on("Network.dataReceived", (piece) => (streamBytes += piece.dataLength));
  await page.devtools.send("Network.enable");
  const heapStart = await heap(page);
  await page.evaluate(() => {
    window.bench.tasks.length = 0;
    window.bench.gaps.length = 0;
    // A reader moves the list meanwhile.
    const box = document.querySelector(".virtual");
    window.bench.mover = setInterval(() => box?.scrollBy({ top: box.scrollTop > box.scrollHeight / 2 ? -48_000 : 4_800 }), 500);
  });
  const traced = Math.min(seconds, MAX_TRACED_SECONDS);
  await page.waitForTimeout((seconds - traced) * 1_000);
  await browser.startTracing(page, { categories: ["toplevel", "devtools.timeline", "v8", "blink"] });
  await page.waitForTimeout(traced * 1_000);
  const { traceEvents } = JSON.parse(await browser.stopTracing());
  const taskCpuMs = longestCpuMs(traceEvents);
  const found = await page.evaluate(() => {
    clearInterval(window.bench.mover);
    const gaps = window.bench.gaps.slice().sort((one, other) => one - other);
    const late = gaps.filter((gap) => gap > 100).length;
    return { tasks: window.bench.tasks, frames: gaps.length, frameP99: gaps[Math.floor(gaps.length * 0.99)], frameMax: gaps.at(-1), late, rows: document.querySelectorAll(".vrow").length };
  });
  await page.devtools.send("Network.disable");
  print({ followed: { view, seconds, streamBytes, heapStart, heapEnd: await heap(page), taskCpuMs, taskParts: longestParts(traceEvents), ...found } });
}

/** CPU milliseconds of the longest task by activity, such as layout or the collection of garbage. */
function longestParts(events) {
  const mains = new Set(events.filter((one) => one.name === "thread_name" && one.args.name === "CrRendererMain").map((one) => `${one.pid} ${one.tid}`));
  const own = events.filter((one) => one.tdur !== undefined && mains.has(`${one.pid} ${one.tid}`));
  const task = own.reduce((most, one) => (most === undefined || one.tdur > most.tdur ? one : most), undefined);
  if (task === undefined) return {};
  const inside = own.filter((one) => one !== task && one.tid === task.tid && one.pid === task.pid && one.ts >= task.ts && one.ts + one.dur <= task.ts + task.dur);
  const parts = {};
  for (const one of inside.filter((one) => one.tdur >= 1_000)) parts[one.name] = Math.round((parts[one.name] ?? 0) + one.tdur / 1_000);
  return parts;
}

/**
 * CPU time of the longest task of a page's main thread. On a machine that other programs use, the time of
 * a task on the clock contains theirs.
 */
function longestCpuMs(events) {
  const mains = new Set(events.filter((one) => one.name === "thread_name" && one.args.name === "CrRendererMain").map((one) => `${one.pid} ${one.tid}`));
  const times = events.filter((one) => one.tdur !== undefined && mains.has(`${one.pid} ${one.tid}`)).map((one) => one.tdur / 1_000);
  return times.length === 0 ? undefined : times.reduce((most, one) => Math.max(most, one));
}

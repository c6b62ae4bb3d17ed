// The browser's part of picture.py: the overview of the project, 1440 px wide, light.

import { createRequire } from "node:module";

const world = JSON.parse(process.env.BENCH_WORLD);
const require = createRequire(`${world.packages}/`);
const { chromium } = require("playwright-core");

const browser = await chromium.launch({ executablePath: world.chromium, args: ["--no-sandbox"] });
try {
  const context = await browser.newContext({ baseURL: world.url, viewport: { width: 1440, height: 1000 }, colorScheme: "light", locale: "en-GB", reducedMotion: "reduce" });
  const page = await context.newPage();
  page.setDefaultTimeout(120_000);
  await page.goto(`/login?next=${encodeURIComponent(`/projects/${world.project}?range=15m`)}`);
  await page.getByLabel("Email").fill(world.email);
  await page.getByLabel("Password").fill(world.password);
  await page.keyboard.press("Enter");
  await page.getByRole("link", { name: "storefront" }).first().waitFor();
  await page.waitForFunction(() => document.querySelector("canvas") && !document.querySelector("main .bones"));
  // picture.py starts two more agents.
  console.log("open");
  const events = page.getByRole("list", { name: "Events, newest first" });
  await events.getByText("search").first().waitFor();
  await events.getByText("status-page").first().waitFor();
  await page.mouse.move(0, 0);
  await page.screenshot({ path: world.out });
} finally {
  await browser.close();
}

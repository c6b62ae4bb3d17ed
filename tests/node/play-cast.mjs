// Plays a cast with asciinema-player in Chromium at the highest speed, and prints its final screen:
// `{screen, ended}`.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const packages = process.env.SVC_TEST_NODE_PACKAGES;
const require = createRequire(`${packages}/`);
const { chromium } = require("playwright-core");
const bundle = require.resolve("asciinema-player/dist/bundle/asciinema-player.min.js");

const cast = readFileSync(process.argv[2], "utf8");
const browser = await chromium.launch({
  executablePath: process.env.SVC_TEST_CHROMIUM,
  args: ["--no-sandbox"],
});
try {
  const page = await browser.newPage();
  const errors = [];
  page.on("pageerror", (error) => errors.push(String(error)));
  await page.setContent("<div id=player></div>");
  await page.addScriptTag({ path: bundle });
  const seen = await page.evaluate(async (data) => {
    const at = document.getElementById("player");
    const player = AsciinemaPlayer.create({ data }, at, { speed: 100, preload: true });
    const ended = new Promise((resolve) => player.addEventListener("ended", () => resolve(true)));
    await player.play();
    const late = new Promise((resolve) => setTimeout(() => resolve(false), 60_000));
    const isEnded = await Promise.race([ended, late]);
    // The last output is drawn with the next frame.
    await new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
    return { ended: isEnded, screen: at.querySelector(".ap-term-text").textContent };
  }, cast);
  if (errors.length > 0) {
    throw new Error(errors.join("\n"));
  }
  console.log(JSON.stringify(seen));
} finally {
  await browser.close();
}

// Two peers in Chromium that may use relay candidates only, with a data channel between them.

import assert from "node:assert/strict";
import { createRequire } from "node:module";

import { meet } from "./relayed_peers.mjs";

const require = createRequire(`${process.env.SVC_TEST_NODE_PACKAGES}/`);
const { chromium } = require("playwright-core");

const browser = await chromium.launch({
  executablePath: process.env.SVC_TEST_CHROMIUM,
  // Test machines often run as root, where the sandbox does not start. The TLS certificate is
  // signed by an authority that this machine does not trust.
  args: ["--no-sandbox", "--ignore-certificate-errors"],
});
try {
  const page = await browser.newPage();
  const given = JSON.parse(process.env.TURN_CREDENTIAL);
  for (const url of given.urls) {
    const result = await page.evaluate(meet, { ...given, urls: [url] });
    assert.deepEqual(result.kinds, ["relay"], url);
    assert.equal(result.text, "good day to you", url);
  }
  console.log(JSON.stringify({ met: given.urls.length }));
} finally {
  await browser.close();
}

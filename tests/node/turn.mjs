// Two peers in Chromium that may use relay candidates only, with a data channel between them.

import assert from "node:assert/strict";
import { createRequire } from "node:module";

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

async function meet(iceServer) {
  const configuration = { iceServers: [iceServer], iceTransportPolicy: "relay" };
  const [one, other] = [new RTCPeerConnection(configuration), new RTCPeerConnection(configuration)];
  const kinds = new Set();
  for (const [from, to] of [[one, other], [other, one]]) {
    from.onicecandidate = ({ candidate }) => {
      if (candidate?.candidate) {
        kinds.add(candidate.type);
        to.addIceCandidate(candidate);
      }
    };
  }
  other.ondatachannel = ({ channel }) => {
    channel.onmessage = ({ data }) => channel.send(`${data} to you`);
  };
  const channel = one.createDataChannel("chat");
  const text = new Promise((resolve, reject) => {
    channel.onopen = () => channel.send("good day");
    channel.onmessage = ({ data }) => resolve(data);
    setTimeout(() => reject(new Error(`no answer; candidates: ${[...kinds]}`)), 60_000);
  });
  await one.setLocalDescription(await one.createOffer());
  await other.setRemoteDescription(one.localDescription);
  await other.setLocalDescription(await other.createAnswer());
  await one.setRemoteDescription(other.localDescription);
  const result = { text: await text, kinds: [...kinds].sort() };
  one.close();
  other.close();
  return result;
}

"use strict";
// Finds a number for which SHA-256 of "<puzzle>.<number>" begins with the required number of zero
// bits. It works in small pieces, so that the page stays responsive, then sends the number and continues.
(() => {
  const page = document.querySelector("main");
  const status = document.getElementById("status");
  const { puzzle, bits, answer, target } = page.dataset;
  const say = (text) => {
    status.textContent = text;
  };
  const fail = (text) => {
    say(text);
    page.dataset.state = "failed";
    document.getElementById("again").hidden = false;
  };

  // FIPS 180-4: the first 32 bits of the fractional parts of roots of the first primes.
  const primes = [];
  for (let n = 2; primes.length < 64; n += 1) {
    if (primes.every((prime) => n % prime !== 0)) primes.push(n);
  }
  const fraction = (value) => ((value - Math.floor(value)) * 2 ** 32) | 0;
  const constants = Int32Array.from(primes, (prime) => fraction(Math.cbrt(prime)));
  const initial = Int32Array.from(primes.slice(0, 8), (prime) => fraction(Math.sqrt(prime)));
  const words = new Int32Array(64);
  const block = new Uint8Array(192);
  const view = new DataView(block.buffer);
  const turn = (value, by) => (value >>> by) | (value << (32 - by));

  // The first 32 bits of the hash: the edge never requires more.
  const hash = (length) => {
    const end = ((length + 9 + 63) >> 6) << 6;
    block.fill(0, length, end);
    block[length] = 128;
    view.setUint32(end - 4, length * 8);
    const state = Int32Array.from(initial);
    for (let at = 0; at < end; at += 64) {
      for (let i = 0; i < 16; i += 1) words[i] = view.getInt32(at + i * 4);
      for (let i = 16; i < 64; i += 1) {
        const x = words[i - 15];
        const y = words[i - 2];
        const s0 = turn(x, 7) ^ turn(x, 18) ^ (x >>> 3);
        const s1 = turn(y, 17) ^ turn(y, 19) ^ (y >>> 10);
        words[i] = (words[i - 16] + s0 + words[i - 7] + s1) | 0;
      }
      let [a, b, c, d, e, f, g, h] = state;
      for (let i = 0; i < 64; i += 1) {
        const s1 = turn(e, 6) ^ turn(e, 11) ^ turn(e, 25);
        const t1 = (h + s1 + ((e & f) ^ (~e & g)) + constants[i] + words[i]) | 0;
        const s0 = turn(a, 2) ^ turn(a, 13) ^ turn(a, 22);
        const t2 = (s0 + ((a & b) ^ (a & c) ^ (b & c))) | 0;
        [h, g, f, e, d, c, b, a] = [g, f, e, (d + t1) | 0, c, b, a, (t1 + t2) | 0];
      }
      [a, b, c, d, e, f, g, h].forEach((value, i) => {
        state[i] = (state[i] + value) | 0;
      });
    }
    return state[0];
  };

  const prefix = `${puzzle}.`;
  for (let i = 0; i < prefix.length; i += 1) block[i] = prefix.charCodeAt(i);
  const solves = (number) => {
    const digits = String(number);
    for (let i = 0; i < digits.length; i += 1) block[prefix.length + i] = digits.charCodeAt(i);
    return Math.clz32(hash(prefix.length + digits.length)) >= Number(bits);
  };

  const send = async (number) => {
    const query = `puzzle=${puzzle}&number=${number}`;
    const reply = await fetch(`${answer}?${query}`, { method: "POST", credentials: "same-origin" });
    if (!reply.ok) throw new Error(String(reply.status));
    say("Done. Opening the page…");
    page.dataset.state = "done";
    // The fragment of the requested page is that of this page.
    location.replace(target + location.hash);
  };

  const channel = new MessageChannel();
  let number = 0;
  channel.port1.onmessage = () => {
    const until = performance.now() + 12;
    while (performance.now() < until) {
      for (let i = 0; i < 64; i += 1, number += 1) {
        if (solves(number)) {
          send(number).catch(() => fail("That did not work. Reload the page to try again."));
          return;
        }
      }
    }
    channel.port2.postMessage(0);
  };

  if (!navigator.cookieEnabled) {
    fail("Cookies are disabled. Allow them for this address, and reload the page.");
    return;
  }
  say("Checking your browser. This takes a moment; you do not have to do anything.");
  channel.port2.postMessage(0);
})();

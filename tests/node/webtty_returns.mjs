// A page reconnects to a session: it draws all output once and sends all input once, whatever
// happened before.

import assert from "node:assert/strict";

import { Returns } from "../../crates/control/src/pages/terminal/returns.mjs";

const bytes = (text) => Buffer.from(text);
const token = bytes("token");
const ack = (outputFrom, inputReceived = 0) => ({ resumeToken: token, outputFrom, inputReceived });

/** The drawn part of an output that arrives in pieces of this length. */
function drawn(returns, text, length = 3) {
  const all = { old: "", fresh: "" };
  for (let at = 0; at < text.length; at += length) {
    const { old, fresh } = returns.output(bytes(text.slice(at, at + length)));
    all.old += Buffer.from(old);
    all.fresh += Buffer.from(fresh);
  }
  return all;
}

for (const length of [1, 3, 7, 100]) {
  const returns = new Returns();
  assert.deepEqual(returns.acknowledged(ack(undefined)), { input: [], isCut: false });
  assert.deepEqual(drawn(returns, "0123456789", length), { old: "", fresh: "0123456789" });
  // The same page: the content of its screen is not drawn again.
  assert.deepEqual(returns.resume(), { token, received: 0 });
  assert.equal(returns.acknowledged(ack(0)).isCut, false);
  assert.deepEqual(drawn(returns, "0123456789abc", length), { old: "", fresh: "abc" });
  assert.equal(returns.acknowledged(ack(5)).isCut, false);
  assert.deepEqual(drawn(returns, "56789abcdef", length), { old: "", fresh: "def" });
  // The server has dropped the oldest output in the meantime.
  assert.equal(returns.acknowledged(ack(20)).isCut, true);
  assert.deepEqual(drawn(returns, "klm", length), { old: "", fresh: "klm" });
  assert.equal(returns.received, 23);

  // A reloaded page draws all available output, old and new.
  const anew = new Returns(token, 23);
  assert.equal(anew.acknowledged(ack(18)).isCut, false);
  assert.deepEqual(drawn(anew, "ijklmnop", length), { old: "ijklm", fresh: "nop" });
  // And once more, after its own connection was lost.
  assert.equal(anew.acknowledged(ack(18)).isCut, false);
  assert.deepEqual(drawn(anew, "ijklmnopq", length), { old: "", fresh: "q" });
}

// Input is sent until it is acknowledged, and no byte of it twice.
const rest = (returns, received) =>
  Buffer.concat(returns.acknowledged(ack(0, received)).input).toString();
const returns = new Returns();
returns.typed(bytes("before there is a token"));
assert.equal(rest(returns, 0), "");
for (const text of ["abc", "defg", "h"]) returns.typed(bytes(text));
returns.accept(2);
assert.equal(rest(returns, 4), "efgh");
assert.equal(rest(returns, 4), "efgh");
returns.accept(3);
returns.accept(8);
assert.equal(rest(returns, 8), "");
returns.typed(bytes("i"));
assert.equal(rest(returns, 8), "i");

const anew = new Returns(token, 0);
assert.equal(rest(anew, 300), "");
anew.typed(bytes("xyz"));
anew.accept(301);
assert.equal(rest(anew, 302), "z");

// A server without resumption returns no token, and no input is stored for it.
anew.acknowledged({ resumeToken: new Uint8Array(), inputReceived: 303 });
assert.equal(anew.token, undefined);
anew.typed(bytes("x"));
assert.deepEqual(anew.waiting, []);
console.log(JSON.stringify({ returns: true }));

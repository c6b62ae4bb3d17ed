// A visitor with `ws` at one of the WebSocket services. Argument: JSON with
//
//     url      address of the service, published or local
//     ca_file  authority of a published one, or null
//     service  host:port of the service itself, for its view of the connections
//
// It prints the number of cases and the failed ones.
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { setTimeout as after } from "node:timers/promises";

const require = createRequire(`${process.env.SVC_TEST_NODE_PACKAGES}/`);
const WebSocket = require("ws");

const world = JSON.parse(process.argv[2]);
const sizes = [0, 125, 126, 65535, 65536, 1 << 20];
const codes = [1000, 1001, 1011, 3000, 4999, null];
// Codes for a close frame without a code (RFC 6455, 7.1.5), and for no close frame at all.
const [noCode, abnormal] = [1005, 1006];

let ran = 0;
const wrong = [];

function check(what, was, expected) {
  ran += 1;
  if (was !== expected) {
    wrong.push(`${what}: ${String(was).slice(0, 200)}, not ${String(expected).slice(0, 200)}`);
  }
}

const tls = {
  ca: world.ca_file ? readFileSync(world.ca_file) : undefined,
  // Names under `localhost` resolve to this machine, even if the resolver does not support them.
  lookup: (_name, options, found) =>
    options.all ? found(null, [{ address: "127.0.0.1", family: 4 }]) : found(null, "127.0.0.1", 4),
};

// An open WebSocket, whose messages and end are awaited one by one.
async function visit(path, { protocols = [], perMessageDeflate = false } = {}) {
  const socket = new WebSocket(world.url + path, protocols, { ...tls, perMessageDeflate, maxPayload: 0 });
  const messages = [];
  const waiting = [];
  socket.on("message", (data, binary) => {
    const message = binary ? data : data.toString();
    const waiter = waiting.shift();
    waiter ? waiter(message) : messages.push(message);
  });
  socket.next = () =>
    messages.length ? Promise.resolve(messages.shift()) : new Promise((resolve) => waiting.push(resolve));
  socket.ended = once(socket, "close").then(([code, reason]) => ({ code, reason: reason.toString() }));
  await once(socket, "open");
  socket.on("error", () => {});
  return socket;
}

// The service's view of the end, as soon as it is known.
async function seen(name) {
  const until = Date.now() + 60_000;
  while (Date.now() < until) {
    const known = await (await fetch(`http://${world.service}/seen?id=${name}`)).json();
    if (known !== null) return known;
    await after(10);
  }
  return null;
}

async function echoes(socket, label) {
  for (const size of sizes) {
    const text = "é".repeat(size / 2) + "e".repeat(size % 2);
    socket.send(text);
    check(`${label} text of ${size}`, await socket.next(), text);
    const data = Buffer.from(Array.from({ length: size }, (_, i) => (i * 7) % 251));
    socket.send(data);
    check(`${label} binary of ${size}`, data.equals(await socket.next()), true);
  }
}

let socket = await visit("/echo");
await echoes(socket, "plain");
// RFC 6455, 5.4: control frames between the fragments of a message.
const pong = once(socket, "pong");
socket.send("in ", { fin: false });
socket.ping("between");
socket.send("", { fin: false });
socket.send("pieces", { fin: true });
check("fragments of the client", await socket.next(), "in pieces");
check("pong between fragments", (await pong)[0].toString(), "between");
socket.send("fragments");
check("fragments of the service", await socket.next(), "fragments");
socket.send("ping");
check("a ping of the service", await socket.next(), "ponged");
for (const payload of ["", "x".repeat(125)]) {
  const answered = once(socket, "pong");
  socket.ping(payload);
  check(`pong of ${payload.length}`, (await answered)[0].toString(), payload);
}
socket.close();
await socket.ended;

for (const code of codes) {
  const name = randomUUID();
  socket = await visit(`/echo?id=${name}`);
  code === null ? socket.close() : socket.close(code, "done");
  check(`close ${code} of the client, back`, (await socket.ended).code, code ?? noCode);
  check(`close ${code} of the client, there`, await seen(name), code ?? noCode);
  socket = await visit(`/close/${code ?? "none"}`);
  const end = await socket.ended;
  check(`close ${code} of the service`, end.code, code ?? noCode);
  check(`reason of ${code}`, end.reason, code === null ? "" : "as asked");
}

for (const offered of [["first", "second"], ["third"]]) {
  socket = await visit("/echo", { protocols: offered });
  check(`subprotocol of ${offered}`, socket.protocol, offered.at(-1));
  socket.close();
  await socket.ended;
}

socket = await visit("/echo", { perMessageDeflate: true });
check("permessage-deflate (RFC 7692)", socket.extensions.startsWith("permessage-deflate"), true);
await echoes(socket, "deflated");
socket.close();
await socket.ended;
socket = await visit("/echo");
check("no extension", socket.extensions, "");
socket.close();
await socket.ended;

socket = await visit("/abort");
check("before the break", await socket.next(), "hello");
check("a service that breaks off", (await socket.ended).code, abnormal);
const name = randomUUID();
socket = await visit(`/echo?id=${name}`);
socket.send("hello");
await socket.next();
socket.terminate();
check("a client that breaks off", await seen(name), abnormal);

console.log(JSON.stringify({ ran, wrong }));

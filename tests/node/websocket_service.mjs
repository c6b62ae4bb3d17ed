// A WebSocket service with `ws`. It prints its address, and the test stops it.
//
//     /echo?id=…    echoes; `id` names the conversation for `/seen`
//     /close/1001   closes with this code; `none` closes without one
//     /abort        sends a greeting and aborts the connection
//     /seen?id=…    the service's view of the end of a conversation (plain HTTP)
import { createServer } from "node:http";
import { createRequire } from "node:module";

const require = createRequire(`${process.env.SVC_TEST_NODE_PACKAGES}/`);
const { WebSocketServer } = require("ws");

const seen = new Map();

const server = createServer((request, response) => {
  const url = new URL(request.url, "http://localhost");
  if (url.pathname === "/seen") {
    return response.end(JSON.stringify(seen.get(url.searchParams.get("id")) ?? null));
  }
  response.writeHead(426, { connection: "Upgrade", upgrade: "websocket" }).end("a WebSocket, please");
});

const sockets = new WebSocketServer({
  server,
  perMessageDeflate: true,
  maxPayload: 4 << 20,
  handleProtocols: (offered) => ["second", "third"].find((name) => offered.has(name)) ?? false,
});

sockets.on("connection", (socket, request) => {
  const url = new URL(request.url, "http://localhost");
  // Errors in the peer's frames, which its close code reports to the peer.
  socket.on("error", () => {});
  if (url.pathname.startsWith("/close/")) {
    const code = url.pathname.slice("/close/".length);
    return code === "none" ? socket.close() : socket.close(Number(code), "as asked");
  }
  if (url.pathname === "/abort") {
    return socket.send("hello", () => request.socket.resetAndDestroy());
  }
  socket.on("message", (data, binary) => {
    const text = binary ? undefined : data.toString();
    if (text === "fragments") {
      socket.send("frag", { fin: false });
      socket.send("ment", { fin: false });
      socket.send("s", { fin: true });
    } else if (text === "ping") {
      socket.once("pong", (payload) => payload.toString() === "of the service" && socket.send("ponged"));
      socket.ping("of the service");
    } else {
      socket.send(data, { binary });
    }
  });
  socket.on("close", (code) => seen.set(url.searchParams.get("id"), code));
});

server.listen(0, "127.0.0.1", () => {
  console.log(JSON.stringify({ address: `127.0.0.1:${server.address().port}`, early: true }));
});

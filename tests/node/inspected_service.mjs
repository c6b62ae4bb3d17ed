// A service with all protocols that the inspector reads. It prints its address, and the test stops
// it.
//
//     /                 a page
//     /json             JSON, gzipped, with a number that a script must not round
//     /login            takes a form, sets a cookie
//     /events           server-sent events, three and then none
//     /refused          the answer of Vite to an unknown host name
//     /echo, upgraded   echoes
//     h2c: /test.Echo/Say   gRPC, one message each way
//     secure: TLS, with the gRPC call and a page over HTTP/2, and /echo over HTTP/1.1
import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:http";
import { createServer as createHttp2Server, createSecureServer } from "node:http2";
import { createRequire } from "node:module";
import { gzipSync } from "node:zlib";

const require = createRequire(`${process.env.SVC_TEST_NODE_PACKAGES}/`);
const { WebSocketServer } = require("ws");

const server = createServer(async (request, response) => {
  const { pathname } = new URL(request.url, "http://localhost");
  let body = "";
  for await (const text of request.setEncoding("utf8")) body += text;
  switch (pathname) {
    case "/":
      response.writeHead(200, { "content-type": "text/html" });
      return response.end("<!doctype html><title>Shop</title><h1>Shop</h1>");
    case "/json": {
      const text = `{"needle":"in a haystack","order":12345678901234567890,"said":${JSON.stringify(body)}}`;
      response.writeHead(200, { "content-type": "application/json", "content-encoding": "gzip" });
      return response.end(gzipSync(text));
    }
    case "/login":
      response.writeHead(303, { location: "/?token=afterwards", "set-cookie": "sid=confidential; Path=/" });
      return response.end();
    case "/events":
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.write("data: first\n\nevent: tick\nid: 7\ndata: second\n\n");
      return response.end('data: {"third":3}\n\n');
    case "/refused":
      response.writeHead(403, { "content-type": "text/plain" });
      return response.end(
        'Blocked request. This host ("x") is not allowed.\nTo allow this host, add "x" to `server.allowedHosts` in vite.config.js.',
      );
    case "/received":
      response.writeHead(200, { "content-type": "application/json" });
      return response.end(JSON.stringify({ method: request.method, headers: request.headers, body }));
    default:
      response.writeHead(404, { "content-type": "text/plain" });
      return response.end("there is no such thing");
  }
});

function echo(server) {
  const sockets = new WebSocketServer({ server, perMessageDeflate: { threshold: 0 } });
  sockets.on("connection", (socket) => {
    socket.on("message", (data, binary) => socket.send(data, { binary }));
  });
}

async function call(stream, headers) {
  // The whole call is read before its answer, as by a server of unary calls, so that the order of
  // messages in the inspector is defined.
  await once(stream.resume(), "end");
  stream.respond(
    { ":status": 200, "content-type": headers["content-type"] },
    { waitForTrailers: true },
  );
  stream.on("wantTrailers", () => stream.sendTrailers({ "grpc-status": "0" }));
  // A message: field 1 is "hi", field 2 is a nested message.
  const message = Buffer.from([0x0a, 2, 0x68, 0x69, 0x12, 3, 0x08, 0x96, 0x01]);
  stream.end(Buffer.concat([Buffer.from([0, 0, 0, 0, message.length]), message]));
}

function page(stream) {
  stream.respond({ ":status": 200, "content-type": "text/html" });
  stream.end("<!doctype html><title>Shop</title><h1>Shop</h1>");
}

/** A key and a self-signed certificate for another name. */
function certificate() {
  const asked = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"];
  const written = ["-nodes", "-days", "1", "-subj", "/CN=elsewhere.test", "-keyout", "-", "-out", "-"];
  const pem = execFileSync(process.env.SVC_TEST_OPENSSL, [...asked, ...written], { stdio: ["ignore", "pipe", "ignore"] });
  return { key: pem, cert: pem };
}

echo(server);
const calls = createHttp2Server();
calls.on("stream", call);
const secure = createSecureServer({ ...certificate(), allowHTTP1: true });
secure.on("stream", (stream, headers) => (headers[":method"] === "POST" ? call : page)(stream, headers));
echo(secure);

const all = [server, calls, secure];
await Promise.all(all.map((one) => once(one.listen(0, "127.0.0.1"), "listening")));
const address = (one) => `127.0.0.1:${one.address().port}`;
const [web, h2c, tls] = all.map(address);
console.log(JSON.stringify({ address: web, h2c, secure: `https://${tls}` }));

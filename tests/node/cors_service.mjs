// An API that pages of other origins may read (CORS). It prints its address, and the test stops it.
// Each answer has all requests so far, and the way in which the visitor was let in.
import { createServer } from "node:http";

const seen = [];

const server = createServer((request, response) => {
  const { method, url, headers } = request;
  request.resume();
  request.on("end", () => {
    seen.push(`${method} ${url}`);
    response.writeHead(200, {
      "content-type": "application/json",
      "access-control-allow-origin": headers.origin ?? "*",
      "access-control-allow-credentials": "true",
      vary: "Origin",
    });
    response.end(JSON.stringify({ way: headers["svc-auth-method"], seen }));
  });
});

server.listen(0, "127.0.0.1", () => {
  console.log(JSON.stringify({ address: `127.0.0.1:${server.address().port}` }));
});

"""Publishes an HTTP service through a local port and visits it. Argument: `zero-rtt` or `wait`."""

import asyncio
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from under_test import client, run, soon, until, visitor


class Service(BaseHTTPRequestHandler):
    """Answers with the method and path, and echoes bodies."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.answer(f"{self.path} of {self.headers['Host']}".encode())

    def do_POST(self):
        self.answer(self.rfile.read(int(self.headers["Content-Length"])))

    def answer(self, body):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Seen-Proto", self.headers.get("X-Forwarded-Proto", ""))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


async def main():
    service = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    threading.Thread(target=service.serve_forever, daemon=True).start()
    async with client(zero_rtt=sys.argv[1] == "zero-rtt") as sdk, visitor() as http:
        control = await soon(sdk.connect())
        tunnel = await soon(
            control.create_tunnel(protocol="http", publish=True, labels={"env": "test"})
        )
        forwarder = asyncio.create_task(tunnel.forward_to(*service.server_address))
        address = tunnel.forwarding_address

        one = await http.get(f"{address}/one?two=3")
        body = bytes(range(256)) * 4096
        upload = await http.post(address, content=body)
        many = await asyncio.gather(*(http.get(f"{address}/{n}") for n in range(40)))

        properties = tunnel.properties
        results = {
            "engine": control.server_details.agent,
            "address": address,
            "id": properties.id,
            "hostname": properties.hostname,
            "port": properties.port,
            "protocol": properties.protocol,
            "type": properties.type,
            "publish": properties.publish,
            "http_version": properties.http_version,
            "labels": dict(properties.labels),
            "dated": properties.creation_date is not None,
            "one": [one.status_code, one.text, one.headers["X-Seen-Proto"]],
            "upload": upload.status_code == 200 and upload.content == body,
            "many": sum(answer.status_code == 200 for answer in many),
        }

        await soon(tunnel.close())
        forwarder.cancel()
        results["after_close"] = (await http.get(address)).status_code
        results["closed"] = tunnel.closed
        results["control_open"] = not control.closed
    await until(lambda: control.closed)
    service.shutdown()
    return results


run(main)

#!/usr/bin/env python3
"""The picture of the dashboard in README.md, of a real platform, engine and agents with invented names.

  picture.py [--minutes 15] [--out ../docs/images/dashboard.png]

Agents publish small services under example.com, visitors use them for `--minutes`, and Chromium takes a
picture of the overview: 1440 px wide, light.  Everything runs in namespaces, in which those names
resolve, as in the other benches.

Needs `svc` with the dashboard (cargo xtask web, cargo build --release -p svc), `openssl`, `curl`, `unshare`, `ip`,
Node, and what the tests of pages need: Chromium and playwright-core, which SVC_TEST_CHROMIUM and
SVC_TEST_NODE_PACKAGES name (cargo xtask test installs them).  Standard library only.
"""
import argparse, collections, http.client, http.server, json, os, random, signal, subprocess, sys, tempfile, threading, time, zlib
from pathlib import Path

import isolate
import managed
from managed import Managed

managed.HOST = "tunnels.example.com"
# Tunnels: labels, further flags, visits a second, seconds of a response.
TUNNELS = {
    "storefront": (["team=web", "env=production"], [], 5.0, 0.020),
    "api": (["team=backend", "env=production"], [], 8.0, 0.008),
    "docs": (["team=web"], [], 1.5, 0.004),
    "staging": (["team=web", "env=staging"], ["--svc-auth"], 0.4, 0.030),
    "payments-webhook": (["team=backend"], [], 0.7, 0.050),
    "grafana": (["team=platform"], ["--token-auth"], 0.3, 0.012),
}
# Tunnels that come while the page is open.
LATE = ["status-page", "search"]


class Handler(http.server.BaseHTTPRequestHandler):
    """A service: a few kilobytes after a while, and sometimes an error."""
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        time.sleep(random.expovariate(1 / self.server.seconds))
        status = random.choices([200, 304, 404, 500], [960, 25, 12, 3])[0]
        body = b"x" * random.randrange(500, 20_000) if status == 200 else b""
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def service(seconds):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.seconds, server.daemon_threads = seconds, True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"127.0.0.1:{server.server_address[1]}"


def visit(pair, host, rate):
    """Visits at a rate that rises and falls, over one connection."""
    paths = ["/", "/cart", "/search?q=lamp", "/products/42", "/v1/orders", "/v1/orders/1001", "/health"]
    connection = None
    while True:
        wave = 1 + 0.5 * random.random() + (0.6 if int(time.time() / 90) % 3 == 0 else 0)
        time.sleep(random.expovariate(rate * wave))
        try:
            connection = connection or pair.connect(host)
            connection.request("GET", random.choice(paths), headers={"Host": host, "Accept": "application/json"})
            connection.getresponse().read()
        except (OSError, http.client.HTTPException):
            connection = None


def shrink(path):
    """Writes the picture, which Chromium made with 24 bits, with its 256 most frequent colours: half of the size."""
    data, chunks, at = path.read_bytes(), [], 8
    while at < len(data):
        size = int.from_bytes(data[at:at + 4], "big")
        chunks.append((data[at + 4:at + 8], data[at + 8:at + 8 + size]))
        at += size + 12
    head = chunks[0][1]
    width, height = int.from_bytes(head[:4], "big"), int.from_bytes(head[4:8], "big")
    if head[8:10] != b"\x08\x02":
        sys.exit("the picture is not of 24 bits")
    rows = unfilter(zlib.decompress(b"".join(body for kind, body in chunks if kind == b"IDAT")), width * 3, height)
    pixels = [[row[i:i + 3] for i in range(0, width * 3, 3)] for row in rows]
    counts = collections.Counter(pixel for row in pixels for pixel in row)
    colours = [colour for colour, _ in counts.most_common(256)]
    distance = lambda one, other: sum((a - b) ** 2 for a, b in zip(one, other))
    index = {colour: min(range(len(colours)), key=lambda i: distance(colours[i], colour)) for colour in counts}
    lines = b"".join(b"\0" + bytes(index[pixel] for pixel in row) for row in pixels)
    parts = [(b"IHDR", head[:8] + b"\x08\x03\0\0\0"), (b"PLTE", b"".join(colours)), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b"")]
    path.write_bytes(data[:8] + b"".join(len(body).to_bytes(4, "big") + kind + body + zlib.crc32(kind + body).to_bytes(4, "big")
                                         for kind, body in parts))


def unfilter(data, stride, height):
    """The rows of a picture (PNG, 12.8), three bytes for a pixel."""
    above, rows = bytearray(stride), []
    for number in range(height):
        start = number * (stride + 1)
        kind, row = data[start], bytearray(data[start + 1:start + 1 + stride])
        for i in range(stride if kind else 0):
            left, corner = (row[i - 3], above[i - 3]) if i >= 3 else (0, 0)
            estimate = left + above[i] - corner
            nearest = min((left, above[i], corner), key=lambda value: abs(estimate - value))
            row[i] = (row[i] + (0, left, above[i], (left + above[i]) // 2, nearest)[kind]) & 255
        rows.append(bytes(row))
        above = row
    return rows


def resolve(pair, hosts):
    isolate.NAMES[:] = ["localhost", pair.host, *hosts]
    isolate.hosts("127.0.0.1")


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--minutes", type=float, default=15, help="visits before the picture")
    a.add_argument("--out", default=str(Path(__file__).resolve().parent.parent / "docs/images/dashboard.png"))
    args = a.parse_args()
    missing = [n for n in ("SVC_TEST_CHROMIUM", "SVC_TEST_NODE_PACKAGES") if n not in os.environ]
    if missing:
        sys.exit(f"not set: {', '.join(missing)} (see the top of this file)")
    isolate.enter()
    isolate.network()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    with tempfile.TemporaryDirectory(prefix="svc-picture-") as base:
        pair = Managed(base, name="webshop", engine_port=443)
        try:
            resolve(pair, [])
            for name, (labels, flags, rate, seconds) in TUNNELS.items():
                flags = flags + [word for label in labels for word in ("--label", label)]
                host, _ = pair.forward(service(seconds), "--name", name, *flags)
                host = host.split(":")[0]
                threading.Thread(target=visit, args=(pair, host, rate), daemon=True).start()
            world = {"url": pair.base, "email": "ada@example.com", "password": pair.password, "project": pair.project["id"],
                     "packages": os.environ["SVC_TEST_NODE_PACKAGES"], "chromium": os.environ["SVC_TEST_CHROMIUM"], "out": args.out}
            env = dict(os.environ, BENCH_WORLD=json.dumps(world))
            print("online", flush=True)
            time.sleep(args.minutes * 60)
            node = subprocess.Popen(["node", str(Path(__file__).parent / "picture.mjs")], env=env, stdout=subprocess.PIPE, text=True)
            # The page is open: what comes now is in its list of events.
            node.stdout.readline()
            for name in LATE:
                pair.forward(service(0.01), "--name", name)
            if node.wait():
                sys.exit("the browser's part failed")
            shrink(Path(args.out))
        finally:
            pair.stop()


if __name__ == "__main__":
    main()

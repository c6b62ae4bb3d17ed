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
import argparse, contextlib, http.client, http.server, json, os, random, signal, subprocess, sys, tempfile, threading, time
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
            # Events of the list: a tunnel that comes while the picture is taken.
            subprocess.run(["node", str(Path(__file__).parent / "picture.mjs")], env=env, check=True)
        finally:
            pair.stop()


if __name__ == "__main__":
    main()

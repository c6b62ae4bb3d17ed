#!/usr/bin/env python3
"""Requests that meet services which close their idle connections: Node, uvicorn and gunicorn, at a distance.

  idle.py [--minutes 30] [--delay 50] [--tunnels 8] [--only node,uvicorn] [--out results]

Every byte between engine and agent takes `--delay` ms in each direction. Each service has `--tunnels`
tunnels, with a visitor each on one connection, who sends GET, POST, PATCH and PUT (a megabyte) with
random pauses. Most pauses end within a few round trips of the moment in which the service closes an
idle connection; the others have any length up to twice that time. The services write down the id of
each request that they receive. It fails if a service received an id twice, or if a request failed that
no service has received. A request that a service received, and whose connection it closed, may fail.

Needs `svc` (cargo build --release -p svc), `openssl`, `node`, and uvicorn and gunicorn for the Python
in --python; if the programs are not on PATH, BENCH_PATH names their directories. Services that are not
installed are reported. Standard library only.  Processes are started by this program and ended by id.
"""
import argparse, asyncio, collections, http.client, json, multiprocessing, os, random, shutil, socket, ssl
import subprocess, sys, tempfile, threading, time
from pathlib import Path

from measure import free_port, wait_port

ROOT = Path(__file__).resolve().parent.parent
os.environ["PATH"] = ":".join([os.environ.get("BENCH_PATH", ""), str(ROOT / "target/release"), os.environ["PATH"]])
HOST, SECRET = "engine.localhost", "0123456789abcdef0123456789abcdef"
REQUESTS = [("GET", 0), ("POST", 0), ("POST", 10), ("POST", 100_000), ("PATCH", 10_000), ("PUT", 1 << 20)]
# Seconds after which each service closes an idle connection by default.
KEEP_ALIVE = {"node": 5, "uvicorn": 5, "gunicorn": 2}

NODE = """
const http = require("node:http"), fs = require("node:fs");
http.createServer((request, response) => {
  fs.appendFileSync(process.env.IDS, request.headers["x-id"] + "\\n");
  request.resume().on("end", () => response.end("ok"));
}).listen(Number(process.env.PORT), "127.0.0.1");
"""

PYTHON = """
import os

def received(name):
    with open(os.environ["IDS"], "ab") as ids:
        ids.write(name + b"\\n")

async def asgi(scope, receive, send):
    received(dict(scope["headers"])[b"x-id"])
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})

def wsgi(environ, start):
    received(environ["HTTP_X_ID"].encode())
    environ["wsgi.input"].read()
    start("200 OK", [("Content-Length", "2")])
    return [b"ok"]
"""


def missing(name, python):
    """The reason why a service cannot run, or None."""
    if name == "node":
        return None if shutil.which("node") else "no node"
    found = subprocess.run([python, "-c", f"import {name}"], capture_output=True)
    return f"no {name} for {python}" if found.returncode else None


def command(name, port, python):
    if name == "node":
        return ["node", "service.js"]
    if name == "uvicorn":
        return [python, "-m", "uvicorn", "service:asgi", "--port", str(port), "--lifespan", "off", "--log-level", "error"]
    # Workers of the default kind keep no connection.
    return [python, "-m", "gunicorn", "service:wsgi", "-b", f"127.0.0.1:{port}", "-k", "gthread", "--threads", "16", "--log-level", "error"]


def delayed(listen, target, seconds):
    """A proxy that delivers every byte `seconds` later."""
    async def copy(reader, writer):
        queue, clock = asyncio.Queue(), asyncio.get_running_loop().time

        async def deliver():
            while True:
                due, data = await queue.get()
                await asyncio.sleep(max(0, due - clock()))
                if not data:
                    return writer.close()
                writer.write(data)
                await writer.drain()
        delivery = asyncio.create_task(deliver())
        try:
            while data := await reader.read(65536):
                queue.put_nowait((clock() + seconds, data))
        except ConnectionError:
            pass
        queue.put_nowait((clock() + seconds, b""))
        await delivery

    async def accept(reader, writer):
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", target)
        await asyncio.gather(copy(reader, far_writer), copy(far_reader, writer), return_exceptions=True)

    async def serve():
        async with await asyncio.start_server(accept, "127.0.0.1", listen) as server:
            await server.serve_forever()
    asyncio.run(serve())


class Bench:
    """An engine, a proxy in front of it for its agents, and the services."""
    def __init__(self, base, args):
        self.dir, self.args, self.procs, self.far = base, args, [], None
        self.port, self.far_port = free_port(), free_port()
        self.results, self.lock = collections.defaultdict(list), threading.Lock()

    def openssl(self, *args):
        subprocess.run(["openssl", *args], cwd=self.dir, check=True, capture_output=True)

    def start(self, name, cmd, **env):
        log = self.dir / f"{name}.log"
        process = subprocess.Popen(cmd, cwd=self.dir, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE if name == "agent" else open(log, "ab"),
                                   stderr=open(log, "ab"), start_new_session=True, env=dict(os.environ, SVC_LOG="error", **env), text=True)
        self.procs.append(process)
        return process, log

    def engine(self):
        key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
        self.openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=bench", "-days", "30")
        self.openssl("req", *key, "-keyout", "key.pem", "-out", "csr.pem", "-subj", f"/CN={HOST}")
        (self.dir / "names").write_text(f"subjectAltName=DNS:{HOST},DNS:*.t.{HOST}")
        self.openssl("x509", "-req", "-in", "csr.pem", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
                     "-out", "cert.pem", "-days", "30", "-extfile", "names")
        (self.dir / "engine.yaml").write_text(json.dumps({
            "engine": {"host": HOST, "log_level": "error"}, "tls": {"listen_addr": f"127.0.0.1:{self.port}"},
            "certs": {"static": {"cert_file": "cert.pem", "key_file": "key.pem"}},
            "auth": {"jwt": {"token_jwt_secret": SECRET}}}))
        process, log = self.start("engine", ["svc", "engine", "-c", "engine.yaml"])
        wait_port(self.port, process, log)
        self.far = multiprocessing.Process(target=delayed, args=(self.far_port, self.port, self.args.delay / 1000), daemon=True)
        self.far.start()
        mint = ["svc", "token", "mint", "--secret", SECRET, "--type", "pat", "--ttl", "1d", "--user", "bench"]
        self.token = subprocess.run(mint, check=True, capture_output=True, text=True).stdout.strip()
        self.trust = ssl.create_default_context(cafile=self.dir / "ca.pem")

    def service(self, name):
        """Starts a service and its tunnels."""
        port = free_port()
        (self.dir / f"{name}.ids").touch()
        process, log = self.start(name, command(name, port, self.args.python), PORT=str(port), IDS=str(self.dir / f"{name}.ids"))
        wait_port(port, process, log)
        for number in range(self.args.tunnels):
            agent, log = self.start("agent", ["svc", "forward", f"127.0.0.1:{port}", "--hostname", f"{name}-{number}", "--output", "json",
                                              "--engine", f"{HOST}:{self.far_port}", "--ca-file", "ca.pem"], SVC_TOKEN=self.token)
            self.await_online(agent, log)

    def await_online(self, agent, log):
        """Waits for the tunnel, and reads the rest of the agent's output."""
        for line in agent.stdout:
            if json.loads(line).get("status") == "online":
                threading.Thread(target=lambda: collections.deque(agent.stdout, 0), daemon=True).start()
                return
        sys.exit(f"a tunnel is not online: {log.read_text()}")

    def connect(self, host):
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=60)
        plain = socket.create_connection(("127.0.0.1", self.port), 60)
        connection.sock = self.trust.wrap_socket(plain, server_hostname=host)
        return connection

    def visit(self, name, number, until):
        host, choose, connection = f"{name}-{number}.t.{HOST}", random.Random(), None
        close, round_trip = KEEP_ALIVE[name], self.args.delay / 500
        count = 0
        while time.monotonic() < until:
            method, size = choose.choice(REQUESTS)
            count += 1
            request = f"{name}-{number}-{count}"
            try:
                connection = connection or self.connect(host)
                connection.request(method, "/", b"x" * size if method != "GET" else None, {"Host": f"{host}:{self.port}", "X-Id": request})
                response = connection.getresponse()
                response.read()
                status = response.status
            except (OSError, http.client.HTTPException) as error:
                status, connection = type(error).__name__, None
            with self.lock:
                self.results[name].append((request, method, size, status))
            is_near = choose.random() < 0.7
            pause = close + choose.uniform(-2 * round_trip, round_trip) if is_near else choose.uniform(0, 2 * close)
            time.sleep(max(0, pause))

    def run(self, names):
        until = time.monotonic() + 60 * self.args.minutes
        visitors = [threading.Thread(target=self.visit, args=(name, number, until)) for name in names for number in range(self.args.tunnels)]
        for visitor in visitors:
            visitor.start()
        for visitor in visitors:
            visitor.join()

    def result(self, name):
        received = collections.Counter((self.dir / f"{name}.ids").read_text().split())
        failed = [row for row in self.results[name] if row[3] != 200]
        return {"service": name, "requests": len(self.results[name]), "failed": len(failed),
                "failed_unseen": sum(not received[row[0]] for row in failed), "seen_twice": sum(n > 1 for n in received.values()),
                "failures": [row[1:] for row in failed][:100]}

    def stop(self):
        for process in reversed(self.procs):
            process.kill()
            process.wait()
        if self.far:
            self.far.kill()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--delay", type=float, default=50, help="ms, in each direction")
    parser.add_argument("--tunnels", type=int, default=8)
    parser.add_argument("--only", default=",".join(KEEP_ALIVE))
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--out", type=Path, default=ROOT / "bench/results")
    args = parser.parse_args()
    named = args.only.split(",")
    if unknown := set(named) - set(KEEP_ALIVE):
        sys.exit(f"no service {', '.join(sorted(unknown))}")
    absent = {name: why for name in named if (why := missing(name, args.python))}
    names = [name for name in named if name not in absent]
    with tempfile.TemporaryDirectory(prefix="svc-bench-") as scratch:
        (base := Path(scratch)).joinpath("service.js").write_text(NODE)
        (base / "service.py").write_text(PYTHON)
        bench = Bench(base, args)
        try:
            bench.engine()
            for name in names:
                bench.service(name)
            print(f"{', '.join(names)}: {args.minutes:g} minutes", flush=True)
            bench.run(names)
            rows = [bench.result(name) for name in names]
        finally:
            bench.stop()
    args.out.mkdir(parents=True, exist_ok=True)
    with open(args.out / "idle.jsonl", "a") as file:
        file.write(json.dumps({"minutes": args.minutes, "delay": args.delay, "tunnels": args.tunnels, "missing": absent, "rows": rows}) + "\n")
    lines = ["| service | requests | failed | of these not received | received twice |", "|---|---:|---:|---:|---:|"]
    lines += [f"| {r['service']} | {r['requests']:,} | {r['failed']} | {r['failed_unseen']} | {r['seen_twice']} |" for r in rows]
    lines += [f"\n{name}: {why}" for name, why in absent.items()]
    text = "\n".join(lines) + "\n"
    (args.out / "idle.md").write_text(text)
    print(text)
    if any(r["failed_unseen"] or r["seen_twice"] for r in rows):
        sys.exit("a goal is missed")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Bench of a managed engine beside its platform: cost of a token, capacity of an engine, and time to
complete a revocation and a restart.

  managed.py run [--only auth,scale,revoke,restart] [--rounds 3] [--secs 5] [--out results]
  managed.py report [--out results]

`auth`: CPU of the engine for each request to a tunnel without authentication, with a token and with
the cookie of a browser session, in interleaved rounds.  `scale`: an engine with `--credentials`
credentials and `--tunnels` tunnels: memory, time of the snapshot over the link, time to the first
response from disk while the platform is unreachable.  `revoke`: from the API's 204 to the end of an
open stream.  `restart`: `--agents` agents with a tunnel each, until all have reconnected after the
engine was killed.

Needs `svc` and the example `many` (cargo build --release -p svc; cargo build --release -p client
--example many), `h2load`, `nginx`, `curl` and `openssl`; if they are not on PATH, BENCH_PATH names
their directories.  Standard library only.  Processes are started by this program and ended by id.
"""
import argparse, contextlib, http.client, json, os, re, shutil, signal, socket, sqlite3, ssl, statistics
import subprocess, sys, tempfile, threading, time
from pathlib import Path

from measure import cpu_of, free_port, machine, wait_port

ROOT = Path(__file__).resolve().parent.parent
os.environ["PATH"] = ":".join([os.environ.get("BENCH_PATH", ""), str(ROOT / "target/release"),
                               str(ROOT / "target/release/examples"), os.environ["PATH"], "/usr/sbin"])
HOST = "engine.localhost"
NO_LIMIT = {key: 0 for key in ("clients", "tunnels", "requests_per_second", "tunnel_requests_per_second",
                               "bytes_per_second", "tunnel_bytes_per_second")}


def rss(proc):
    """MiB."""
    return int(re.search(r"^VmRSS:\s+(\d+)", Path(f"/proc/{proc.pid}/status").read_text(), re.M)[1]) / 1024


def until(what, so, timeout=180):
    """Seconds until the condition is true."""
    begun = time.perf_counter()
    while not so():
        if time.perf_counter() - begun > timeout:
            sys.exit(f"never: {what}")
        time.sleep(0.002)
    return time.perf_counter() - begun


def quantile(values, p):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * p))]

# ---------------------------------------------------------------- the pair

class Managed:
    """A platform on SQLite, an engine, a project and the token of its owner."""
    def __init__(self, base, name="bench", engine_port=None):
        self.dir, self.procs, self.name = Path(base), [], name
        self.port, self.engine_port, self.metrics_port = free_port(), engine_port or free_port(), free_port()
        self.base = f"http://localhost:{self.port}"
        (self.dir / "enrolment").write_text(os.urandom(32).hex())
        self.certificate()
        (self.dir / "platform.yaml").write_text(json.dumps({
            "platform": {"base_url": self.base, "listen_addr": f"127.0.0.1:{self.port}",
                         "data_dir": f"{self.dir}/platform", "log_level": "error"},
            "engines": [{"cluster_domain": HOST, "enrolment_secret_file": f"{self.dir}/enrolment",
                         "ca_file": f"{self.dir}/ca.pem"}],
            "catalog": {"plans": [{"plan": "basic", "limits": NO_LIMIT}],
                        "regions": [{"provider": "other", "region": "local", "engine_port": self.engine_port}]}}))
        ready = self.platform("--create-admin", "ada@example.com")
        self.password = ready["admin_password"]
        self.token = self.sign_in(self.password)
        self.project = self.create()
        self.host = f"{self.project['endpoint']}.{HOST}"
        self.trust = ssl.create_default_context(cafile=self.dir / "ca.pem")
        self.engine()
        until("the token in force", lambda: self.auth(self.token) == 204)

    def certificate(self):
        def openssl(*args, **more):
            subprocess.run(["openssl", *args], cwd=self.dir, check=True, capture_output=True, **more)
        key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
        openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=bench", "-days", "30")
        openssl("req", *key, "-keyout", "key.pem", "-out", "csr.pem", "-subj", f"/CN={HOST}")
        (self.dir / "names").write_text(f"subjectAltName=DNS:{HOST},DNS:*.{HOST},DNS:*.t.{HOST}")
        openssl("x509", "-req", "-in", "csr.pem", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
                "-out", "cert.pem", "-days", "30", "-extfile", "names")

    def start(self, *cmd, **env):
        log = open(self.dir / f"{Path(cmd[0]).name}.log", "ab")
        p = subprocess.Popen(cmd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, start_new_session=True,
                             env=dict(os.environ, SVC_LOG="error", **env), text=True)
        self.procs.append(p)
        return p

    def platform(self, *more):
        self.control = self.start("svc", "platform", "-c", str(self.dir / "platform.yaml"), "--output", "json", *more)
        return json.loads(self.control.stdout.readline())

    def engine(self, data="engine"):
        (self.dir / "engine.yaml").write_text(json.dumps({
            "engine": {"host": HOST, "log_level": "error"},
            "tls": {"listen_addr": f"127.0.0.1:{self.engine_port}"},
            "certs": {"static": {"cert_file": f"{self.dir}/cert.pem", "key_file": f"{self.dir}/key.pem"}},
            "metrics": {"prometheus": {"enabled": True, "listen_addr": f"127.0.0.1:{self.metrics_port}"}},
            # All loads have the same source address.
            "limits": {"max_connections": 100_000, "max_connections_per_source": 100_000},
            "control_plane": {"url": f"http://127.0.0.1:{self.port}", "token_file": f"{self.dir}/enrolment",
                              "data_dir": f"{self.dir}/{data}"}}))
        self.server = self.start("svc", "engine", "-c", str(self.dir / "engine.yaml"), "--output", "json")
        return json.loads(self.server.stdout.readline())

    def kill(self, proc):
        proc.kill()
        proc.wait()

    def stop(self):
        for p in reversed(self.procs):
            p.kill()
        for p in self.procs:
            p.wait()

    def call(self, method, path, body=None, **headers):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {self.token}"} if not headers else headers)}
        c.request(method, path, body and json.dumps(body), headers)
        r = c.getresponse()
        text = r.read()
        c.close()
        if r.status >= 400:
            sys.exit(f"{method} {path}: {r.status} {text[:500]}")
        return json.loads(text) if text else None

    def sign_in(self, password):
        """The jar keeps the session; a token is created with it."""
        self.jar = str(self.dir / "cookies")
        self.curl("-c", self.jar, "-H", f"Origin: {self.base}", "--data-urlencode", "email=ada@example.com",
                  "--data-urlencode", f"password={password}", f"{self.base}/login")
        return json.loads(self.curl("-b", self.jar, "-H", f"Origin: {self.base}", "-H", "Content-Type: application/json",
                                    "-d", json.dumps({"type": "pat", "name": "bench"}), f"{self.base}/api/credentials"))["token"]

    def curl(self, *args):
        return subprocess.run(["curl", "-sS", "--noproxy", "*", "--connect-to", "::127.0.0.1:", "--cacert", str(self.dir / "ca.pem"), *args],
                              check=True, capture_output=True, text=True).stdout

    def create(self):
        path = f"/api/workspaces/{self.call('GET', '/api/workspaces?type=personal')['workspaces'][0]['id']}/projects/tunnels"
        plan = next(p for p in self.call("GET", f"{path}/plan/config")["plans"] if p["plan"] == "basic")
        place = plan["providers"][0]
        return self.call("POST", path, {"name": self.name, "plan": "basic", "provider": place["provider"], "idempotencyKey": "bench",
                                        "region": place["regions"][0]["region"], "creationFingerprint": plan["creationFingerprint"]})

    def connect(self, name, timeout=60):
        c = http.client.HTTPSConnection("127.0.0.1", self.engine_port, timeout=timeout)
        c.sock = self.trust.wrap_socket(socket.create_connection(("127.0.0.1", self.engine_port), timeout), server_hostname=name)
        return c

    def auth(self, token):
        """The status of the engine's response to a token; 0 without a response."""
        with contextlib.suppress(OSError, http.client.HTTPException):
            c = self.connect(self.host)
            c.request("GET", "/api/auth", headers={"Host": f"{self.host}:{self.engine_port}", "Authorization": f"Bearer {token}"})
            status = c.getresponse().status
            c.close()
            return status
        return 0

    def ready(self):
        with contextlib.suppress(OSError, http.client.HTTPException):
            c = http.client.HTTPConnection("127.0.0.1", self.metrics_port, timeout=5)
            c.request("GET", "/readyz")
            status = c.getresponse().status
            c.close()
            return status == 200
        return False

    def forward(self, target, *args):
        """The host of a tunnel, and its agent."""
        p = self.start("svc", "forward", target, "--http", "--output", "json", "--engine", f"{self.host}:{self.engine_port}",
                       "--ca-file", str(self.dir / "ca.pem"), *args, SVC_TOKEN=self.token)
        for line in p.stdout:
            said = json.loads(line)
            if said.get("status") == "online":
                threading.Thread(target=lambda: [None for _ in p.stdout], daemon=True).start()
                return said["hostname"], p
        sys.exit("an agent ended")

    def many(self, target, agents, tunnels):
        """A process with many tunnels, and the time when each was online: {number: [(host, time), …]}."""
        p = self.start("many", f"{self.host}:{self.engine_port}", str(self.dir / "ca.pem"), target, str(agents), str(tunnels), SVC_TOKEN=self.token)
        online = {}

        def read():
            for line in p.stdout:
                number, host, at = line.split()
                online.setdefault(int(number), []).append((host, float(at)))
        threading.Thread(target=read, daemon=True).start()
        return p, online


def nginx(managed):
    """A service with a response of a few bytes."""
    port, d = free_port(), managed.dir
    (d / "nginx.conf").write_text(f"""daemon off; pid {d}/nginx.pid; error_log {d}/nginx.err; worker_processes 1;
        events {{ worker_connections 4096; }}
        http {{ access_log off; keepalive_requests 1000000000; client_body_temp_path {d}/b; proxy_temp_path {d}/p;
        fastcgi_temp_path {d}/f; uwsgi_temp_path {d}/u; scgi_temp_path {d}/s;
        server {{ listen 127.0.0.1:{port}; location / {{ return 200 "hello\\n"; }} }} }}""")
    wait_port(port, managed.start("nginx", "-c", str(d / "nginx.conf")), d / "nginx.err")
    return f"127.0.0.1:{port}"

# ---------------------------------------------------------------- what is measured

def auth(managed, args, note):
    target = nginx(managed)
    open_, _ = managed.forward(target)
    guarded, _ = managed.forward(target, "--token-auth", "--svc-auth")
    url = f"https://{guarded}:{managed.engine_port}/"
    managed.curl("-L", "-b", managed.jar, "-c", managed.jar, "-H", "Accept: text/html", url)
    cookies = [line.split("\t") for line in Path(managed.jar).read_text().splitlines() if guarded in line]
    cookie = "; ".join(f"{c[5]}={c[6]}" for c in cookies if len(c) == 7)
    loads = {"open": (open_, []), "token": (guarded, [f"Authorization: Bearer {managed.token}"]),
             "session": (guarded, [f"Cookie: {cookie}"])}
    for _ in range(args.rounds):
        for name, (host, headers) in loads.items():
            cmd = ["h2load", "--h1", "-t1", f"-c{args.connections}", f"-D{args.secs}", "--connect-to", f"127.0.0.1:{managed.engine_port}"]
            for h in headers:
                cmd += ["-H", h]
            before, t = (cpu_of([managed.server.pid]), *machine()), time.time()
            out = subprocess.run([*cmd, f"https://{host}:{managed.engine_port}/"], check=True, capture_output=True, text=True).stdout
            wall, after = time.time() - t, (cpu_of([managed.server.pid]), *machine())
            cpu, all_, ours = (b - a for a, b in zip(before, after))
            counts = re.search(r"requests: .* (\d+) done, (\d+) succeeded, (\d+) failed, (\d+) errored", out)
            done, good = int(counts[1]), int(re.search(r"status codes: (\d+) 2xx", out)[1])
            if good < done * 0.99:
                sys.exit(f"{name}: {good} of {done}\n{out}")
            note("auth", name, {"n": good, "rate": good / wall, "cpu_us": cpu / good * 1e6})


def scale(managed, args, note):
    target = nginx(managed)
    empty = rss(managed.server)
    managed.kill(managed.server)
    managed.kill(managed.control)
    seed(managed.dir / "platform/platform.db", args.credentials)
    managed.platform()
    for i in range(args.rounds):
        managed.engine(f"fresh{i}")
        told = until("the snapshot", lambda: managed.ready())
        until("the token in force", lambda: managed.auth(managed.token) == 204)
        full = rss(managed.server)
        state = managed.dir / f"fresh{i}/link/state"
        until("the file", state.exists)
        managed.kill(managed.server)
        managed.kill(managed.control)
        begun = time.perf_counter()
        managed.engine(f"fresh{i}")
        until("an answer", lambda: managed.auth(managed.token) == 204)
        note("scale", "credentials", {"empty_mib": empty, "mib": full, "told_s": told, "disk_s": time.perf_counter() - begun,
                                      "restored_mib": rss(managed.server), "file_mib": state.stat().st_size / 2**20})
        managed.platform()
        if i + 1 < args.rounds:
            managed.kill(managed.server)
    before, t = rss(managed.server), time.perf_counter()
    agent, online = managed.many(target, 100, args.tunnels // 100)
    until("all tunnels", lambda: len(online) == args.tunnels, 600)
    note("scale", "tunnels", {"before_mib": before, "mib": rss(managed.server), "agent_mib": rss(agent), "s": time.perf_counter() - t})
    managed.kill(agent)


def seed(database, count):
    """Copies of one credential, with different ids and hashes."""
    db = sqlite3.connect(database)
    db.row_factory = sqlite3.Row
    one = dict(db.execute("SELECT * FROM credentials WHERE kind = 'pat' LIMIT 1").fetchone())
    columns = ", ".join(one)
    digits = "0123456789abcdefghjkmnpqrstvwxyz"

    def copies():
        for i in range(count):
            tail = "".join(digits[i >> shift & 31] for shift in (20, 15, 10, 5, 0))
            own = {"id": one["id"][:-5] + tail, "token_hash": os.urandom(32), "token_endpoint": f"{i:08x}"}
            yield list({**one, **own}.values())
    with db:
        db.executemany(f"INSERT OR IGNORE INTO credentials ({columns}) VALUES ({', '.join('?' * len(one))})", copies())
    db.close()


def revoke(managed, args, note):
    """Streams that a service keeps open, and the time of their end."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        while True:
            s, _ = listener.accept()
            s.recv(65536)
            s.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nbegun")
            held.append(s)
    held = []
    threading.Thread(target=serve, daemon=True).start()
    host, _ = managed.forward(f"127.0.0.1:{listener.getsockname()[1]}", "--token-auth")
    for i in range(args.revocations):
        issued = managed.call("POST", "/api/credentials", {"type": "pat", "name": f"r{i}"})
        until("the token in force", lambda: managed.auth(issued["token"]) == 204)
        c = managed.connect(host)
        c.request("GET", "/", headers={"Host": f"{host}:{managed.engine_port}", "Authorization": f"Bearer {issued['token']}"})
        r = c.getresponse()
        assert r.status == 200 and r.read(5) == b"begun"
        ended = []

        def wait():
            with contextlib.suppress(OSError, http.client.HTTPException):
                r.read()
            ended.append(time.perf_counter())
        waiting = threading.Thread(target=wait)
        waiting.start()
        managed.call("DELETE", f"/api/credentials/{issued['credential']['id']}")
        answered = time.perf_counter()
        waiting.join()
        note("revoke", "stream", {"ms": max(0.0, ended[0] - answered) * 1e3}, quiet=True)
        while held:
            held.pop().close()


def restart(managed, args, note):
    target = nginx(managed)
    agent, online = managed.many(target, args.agents, 1)
    until("all agents", lambda: len(online) == args.agents, 600)
    for i in range(args.rounds):
        names = {number: came[-1][0] for number, came in online.items()}
        managed.kill(managed.server)
        killed = time.time()
        managed.engine()
        began = time.time()
        until("all of them back", lambda: all(len(came) == i + 2 for came in online.values()), 600)
        kept = sum(online[number][-1][0] == name for number, name in names.items())
        back = [came[-1][1] - began for came in online.values()]
        note("restart", "agents", {"away_s": began - killed, "p50": quantile(back, .5), "p99": quantile(back, .99), "kept": kept / len(names)})
    managed.kill(agent)

# ---------------------------------------------------------------- commands

WORK = {"auth": auth, "scale": scale, "revoke": revoke, "restart": restart}


def run(args):
    missing = [n for n in ("svc", "many", "h2load", "nginx", "curl", "openssl") if not shutil.which(n)]
    if missing:
        sys.exit(f"not here: {', '.join(missing)} (see the top of this file)")
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    raw = open(out / "managed.jsonl", "a" if args.more else "w")
    for work in args.only.split(","):
        with tempfile.TemporaryDirectory(prefix="svc-bench-", dir=args.data) as base:
            managed = Managed(base)
            try:
                def note(work, what, r, quiet=False):
                    raw.write(json.dumps({"w": work, "c": what, "r": r, "load": os.getloadavg()[0]}) + "\n")
                    raw.flush()
                    if not quiet:
                        print(work, what, " ".join(f"{k} {v:.4g}" for k, v in r.items()), flush=True)
                WORK[work](managed, args, note)
            finally:
                managed.stop()
    report(args)


def report(args):
    runs, loads = {}, []
    for line in (Path(args.out) / "managed.jsonl").read_text().splitlines():
        d = json.loads(line)
        runs.setdefault((d["w"], d["c"]), []).append(d["r"])
        loads.append(d["load"])
    med = lambda key, field: statistics.median(r[field] for r in runs[key])
    md = ["| what | value |", "|---|---:|"]
    row = lambda what, value: md.append(f"| {what} | {value} |")
    if ("auth", "open") in runs:
        base = med(("auth", "open"), "cpu_us")
        row("engine CPU for a request without authentication", f"{base:.1f} µs")
        for name in ("token", "session"):
            # Rounds are interleaved: each is compared with its neighbour.
            ratio = statistics.median(a["cpu_us"] / b["cpu_us"] for a, b in zip(runs["auth", name], runs["auth", "open"]))
            row(f"with {'a token' if name == 'token' else 'the cookie of a session'}", f"{med(('auth', name), 'cpu_us'):.1f} µs ({ratio:.2f} ×)")
    if ("scale", "credentials") in runs:
        m = lambda field: med(("scale", "credentials"), field)
        row("engine, one credential", f"{m('empty_mib'):.0f} MiB")
        row("engine, all credentials: told over the link, restored from disk", f"{m('mib'):.0f} MiB, {m('restored_mib'):.0f} MiB")
        row("the file on disk", f"{m('file_mib'):.0f} MiB")
        row("the snapshot over the link, from the start of the engine", f"{m('told_s'):.2f} s")
        row("first answer from disk, the platform away, from the start of the engine", f"{m('disk_s'):.2f} s")
    if ("scale", "tunnels") in runs:
        m = lambda field: med(("scale", "tunnels"), field)
        row("all tunnels on top", f"{m('mib') - m('before_mib'):.0f} MiB, online in {m('s'):.1f} s")
    if ("revoke", "stream") in runs:
        times = [r["ms"] for r in runs["revoke", "stream"]]
        row(f"revocation, from 204 to the end of the stream: p50, p99 of {len(times)}", f"{quantile(times, .5):.1f} ms, {quantile(times, .99):.1f} ms")
    if ("restart", "agents") in runs:
        m = lambda field: med(("restart", "agents"), field)
        row("agents back after a kill, from the new engine's first word: p50, p99", f"{m('p50'):.2f} s, {m('p99'):.2f} s")
        row("of them under their names", f"{m('kept'):.1%}")
    md.append(f"\nMedians; load average of the machine meanwhile {statistics.median(loads):.1f} on {os.cpu_count()} cores.")
    (Path(args.out) / "managed.md").write_text("\n".join(md) + "\n")
    print("\n" + "\n".join(md))


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("command", choices=["run", "report"])
    a.add_argument("--only", default=",".join(WORK), help="what is measured")
    a.add_argument("--more", action="store_true", help="keep the results of earlier runs")
    a.add_argument("--rounds", type=int, default=3)
    a.add_argument("--secs", type=int, default=5, help="seconds of each load")
    a.add_argument("--connections", type=int, default=32)
    a.add_argument("--credentials", type=int, default=100_000)
    a.add_argument("--tunnels", type=int, default=10_000)
    a.add_argument("--agents", type=int, default=1_000)
    a.add_argument("--revocations", type=int, default=200)
    a.add_argument("--out", default=str(Path(__file__).parent / "results"))
    a.add_argument("--data", default=None, help="where the database is")
    args = a.parse_args()
    # SIGTERM also ends the started processes.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    {"run": run, "report": report}[args.command](args)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Bench of the control plane, beside the minimum that could do the same.

  platform.py run [--secs 5] [--rounds 3] [--only sqlite,postgres] [--out results]
  platform.py report [--out results]

The platform answers `whoami` and `resolve` on SQLite and on PostgreSQL. Beside it, a bare axum
server returns a constant (`constant`), and the result of the same SQL statement without anything
else (`by-hand`: no token, no signature, no permission).  The cost of a credential is `whoami` with
a personal access token (`svc`) and with one of an OAuth client (`svc-oauth`) compared to a route
without authentication (`svc-open`).  The cost of a tool is the same call over MCP (`svc-mcp`), and
the list of tools.  Then sixteen clients concurrently create projects, each in a separate workspace
and all in one.

Needs `svc` and the example `bare` (cargo build --release -p svc; cargo build --release -p control
--example bare), `wrk`, and PostgreSQL's programs (`initdb`, `pg_ctl`); if they are not on PATH,
BENCH_PATH names their directories.  Standard library only; rounds are interleaved, and each line
shows the share of the machine that other processes used.
"""
import argparse, contextlib, http.client, json, os, pwd, re, shutil, signal, socket, statistics
import subprocess, sys, tempfile, threading, time, urllib.request
from pathlib import Path

from measure import cpu_of, free_port, machine, wait_port

ROOT = Path(__file__).resolve().parent.parent
PG = sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin")), reverse=True)
os.environ["PATH"] = ":".join([os.environ.get("BENCH_PATH", ""), str(ROOT / "target/release"),
                               str(ROOT / "target/release/examples"), os.environ["PATH"], *PG])
CREATORS = 16


def measured(server, database, work):
    """The result of `work`, with the CPU of server and database, and the share of other processes."""
    before, t = (cpu_of(server), cpu_of(database), *machine()), time.time()
    r = work()
    wall = time.time() - t
    after = (cpu_of(server), cpu_of(database), *machine())
    s, d, all_, ours = (b - a for a, b in zip(before, after))
    r |= {"cpu": s, "cpu_db": d, "foreign": max(0.0, all_ - ours - s - d) / (wall * os.cpu_count())}
    return r

# ---------------------------------------------------------------- what is measured

class Postgres:
    """A server with its defaults, durable, on a separate socket."""
    def __init__(self, base):
        self.dir = Path(base) / "pg"
        self.dir.mkdir()
        self.as_user = {}
        if os.geteuid() == 0:           # it refuses to run as root
            nobody = pwd.getpwnam("nobody")
            os.chown(self.dir, nobody.pw_uid, nobody.pw_gid)
            self.as_user = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
        self.run("initdb", "-D", "data", "-U", "svc", "-A", "trust", "-E", "UTF8")
        self.run("pg_ctl", "start", "-w", "-D", "data", "-l", "log", "-o", f"-k {self.dir} -c listen_addresses=''")
        self.pid = int((self.dir / "data/postmaster.pid").read_text().split()[0])
        self.url = f"postgres://svc@localhost/postgres?host={str(self.dir).replace('/', '%2F')}"

    def run(self, *cmd):
        subprocess.run(cmd, cwd=self.dir, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                       env=dict(os.environ, LC_ALL="C"), **self.as_user)

    def stop(self):
        self.run("pg_ctl", "stop", "-w", "-m", "fast", "-D", "data")


class Platform:
    """A platform on one database, filled, and the bare server on the same."""
    def __init__(self, base, database, projects):
        self.name, self.dir = database, Path(base) / database
        self.dir.mkdir()
        self.postgres = Postgres(self.dir) if database == "postgres" else None
        self.db_pids = [self.postgres.pid] if self.postgres else []
        self.port, self.bare_port = free_port(), free_port()
        url = self.postgres.url if self.postgres else f"sqlite://{self.dir}/data/platform.db"
        config = self.dir / "platform.yaml"
        config.write_text(json.dumps({
            "platform": {"base_url": f"http://127.0.0.1:{self.port}", "listen_addr": f"127.0.0.1:{self.port}",
                         "data_dir": f"{self.dir}/data", "log_level": "error",
                         **({"database_url": url} if self.postgres else {})},
            "engines": [{"cluster_domain": "engine.example"}]}))
        out = subprocess.run(["bare", "seed", config, str(CREATORS), str(projects)], check=True, capture_output=True)
        self.people = json.loads(out.stdout)
        self.procs = [self.start("svc", "platform", "--config", config), self.start("bare", "serve", f"127.0.0.1:{self.bare_port}", url)]
        for port, proc in zip((self.port, self.bare_port), self.procs):
            wait_port(port, proc, self.dir / f"{proc.args[0]}.log")

    def start(self, *cmd):
        log = open(self.dir / f"{cmd[0]}.log", "ab")
        return subprocess.Popen(cmd, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)

    def stop(self):
        for p in self.procs:
            p.send_signal(signal.SIGTERM)
        for p in self.procs:
            p.wait()
        if self.postgres:
            self.postgres.stop()

    def loads(self):
        """(contender, work, its server, URL, headers, the posted message)"""
        svc, bare = ([p.pid] for p in self.procs)
        p = self.people[0]
        mine, other = f"http://127.0.0.1:{self.port}", f"http://127.0.0.1:{self.bare_port}"
        token, oauth = ([f"Authorization: Bearer {p[kind]}"] for kind in ("token", "oauth_token"))
        tool = lambda name: {"method": "tools/call", "params": {"name": name, "arguments": {}}}
        return [("svc", "whoami", svc, f"{mine}/api/whoami", token, None),
                ("svc-oauth", "whoami", svc, f"{mine}/api/whoami", oauth, None),
                ("svc-mcp", "whoami", svc, f"{mine}/api/mcp", oauth, tool("svc_whoami")),
                ("by-hand", "whoami", bare, f"{other}/whoami", [f"x-key: {p['key']}"], None),
                ("svc", "resolve", svc, f"{mine}/api/projects/tunnels/resolve/{p['endpoint']}", token, None),
                ("by-hand", "resolve", bare, f"{other}/resolve/{p['endpoint']}", [], None),
                ("svc-oauth", "projects", svc, f"{mine}/api/projects/tunnels", oauth, None),
                ("svc-mcp", "projects", svc, f"{mine}/api/mcp", oauth, tool("svc_project_list")),
                ("svc-mcp", "tools", svc, f"{mine}/api/mcp", oauth, {"method": "tools/list"}),
                ("svc-open", "constant", svc, f"{mine}/healthz", [], None),
                ("by-hand", "constant", bare, f"{other}/constant", [], None)]

    def check(self):
        """Checks each load once, because a failing tool also responds with 200."""
        for contender, work, _, url, headers, message in self.loads():
            r = urllib.request.Request(url, message and json.dumps(MESSAGE | message).encode(), dict(h.split(": ") for h in headers + (MCP if message else [])))
            answer = json.loads(urllib.request.urlopen(r, timeout=10).read())
            if message and answer.get("result", {"isError": True}).get("isError"):
                sys.exit(f"{contender} {work}: {answer}")


MESSAGE = {"jsonrpc": "2.0", "id": 1}
MCP = ["Content-Type: application/json", "Accept: application/json, text/event-stream", "MCP-Protocol-Version: 2025-11-25"]


def wrk(url, headers, message, secs):
    cmd = ["wrk", "-t1", "-c32", f"-d{secs}s", "--latency", "--timeout", "5s"]
    for h in headers + (MCP if message else []):
        cmd += ["-H", h]
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        if message:
            script.write(f'wrk.method = "POST"\nwrk.body = [[{json.dumps(MESSAGE | message)}]]\n')
            script.flush()
            cmd += ["-s", script.name]
        out = subprocess.run(cmd + [url], check=True, capture_output=True, text=True).stdout
    n = int(re.search(r"(\d+) requests in", out)[1])
    bad = sum(map(int, re.findall(r"(?:connect|read|write|timeout) (\d+)", out)))
    m = re.search(r"Non-2xx or 3xx responses: (\d+)", out)
    unit = {"us": 1e-3, "ms": 1, "s": 1e3}
    q = {p: float(v) * unit[u] for p, v, u in re.findall(r"(50|99)%\s+([\d.]+)(us|ms|s)", out)}
    return {"rate": float(re.search(r"Requests/sec:\s+([\d.]+)", out)[1]), "n": n, "p50": q["50"], "p99": q["99"],
            "errors": bad + (int(m[1]) if m else 0)}


def creations(platform, each, shared, mark):
    """Sixteen concurrent creators, each on its own connection; times of single creations."""
    times, errors, begin = [], [], threading.Barrier(CREATORS)

    def creator(k):
        p = platform.people[0 if shared else k]
        c = http.client.HTTPConnection("127.0.0.1", platform.port, timeout=60)
        head = {"Authorization": f"Bearer {p['token']}", "Content-Type": "application/json"}
        path = f"/api/workspaces/{p['workspace']}/projects/tunnels"

        def call(method, path, body=None):
            c.request(method, path, body and json.dumps(body), head)
            r = c.getresponse()
            return r.status, json.loads(r.read())
        _, config = call("GET", f"{path}/plan/config")
        plan = next(x for x in config["plans"] if x["plan"] == "basic")
        place = plan["providers"][0]
        begin.wait()
        for i in range(each):
            order = {"name": f"p{i}", "plan": "basic", "provider": place["provider"], "region": place["regions"][0]["region"],
                     "creationFingerprint": plan["creationFingerprint"], "idempotencyKey": f"{mark}-{shared}-{k}-{i}"}
            t = time.perf_counter()
            status, body = call("POST", path, order)
            times.append((time.perf_counter() - t) * 1e3)
            if status != 201:
                errors.append(body)
        c.close()
    threads = [threading.Thread(target=creator, args=(k,)) for k in range(CREATORS)]
    t = time.time()
    for x in threads: x.start()
    for x in threads: x.join()
    times.sort()
    q = lambda p: times[min(len(times) - 1, int(len(times) * p))]
    if errors:
        print(errors[0], file=sys.stderr)
    return {"rate": len(times) / (time.time() - t), "n": len(times), "p50": q(.5), "p99": q(.99), "max": times[-1], "errors": len(errors)}

# ---------------------------------------------------------------- commands

def run(args):
    missing = [n for n in ("wrk", "svc", "bare", "initdb", "pg_ctl") if not shutil.which(n)]
    if missing:
        sys.exit(f"not here: {', '.join(missing)} (see the top of this file)")
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    raw = open(out / "platform.jsonl", "w")
    with tempfile.TemporaryDirectory(prefix="svc-bench-", dir=args.data) as base, contextlib.ExitStack() as stack:
        os.chmod(base, 0o755)
        platforms = []
        for name in args.only.split(","):
            platforms.append(Platform(base, name, args.projects))
            stack.callback(platforms[-1].stop)
            platforms[-1].check()

        def note(platform, contender, work, r):
            r["cpu_per_10k"], r["db_per_10k"] = (r[k] / max(r["n"], 1) * 1e4 for k in ("cpu", "cpu_db"))
            raw.write(json.dumps({"db": platform.name, "c": contender, "w": work, "r": r}) + "\n")
            raw.flush()
            print(f"{platform.name:9} {contender:9} {work:11} {r['rate']:9.0f}/s  p99 {r['p99']:7.2f} ms  "
                  f"CPU/10k {r['cpu_per_10k']:6.2f} + {r['db_per_10k']:5.2f} s  foreign {r['foreign']:.0%}  errors {r['errors']}", flush=True)
        for round_ in range(args.rounds):
            for load in range(len(platforms[0].loads())):
                for p in platforms:
                    contender, work, server, url, headers, message = p.loads()[load]
                    note(p, contender, work, measured(server, p.db_pids, lambda: wrk(url, headers, message, args.secs)))
            for shared in (False, True):
                for p in platforms:
                    r = measured([p.procs[0].pid], p.db_pids, lambda: creations(p, args.creations, shared, round_))
                    note(p, "svc", "create-one" if shared else "create", r)
    report(args)


def report(args):
    runs = {}
    for line in (Path(args.out) / "platform.jsonl").read_text().splitlines():
        d = json.loads(line)
        runs.setdefault((d["db"], d["w"], d["c"]), []).append(d["r"])
    med = {k: {f: statistics.median(r[f] for r in v) for f in ("rate", "p50", "p99", "cpu_per_10k", "db_per_10k")} for k, v in runs.items()}
    md = ["| database | work | who | per second | p50 ms | p99 ms | CPU s per 10,000 | database CPU s | ÷ by-hand rate | ÷ constant rate | CPU ÷ same call over HTTP |",
          "|---|---|---|---:|---:|---:|---:|---:|---:|---:|---:|"]
    cpu = lambda m: m["cpu_per_10k"] + m["db_per_10k"]
    for (db, w, c), m in med.items():
        http = med.get((db, w, "svc-oauth")) if c == "svc-mcp" else None
        over_http = f"{cpu(m) / cpu(http):.2f}" if http else "–"
        ratio = lambda k: f"{m['rate'] / med[k]['rate']:.2f}" if k in med and not w.startswith("create") else "–"
        md.append(f"| {db} | {w} | {c} | {m['rate']:,.0f} | {m['p50']:.2f} | {m['p99']:.2f} | {m['cpu_per_10k']:.2f} | {m['db_per_10k']:.2f} | "
                  f"{ratio((db, w, 'by-hand'))} | {ratio((db, 'constant', 'by-hand'))} | {over_http} |")
    every = [r for v in runs.values() for r in v]
    spread = [(max(x) - min(x)) / statistics.median(x) for x in ([r["rate"] for r in v] for v in runs.values()) if len(x) > 2]
    md.append(f"\nForeign CPU: median {statistics.median(r['foreign'] for r in every):.0%}, max {max(r['foreign'] for r in every):.0%}; "
              f"errors: {sum(r['errors'] for r in every)}" + (f"; spread of rates (max−min)/median: {statistics.median(spread):.0%}" if spread else "") + ".")
    (Path(args.out) / "platform.md").write_text("\n".join(md) + "\n")
    print("\n" + "\n".join(md))


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("command", choices=["run", "report"])
    a.add_argument("--only", default="sqlite,postgres", help="databases")
    a.add_argument("--secs", type=int, default=5, help="seconds of each load")
    a.add_argument("--rounds", type=int, default=3)
    a.add_argument("--creations", type=int, default=50, help="projects of each of sixteen creators")
    a.add_argument("--projects", type=int, default=1000, help="projects that each workspace has before")
    a.add_argument("--out", default=str(Path(__file__).parent / "results"))
    a.add_argument("--data", default=None, help="where the databases are, on a disk that syncs as yours does")
    args = a.parse_args()
    {"run": run, "report": report}[args.command](args)


if __name__ == "__main__":
    main()

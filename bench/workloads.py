"""Load on one contender: requests, connections, latency, bulk, messages, tokens.

The suffix `_tls` means visitors over TLS, `_h2` over HTTP/2 (and TLS). Each function returns the
results of its load generator; `measured` adds the resource usage.
"""
import json, re, shutil, subprocess, sys, time

import service
from contenders import Contender, get
from isolate import scratch
from processes import measured, run

# Program that each workload needs in addition to a contender; Python's standard library does the rest.
NEEDS = {"rps": "wrk", "conn": "wrk", "h2": "h2load", "lat": "h2load", "down": "curl", "up": "curl", "ws": "bench-tools", "token": "wrk"}
WORK = ["rps", "rps_tls", "rps_h2", "conn", "conn_tls", "lat", "lat_tls", "down1", "down8", "up1", "up8",
        "down1_tls", "down8_tls", "up1_tls", "up8_tls", "lat_h2", "down1_h2", "down8_h2", "up1_h2", "up8_h2", "ws", "ws_tls", "token", "mem"]
NAMED = ["udp"]         # only when it is named: svc carries no datagrams yet


def missing(work):
    """The program that a workload lacks, or None."""
    stem = re.match(r"[a-z]+", work.replace("rps_h2", "h2"))[0]
    need = NEEDS.get(stem)
    return need if need and not shutil.which(need) else None


def wants(c, work):
    """True if this workload applies to this contender."""
    if work in c.get("skip", []) or ("only" in c and work not in c["only"]):
        return False
    if work in ("token", "udp"):
        return {"token": "guarded", "udp": "udp"}[work] in c
    if work == "mem":
        return c["class"] != "direct"
    return bool(c.get("tls_url" if work.endswith(("_tls", "_h2")) else "url"))


def do(c, work, args):
    url = c.tls_url if work.endswith(("_tls", "_h2")) else c.url
    kind, is_h2 = work.removesuffix("_tls").removesuffix("_h2"), work.endswith("_h2")
    if kind == "rps": return h2(c, url, args.secs) if is_h2 else wrk(c, url, 64, args.secs)
    if kind == "conn": return wrk(c, url, 16, args.secs, close=True)
    if kind == "lat": return latency(c, url, args.secs, is_h2=is_h2)
    if kind[:-1] in ("down", "up"): return bulk(c, url, args.mib, int(kind[-1]), kind.startswith("up"), is_h2)
    if kind == "ws": return messages(c, work, args.secs)
    if kind == "token": return token(c, args)
    if kind == "udp": return datagrams(c, args.secs)
    raise ValueError(f"no workload {work}")


def wrk(c, url, conns, secs, close=False, header=None):
    """Requests at the maximum rate: on persistent connections, or on a new connection each."""
    cmd = ["wrk", "-t2", f"-c{conns}", f"-d{max(1, round(secs))}s", "--timeout", "5s"]
    fields = [f"Host: {c.host}"] if c.host else []
    fields += [header or c.header] if header or c.header else []
    for h in fields + (["Connection: close"] if close else []):
        cmd += ["-H", h]

    def go():
        o = run(cmd + [url], timeout=secs + 15).stdout.decode()
        n = int(re.search(r"(\d+) requests in", o)[1])
        # Some versions count the peer's close as a read error.
        bad = sum(map(int, re.findall(rf"(?:connect|{'' if close else 'read|'}write|timeout) (\d+)", o)))
        refused = re.search(r"Non-2xx or 3xx responses: (\d+)", o)
        return {"rate": float(re.search(r"Requests/sec:\s+([\d.]+)", o)[1]), "n": n, "errors": bad + int(refused[1] if refused else 0)}
    return per_100k(measured(c, go))


def per_100k(r):
    r["cpu_per_100k"] = r["cpu"] / max(r["n"], 1) * 1e5
    return r


def h2(c, url, secs):
    """64 concurrent requests on 8 HTTP/2 connections."""
    def go():
        o = run(["h2load", "-t1", "-c8", "-m8", f"-D{max(1, round(secs))}", url], timeout=secs + 15).stdout.decode()
        require_h2(o)
        n = int(re.search(r"status codes: (\d+) 2xx", o)[1])
        wrong = sum(map(int, re.findall(r"(\d+) (?:failed|[345]xx)", o)))
        return {"rate": float(re.search(r"finished in .*?, ([\d.]+) req/s", o)[1]), "n": n, "errors": wrong}
    return per_100k(measured(c, go))


def require_h2(said):
    """`said` is the output of h2load."""
    if "h2" not in re.search(r"Application protocol: (\S+)", said)[1]:
        raise RuntimeError("HTTP/2 was not agreed on")


def latency(c, url, secs, conns=20, per=50, rate=True, is_h2=False):
    """1,000 requests per second over 20 connections; without `rate`, each after the response to the previous one."""
    log = scratch() / "h2load.log"
    log.unlink(missing_ok=True)
    cmd = ["h2load", *([] if is_h2 else ["--h1"]), f"-c{conns}", "-t1", f"-D{max(1, round(secs))}", f"--log-file={log}"] + ([f"--rps={per}"] if rate else [])
    for h in ([f":authority: {c.host}"] if c.host else []) + ([c.header] if c.header else []):
        cmd += ["-H", h]

    def go():
        begun = time.time()
        said = run(cmd + [url], timeout=secs + 15).stdout.decode()
        if is_h2:
            require_h2(said)
        rows = [l.split("\t") for l in log.read_text().splitlines()]
        v = sorted(int(x[2]) for x in rows if x[1] == "200")
        if not v:
            raise RuntimeError("no answer was good")
        q = lambda p: v[min(len(v) - 1, int(len(v) * p))] / 1000
        wall = time.time() - begun
        return {"n": len(v), "rate": len(v) / wall, "errors": len(rows) - len(v), "p50": q(.5), "p90": q(.9), "p99": q(.99), "max": v[-1] / 1000}
    return per_100k(measured(c, go))


def bulk(c, url, mib, par, up, is_h2=False, limit=60):
    """One body of `mib` MiB, or eight concurrent ones of an eighth each, on a connection for each."""
    version = "2" if is_h2 else "1.1"
    base, src = url.rstrip("/"), scratch() / "www" / ("part" if par == 8 else "blob")
    size = src.stat().st_size
    fields = (["-H", f"Host: {c.host}"] if c.host else []) + (["-H", c.header] if c.header else [])

    def one(k):
        cmd = ["curl", "-s", "--cacert", str(service.pki() / "ca.pem"), f"--http{version}", "-m", str(limit), "-o", "/dev/null",
               "-w", "%{http_code} %{size_download} %{size_upload} %{http_version}", *fields]
        cmd += ["-T", str(src), "-H", "Expect:", f"{base}/up/f{k}"] if up else [f"{base}/{src.name}"]
        return subprocess.Popen(cmd, stdout=subprocess.PIPE)

    def go():
        ok = 0
        for p in [one(k) for k in range(par)]:
            o = p.communicate()[0].decode().split()
            if o[0] != "000" and o[3] != version:
                raise RuntimeError(f"HTTP/{version} was not agreed on")
            ok += o[0] in ("200", "201", "204") and int(float(o[2 if up else 1])) == size
        return {"ok": ok, "errors": par - ok, "gib": ok * size / 2**30}
    r = measured(c, go)
    if not r["ok"]:
        raise RuntimeError("no body came through")
    return r | {"mib_s": r["gib"] * 1024 / r["wall"], "cpu_per_gib": r["cpu"] / r["gib"]}


def messages(c, work, secs, sockets=64, size=100):
    """Short WebSocket messages and their echo, one in flight on each socket. The contender is restarted with
    the echo as its service.
    """
    c.stop()
    again = Contender(c.c, c.service, up=service.WS)
    try:
        again.start()
        url = again.tls_url if work.endswith("_tls") else again.url
        go = lambda: json.loads(run(["bench-tools", "ws", url, str(service.pki() / "ca.pem"), str(sockets), str(secs), str(size)], timeout=secs + 15).stdout)
        r = measured(again, go)
    finally:
        again.stop()
        c.start()
    r["rate"] = r["n"] / r["wall"]
    return per_100k(r)


def datagrams(c, secs, rate=10_000, size=200):
    """Echoes of 10,000 datagrams a second."""
    cmd = [sys.executable, str(service.HERE / "udp.py"), "load", c.x(c.c["udp"]), str(rate), str(max(1, round(secs))), str(size)]
    r = measured(c, lambda: json.loads(run(cmd, timeout=secs + 15).stdout))
    r["n"] = r["received"]
    return per_100k(r)


def token(c, args):
    """Requests to a tunnel with `token_auth`, always with the same token, between two measurements of the
    tunnel without: the additional CPU of each algorithm, in per cent.
    """
    guarded = c.spawn(c.c["guarded"])
    c.procs.append(guarded)
    try:
        url = c.x(c.c["token_url"])
        headers = {alg: f"Authorization: Bearer {c.x(t)}" for alg, t in c.c["tokens"].items()}
        for alg, header in headers.items():
            c.await_answer(url, header)
        if get(url):
            raise RuntimeError("the guarded tunnel lets anybody in")
        secs, runs = max(1, args.secs / 2), {}
        for alg in (None, *headers, *reversed(headers), None):
            r = wrk(c, c.tls_url if alg is None else url, 64, secs, header=headers.get(alg))
            if r["errors"]:
                raise RuntimeError(f"{alg}: {r['errors']} errors")
            runs.setdefault(alg, []).append(r["cpu_per_100k"])
    finally:
        guarded.kill()
        c.procs.remove(guarded)
    mean = {alg: sum(v) / len(v) for alg, v in runs.items()}
    out = {"open": mean[None], "foreign": r["foreign"]}
    return out | {f"{alg.lower()}_percent": (mean[alg] / mean[None] - 1) * 100 for alg in headers}

"""System calls of server and agent together, per request and per MiB (strace -c -f).

They explain the CPU figures; strace slows everything down, so no times are measured here.
"""
import re, shutil, signal, subprocess, time

import service
from contenders import Contender
from processes import run, tree

N = 2000


def wants(c):
    return c["class"] != "direct" and "only" not in c


def missing():
    return next((p for p in ("strace", "h2load", "curl") if not shutil.which(p)), None)


def do(c0, services):
    c = Contender(c0, services)
    try:
        c.start()
        url = c.url or c.tls_url
        cmd = ["h2load", "--h1", "-c8", f"-n{N}", "-t1", *([f"-H:authority: {c.host}"] if c.host else []), url]
        run(cmd, timeout=60)                # one-time set-up is not part of a request
        requests = traced(c, lambda: run(cmd, timeout=120))
        part = ["curl", "-sf", "--cacert", str(service.pki() / "ca.pem"), "--http1.1", "-m", "100", "-o", "/dev/null", *(["-H", f"Host: {c.host}"] if c.host else [])]
        body = traced(c, lambda: run([*part, url.rstrip("/") + "/part"], timeout=110))
        mib = (service.scratch() / "www/part").stat().st_size / 2**20
    finally:
        c.stop()
    return {"per_request": sum(requests.values()) / N, "per_mib": sum(body.values()) / mib,
            "which_request": top(requests, N), "which_mib": top(body, mib)}


def traced(c, work):
    """Calls by name during the work."""
    traces = []
    for q in c.procs:
        f = c.dir / f"strace.{q.p.pid}"
        pids = [a for p in tree(q.p.pid) for a in ("-p", str(p))]
        traces.append((f, subprocess.Popen(["strace", "-c", "-f", "-qq", "-o", str(f), *pids], stderr=subprocess.DEVNULL)))
    time.sleep(0.7)
    try:
        work()
        time.sleep(0.2)
    finally:
        for _, t in traces:
            t.send_signal(signal.SIGINT)
            t.wait()
    out = {}
    for f, _ in traces:
        for m in re.finditer(r"(?m)^\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+)\s+(?:\d+\s+)?(\w+)$", f.read_text()):
            if m[2] != "total":
                out[m[2]] = out.get(m[2], 0) + int(m[1])
    if not out:
        raise RuntimeError("strace saw nothing; it may not be allowed here")
    return out


def top(calls, of):
    return ", ".join(f"{k} {v / of:.1f}" for k, v in sorted(calls.items(), key=lambda y: -y[1])[:5] if v / of >= 0.05)

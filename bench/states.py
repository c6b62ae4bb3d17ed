"""Measurements without load: memory, reconnecting, many tunnels. Once per run."""
import contextlib, shutil, time

from contenders import MANY0, Contender, get
from processes import ROLES, cpu, flat, memory

WORK = ["idle", "reconnect", "many500", "many1000"]


def wants(c, work):
    if c["class"] == "direct" or "only" in c or work in c.get("skip", []):
        return False
    if work.startswith("many"):
        # Only svc is measured with a thousand: peers are compared with five hundred.
        return "many_proc" in c or (work == "many500" and ("many" in c or "each_proc" in c))
    return work != "reconnect" or c["class"] == "tunnel"


def missing(c, work):
    need = c.get("many_proc", {}).get("need")
    return need if work.startswith("many") and need and not shutil.which(need) else None


def do(c0, services, work, args):
    if work.startswith("many"):
        return many(c0, services, int(work[4:]))
    c = Contender(c0, services)
    try:
        c.start()
        return idle(c) if work == "idle" else reconnect(c)
    finally:
        c.stop()


def idle(c, n=1000):
    """Memory after the start, and with 1,000 open connections after one response each."""
    url = c.url or c.tls_url
    time.sleep(1)
    before, socks, bad = memory(c.procs), [], 0
    try:
        while len(socks) + bad < n and bad <= 20:
            s = None
            with contextlib.suppress(OSError):
                s = get(url, c.host, c.header)
            bad += s is None
            socks += [s] if s else []
        if not socks:
            raise RuntimeError("no connection stayed open")
        time.sleep(1)
        after, a = memory(c.procs), cpu(c.procs)
        time.sleep(1)
        out = {"open": len(socks), "errors": bad, "cpu_idle_per_s": sum(cpu(c.procs).values()) - sum(a.values())}
        with contextlib.suppress(OSError):       # an idle connection must still work
            out["alive"] = bool(get(url, c.host, c.header, sock=socks[0]))
    finally:
        for s in socks:
            s.close()
    for k in ("rss", "pss", "anon"):
        out[f"{k}_kib_per_conn"] = sum(after[r][k] - before[r][k] for r in ROLES) * 1024 / out["open"]
    return out | flat(before) | {f"with_{k}": v for k, v in flat(after).items()}


def reconnect(c, down=2.0, limit=30):
    """The server is killed, stays away for 2 s and returns; seconds from then to the first 200."""
    servers = [i for i, p in enumerate(c.c["proc"]) if p["role"] == "server"]
    for i in servers:
        c.procs[i].kill()
    time.sleep(down)
    t = time.time()
    for i in servers:
        c.procs[i] = c.spawn(c.c["proc"][i])
    while time.time() - t < limit:
        with contextlib.suppress(OSError):
            s = get(c.url or c.tls_url, c.host, c.header, timeout=1)
            if s:
                s.close()
                return {"seconds": time.time() - t}
        agents = [q for q in c.procs if q.role == "agent"]
        if agents and all(q.p.poll() is not None for q in agents):
            return {"note": "the agent ends with the server"}
        time.sleep(0.01)
    return {"note": f"not within {limit} s"}


def many(c0, services, n):
    """Memory of n tunnels and of one, time until all are online, and again after an outage of 2 s."""
    base = 1 if "many_proc" in c0 else 0
    out, sizes = {}, {}
    for count in (base, n):
        c = Contender(c0, services, n=count)
        try:
            t = time.time()
            started(c, count)
            out["ready_s"] = time.time() - t
            time.sleep(1)
            sizes[count] = memory(c.procs)
            if count == n and "each_proc" not in c0:
                out |= back(c, n)
        finally:
            c.stop()
    for role in ROLES:
        for k in ("pss", "anon"):
            out[f"{role}_{k}_kib_per_tunnel"] = (sizes[n][role][k] - sizes[base][role][k]) * 1024 / (n - base)
    return out


def started(c, n):
    if "many_proc" in c.c:
        c.start([p for p in c.c["proc"] if p["role"] == "server"] + [c.c["many_proc"]])
    else:
        c.start()
        for i in range(n if "each_proc" in c.c else 0):
            c.procs.append(c.spawn(c.c["each_proc"], i))
    until_all(c, n)


def until_all(c, n, times=1, limit=60):
    """Waits until all n tunnels are online for the `times`-th time: by the agent's log lines, or by responses."""
    end, seen = time.time() + limit, 0
    while time.time() < end:
        if "many_proc" in c.c:
            seen = (c.dir / "agent.log").read_text().count("\n") - n * (times - 1)
            if seen >= n:
                return
        else:
            while seen < n:
                with contextlib.suppress(OSError):
                    s = get(f"http://127.0.0.1:{MANY0 + seen}/", timeout=1)
                    if s:
                        s.close()
                        seen += 1
                        continue
                break
            if seen == n:
                return
        time.sleep(0.01)
    raise RuntimeError(f"{seen} of {n} tunnels: {c.said()}")


def back(c, n, down=2.0):
    servers = [i for i, q in enumerate(c.procs) if q.role == "server"]
    parts = [p for p in c.c["proc"] if p["role"] == "server"]
    for i in servers:
        c.procs[i].kill()
    time.sleep(down)
    t = time.time()
    for i, p in zip(servers, parts):
        c.procs[i] = c.spawn(p)
    try:
        until_all(c, n, times=2, limit=30)
    except RuntimeError:
        return {"note": f"not all {n} were back within 30 s"}
    return {"back_s": time.time() - t}

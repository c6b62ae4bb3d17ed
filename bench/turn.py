#!/usr/bin/env python3
"""Bench of TURN relays on loopback: allocations (rate, CPU, memory) and relayed packets (CPU, latency,
maximum rate), in interleaved rounds.

  turn.py [--only svc,coturn] [--rounds 3] [--allocs 1000] [--out results]

Implements TURN over UDP itself (long-term credentials, channel data). Needs `svc` (cargo build --release
-p svc) and coturn's `turnserver`; BENCH_PATH names directories of programs that are not on PATH.  Standard
library only.  Processes are started by this program and ended by id.
"""
import argparse, base64, contextlib, hashlib, hmac, json, os, random, re, select, shutil, socket, statistics, struct
import subprocess, sys, tempfile, time
from pathlib import Path


ROOT = Path(__file__).resolve().parent.parent
os.environ["PATH"] = ":".join([os.environ.get("BENCH_PATH", ""), str(ROOT / "target/release"), os.environ["PATH"], "/usr/sbin"])
MAGIC, REALM, SECRET = 0x2112A442, "bench", b"0123456789abcdef0123456789abcdef"

# ---------------------------------------------------------------- the servers

def coturn(folder, port):
    """Debian's default configuration: four relay threads on two cores."""
    return (["turnserver", "-n", "--no-cli", "--no-tls", "--no-dtls", "--listening-ip=127.0.0.1",
             "--relay-ip=127.0.0.1", f"--listening-port={port}", "--min-port=40000", "--max-port=60900",
             "--allow-loopback-peers", "--lt-cred-mech", "--user=bench:bench", f"--realm={REALM}",
             "--log-file=stdout", f"--pidfile={folder}/pid", f"--userdb={folder}/db", "--no-software-attribute"],
            "bench", "bench")


def svc(folder, port):
    """A relay with a separate secret."""
    (folder / "secret").write_bytes(SECRET)
    limits = {"allocations": 100_000, "allocations_per_project": 100_000, "allocations_per_user": 100_000,
              "allocations_per_source": 100_000}
    (folder / "turn.yaml").write_text(json.dumps({"turn": {
        "listen_addr": [f"127.0.0.1:{port}"], "realm": REALM, "relay_ports": "40000-60900",
        "secret_file": str(folder / "secret"), "allowed_peers": ["127.0.0.0/8"], "limits": limits}}))
    user = f"v1:{int(time.time()) + 3500}:api:e7e8a732:usr_1"
    key = hmac.new(REALM.encode(), SECRET, hashlib.sha256).digest()
    key = hmac.new(key, b"turn-api-v1\x01", hashlib.sha256).digest()
    password = base64.b64encode(hmac.new(key, user.encode(), hashlib.sha256).digest()).decode()
    return ["svc", "turn", "-c", f"{folder}/turn.yaml"], user, password


SERVERS = {"coturn": coturn, "svc": svc}

# ---------------------------------------------------------------- the client

def attr(t, v):
    return struct.pack("!HH", t, len(v)) + v + b"\0" * (-len(v) % 4)


def msg(mtype, attrs, key=None):
    tid = os.urandom(12)
    if key:
        h = struct.pack("!HHI", mtype, len(attrs) + 24, MAGIC) + tid
        attrs += attr(8, hmac.new(key, h + attrs, hashlib.sha1).digest())
    return struct.pack("!HHI", mtype, len(attrs), MAGIC) + tid + attrs


def parse(b):
    t, n = struct.unpack_from("!HH", b)
    out, i = {}, 20
    while i < 20 + n:
        a, l = struct.unpack_from("!HH", b, i)
        out[a] = b[i + 4:i + 4 + l]
        i += 4 + l + (-l % 4)
    return t, out


class Client:
    def __init__(self, port, user, password):
        self.s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.s.connect(("127.0.0.1", port))
        self.s.settimeout(5)
        self.user, self.password, self.state = user.encode(), password.encode(), 0

    def auth(self):
        return attr(6, self.user) + attr(0x14, self.realm) + attr(0x15, self.nonce)

    def begin(self):
        self.s.send(msg(3, attr(0x19, b"\x11\0\0\0")))

    def step(self):
        """Handles one response; True once the allocation exists."""
        t, a = parse(self.s.recv(2048))
        if t == 0x113 and self.state == 0:
            self.realm, self.nonce, self.state = a[0x14], a[0x15], 1
            self.key = hashlib.md5(self.user + b":" + self.realm + b":" + self.password).digest()
            self.s.send(msg(3, attr(0x19, b"\x11\0\0\0") + self.auth(), self.key))
            return False
        if t == 0x103:
            self.state = 2
            return True
        raise RuntimeError(f"allocate: type {t:#x} {a.get(9)}")

    def bind(self, port, chan=0x4000):
        peer = struct.pack("!BBHI", 0, 1, port ^ (MAGIC >> 16), 0x7F000001 ^ MAGIC)
        self.s.send(msg(9, attr(0xC, struct.pack("!HH", chan, 0)) + attr(0x12, peer) + self.auth(), self.key))
        if parse(self.s.recv(2048))[0] != 0x109:
            raise RuntimeError("channel bind refused")

    def end(self):
        self.s.send(msg(4, attr(0xD, b"\0\0\0\0") + self.auth(), self.key))
        self.s.close()


def allocate(port, user, password, n, window=32):
    left = [Client(port, user, password) for _ in range(n)]
    done, live, ep = [], {}, select.epoll()
    t = time.time()
    while left or live:
        while left and len(live) < window:
            c = left.pop()
            live[c.s.fileno()] = c
            ep.register(c.s.fileno(), select.EPOLLIN)
            c.begin()
        ev = ep.poll(10)
        if not ev:
            raise RuntimeError(f"{len(live)} allocations unanswered")
        for fd, _ in ev:
            if live[fd].step():
                ep.unregister(fd)
                done.append(live.pop(fd))
    return done, time.time() - t


def relay(cs, rate, secs, size=200):
    """Channel data to the echo peer and back, over all clients in turn."""
    ep, by = select.epoll(), {}
    for c in cs:
        c.s.setblocking(False)
        c.s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        ep.register(c.s.fileno(), select.EPOLLIN)
        by[c.s.fileno()] = c.s
    lat, got, sent, ns, pad = [], 0, 0, time.perf_counter_ns, bytes(size - 8)
    head, t0 = struct.pack("!HH", 0x4000, size), time.perf_counter()
    until = t0 + secs
    while True:
        now = time.perf_counter()
        if now > until + 0.3:
            break
        if now < until:
            due = min(int((now - t0) * rate), sent + 64)
            while sent < due:
                try:
                    cs[sent % len(cs)].s.send(head + struct.pack("<q", ns()) + pad)
                except BlockingIOError:
                    pass
                sent += 1
        for fd, _ in ep.poll(0.0005):
            try:
                while True:
                    d = by[fd].recv(2048)
                    if d[0] == 0x40:
                        got += 1
                        lat.append(ns() - struct.unpack_from("<q", d, 4)[0])
            except BlockingIOError:
                pass
    lat.sort()
    q = lambda p: lat[int(len(lat) * p)] / 1e6 if lat else 0
    return {"sent": sent, "echoed": got, "echoed_per_s": got / secs, "lost_pct": 100 * (1 - got / max(sent, 1)), "p50_ms": q(.5), "p99_ms": q(.99)}

# ---------------------------------------------------------------- a round

def free_port():
    """A free UDP port outside of the range of relayed addresses."""
    while True:
        port = random.randrange(20_000, 30_000)
        with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.bind(("127.0.0.1", port))
            return port


def rss(proc):
    """KiB."""
    return int(re.search(r"^VmRSS:\s+(\d+)", Path(f"/proc/{proc.pid}/status").read_text(), re.M)[1])


def cpu_of(proc):
    """CPU seconds of its threads, to the nanosecond: ticks are too coarse for an allocation."""
    tasks = Path(f"/proc/{proc.pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def one(name, allocs):
    with tempfile.TemporaryDirectory() as folder:
        folder, port, peer = Path(folder), free_port(), free_port()
        command, user, password = SERVERS[name](folder, port)
        log = open(folder / "log", "w")
        echo = subprocess.Popen([sys.executable, str(ROOT / "bench/udp.py"), "echo", str(peer)])
        server = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
        cpu = lambda: cpu_of(server)
        try:
            time.sleep(1.5)
            m0, c0 = rss(server), cpu()
            cs, t = allocate(port, user, password, allocs)
            c1 = cpu()
            time.sleep(0.5)
            r = {"alloc_per_s": allocs / t, "cpu_s_per_1k_allocs": (c1 - c0) / allocs * 1000,
                 "rss_idle_mib": m0 / 1024, "kib_per_alloc": (rss(server) - m0) / allocs}
            for c in cs[50:]:
                c.end()
            cs = cs[:50]
            for c in cs:
                c.bind(peer)
            for tag, rate in (("fixed", 5000), ("flood", 10**6)):
                a0 = cpu()
                x = relay(cs, rate, 4)
                r |= {f"{tag}_{k}": v for k, v in x.items()}
                r[f"{tag}_cpu_s_per_100k_relayed"] = (cpu() - a0) / max(2 * x["echoed"], 1) * 1e5
            for c in cs:
                c.end()
            return r
        finally:
            for proc in (server, echo):
                proc.kill()
                proc.wait()


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--only", default="")
    a.add_argument("--rounds", type=int, default=3)
    a.add_argument("--allocs", type=int, default=1000)
    a.add_argument("--out", default=str(ROOT / "bench/results"))
    args = a.parse_args()
    names = [n for n in SERVERS if not args.only or n in args.only.split(",")]
    res = {}
    for _ in range(args.rounds):
        for name in names:
            if not shutil.which({"coturn": "turnserver"}.get(name, name)):
                sys.exit(f"{name} is not on PATH")
            r = one(name, args.allocs)
            print(name, json.dumps({k: round(v, 3) for k, v in r.items()}), flush=True)
            res.setdefault(name, []).append(r)
    med = {n: {k: statistics.median(r[k] for r in rs) for k in rs[0]} for n, rs in res.items()}
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    (out / "turn.json").write_text(json.dumps({"median": med, "runs": res}, indent=1))
    rows = "".join(f"| {k} | " + " | ".join(f"{med[n][k]:.3g}" for n in med) + " |\n" for k in next(iter(med.values())))
    table = "| measure | " + " | ".join(med) + " |\n|---|" + "---:|" * len(med) + "\n" + rows
    (out / "turn.md").write_text(table)
    print(table)


main()

#!/usr/bin/env python3
"""Side-by-side bench of reverse tunnels and the proxies that bound them.

    bench.py list                                  contenders and whether their programs are here
    bench.py run [--only a,b] [--work rps,...] [--rounds 3] [--out results]
    bench.py report [--out results]                medians -> summary.csv, summary.json, summary.md

Standard library only.  Everything listens on 127.0.0.1.  Every process is started
in its own session and ended by pid.  Each measurement holds --lock (a flock file),
so that another job that honours the same lock does not share the cores with it.
A contender is a table in contenders.toml; see README.md.
"""
import argparse, base64, contextlib, fcntl, hashlib, hmac, json, os, random
import re, resource, shlex, shutil, signal, socket, ssl, subprocess, sys, time, tomllib
from pathlib import Path

from report import report

HERE = Path(__file__).resolve().parent
BASE = Path(os.environ.get("BENCH_DIR", "/dev/shm/tunnel-bench"))   # scratch, in memory
UP, UPTLS, UPUDP = 20080, 20443, 20053                              # the service behind the tunnel
PORT0, PORT_STEP, MANY0 = 21000, 20, 24000                          # below the ephemeral range
TICK = os.sysconf("SC_CLK_TCK")
os.environ["PATH"] = os.environ.get("BENCH_PATH", "") + ":/usr/sbin:/usr/local/sbin:" + os.environ["PATH"]
UNVERIFIED = ssl._create_unverified_context()                       # the certificates are the bench's own
ENV = dict(os.environ, RUST_LOG=os.environ.get("RUST_LOG", "error"), NO_COLOR="1")

# ---------------------------------------------------------------- processes

def stat_of(pid):
    """(ppid, cpu seconds incl. reaped children) of one process, or None."""
    try:
        f = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return None
    return int(f[1]), sum(int(x) for x in f[11:15]) / TICK


def trees(roots):
    """{root: [pid, ...]} of live process trees."""
    kids = {}
    for d in os.listdir("/proc"):
        if d.isdigit():
            s = stat_of(int(d))
            if s:
                kids.setdefault(s[0], []).append(int(d))
    out = {}
    for r in roots:
        todo, seen = [r], []
        while todo:
            p = todo.pop()
            seen.append(p)
            todo += kids.get(p, [])
        out[r] = seen
    return out


class Proc:
    def __init__(self, role, cmd, cwd, log):
        self.role, self.cmd = role, cmd
        self.p = subprocess.Popen(cmd, cwd=cwd, env=ENV, stdin=subprocess.DEVNULL, stdout=open(log, "ab"),
                                  stderr=subprocess.STDOUT, start_new_session=True)

    def kill(self, sig=signal.SIGKILL):
        for pid in trees([self.p.pid])[self.p.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, sig)
        self.p.wait()


def cpu(procs):
    out = {"server": 0.0, "agent": 0.0}
    for r, pids in trees([q.p.pid for q in procs]).items():
        role = next(q.role for q in procs if q.p.pid == r)
        out[role] += sum(s[1] for s in map(stat_of, pids) if s)
    return out


def mem(procs):
    """{role: (rss MiB, pss MiB)}; pss counts a page shared by n processes 1/n times."""
    out = {"server": [0.0, 0.0], "agent": [0.0, 0.0]}
    for r, pids in trees([q.p.pid for q in procs]).items():
        role = next(q.role for q in procs if q.p.pid == r)
        for pid in pids:
            with contextlib.suppress(OSError):
                t = Path(f"/proc/{pid}/smaps_rollup").read_text()
                for i, k in enumerate(("Rss", "Pss")):
                    out[role][i] += int(re.search(rf"^{k}:\s+(\d+)", t, re.M)[1]) / 1024
    return {k: tuple(round(x, 2) for x in v) for k, v in out.items()}


def wait_port(port, timeout=15):
    end = time.time() + timeout
    while time.time() < end:
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port), 1).close()
            return True
        time.sleep(0.03)
    return False


@contextlib.contextmanager
def locked(path):
    if not path:
        yield
        return
    with open(path, "a") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        yield

class Lock:
    """A flock kept over several contenders, but given up after a while for others to use."""
    def __init__(self, path):
        self.path, self.f, self.t = path, None, 0

    def take(self):
        if self.path and not self.f:
            self.f = open(self.path, "a")
            fcntl.flock(self.f, fcntl.LOCK_EX)
            self.t = time.time()

    def give(self, hold):
        if self.f and time.time() - self.t >= hold:
            self.f.close()
            self.f = None
            if hold:
                time.sleep(1)           # a flock is not handed over: let the others in

# ---------------------------------------------------------------- fixtures

def sh(cmd, **kw):
    return subprocess.run(cmd, shell=isinstance(cmd, str), check=True, capture_output=True, **kw)


def jwt(alg, key):
    b = lambda x: base64.urlsafe_b64encode(x).rstrip(b"=")
    m = b(json.dumps({"alg": alg, "typ": "JWT"}).encode()) + b"." + b(json.dumps(
        {"sub": "bench", "exp": 4102444800, "resources": {"tunnels": {"projects": ["p1"]}}}).encode())
    if alg == "HS256":
        s = hmac.new(key, m, hashlib.sha256).digest()
    else:
        s = sh(["openssl", "dgst", "-sha256", "-sign", key], input=m).stdout
    return (m + b"." + b(s)).decode()


def fixtures(args):
    BASE.mkdir(parents=True, exist_ok=True)
    pki = BASE / "pki"
    if not (pki / "done").exists():
        shutil.rmtree(pki, ignore_errors=True)
        pki.mkdir()
        sh(f"cd {pki} && openssl ecparam -name prime256v1 -genkey -noout -out key.pem && "
           "openssl req -x509 -new -key key.pem -subj /CN=localhost -days 3650 -out cert.pem "
           "-addext 'subjectAltName=DNS:localhost,DNS:*.localhost,IP:127.0.0.1' && cat cert.pem key.pem > both.pem && "
           "openssl ecparam -name prime256v1 -genkey -noout | openssl pkcs8 -topk8 -nocrypt -out svc.key && "
           "openssl req -x509 -new -key svc.key -subj /CN=engine.localhost -days 3650 -out svc.pem "
           "-addext 'subjectAltName=DNS:engine.localhost,DNS:*.t.engine.localhost' -addext basicConstraints=critical,CA:FALSE && "
           "openssl pkcs12 -export -passout pass:bench -inkey key.pem -in cert.pem -out id.p12 && "
           "ssh-keygen -q -t ed25519 -N '' -f ssh_host && ssh-keygen -q -t ed25519 -N '' -f ssh_user && "
           "mkdir -p users && cp ssh_user.pub users/ && cp ssh_user.pub authorized_keys && chmod 600 authorized_keys && "
           "openssl genrsa -out rs.pem 2048 && openssl rsa -in rs.pem -pubout -out rs.pub")
        (pki / "hs256.jwt").write_text(jwt("HS256", b"bench-secret"))
        (pki / "rs256.jwt").write_text(jwt("RS256", str(pki / "rs.pem")))
        (pki / "done").touch()
    www = BASE / "www"
    (www / "up").mkdir(parents=True, exist_ok=True)
    (www / "tmp").mkdir(exist_ok=True)
    blob = www / "blob"
    if not blob.exists() or blob.stat().st_size != args.mib << 20:
        sh(["dd", "if=/dev/urandom", f"of={blob}", "bs=1M", f"count={args.mib}"])
    part = www / "part"
    if not part.exists() or part.stat().st_size != (args.mib << 20) // 8:
        sh(["dd", f"if={blob}", f"of={part}", "bs=1M", f"count={args.mib // 8}"])
    (BASE / "up.conf").write_text(f"""
daemon off; worker_processes 2; pid {BASE}/up.pid; error_log {BASE}/up.err; user root;
events {{ worker_connections 8192; }}
http {{ access_log off; keepalive_requests 100000000; sendfile on; tcp_nopush on; default_type application/octet-stream;
 client_body_temp_path {www}/tmp; client_max_body_size 0; client_body_buffer_size 256k;
 proxy_temp_path {www}/tmp; fastcgi_temp_path {www}/tmp; uwsgi_temp_path {www}/tmp; scgi_temp_path {www}/tmp;
 ssl_certificate {pki}/cert.pem; ssl_certificate_key {pki}/key.pem; ssl_protocols TLSv1.3;
 server {{ listen 127.0.0.1:{UP} backlog=4096; listen 127.0.0.1:{UPTLS} ssl backlog=4096;
  location / {{ return 200 "hello from the service behind the tunnel; this body is about one hundred and twenty eight bytes long, give or take.\\n"; }}
  location = /blob {{ root {www}; }} location = /part {{ root {www}; }}
  location /up/ {{ root {www}; dav_methods PUT; }} }} }}
""")
    ups = [Proc("agent", ["nginx", "-c", str(BASE / "up.conf"), "-e", str(BASE / "up.err")], str(BASE), BASE / "up.log"),
           Proc("agent", [sys.executable, str(HERE / "udp.py"), "echo", str(UPUDP)], str(BASE), BASE / "udp.log")]
    assert wait_port(UP), "upstream did not start"
    return ups

# ---------------------------------------------------------------- contenders

def load():
    cs = tomllib.loads((HERE / "contenders.toml").read_text())["contender"]
    local = HERE / "contenders.local.toml"
    if local.exists():
        cs += tomllib.loads(local.read_text())["contender"]
    for i, c in enumerate(cs):
        c["base"] = PORT0 + i * PORT_STEP
        c["missing"] = [n for n in c.get("need", []) if not (shutil.which(n) or Path(n).exists())]
    return cs


class Contender:
    def __init__(self, c, many=0):
        self.c, self.name, self.many = c, c["name"], many
        self.dir = BASE / "run" / self.name
        shutil.rmtree(self.dir, ignore_errors=True)
        self.dir.mkdir(parents=True)
        self.procs = []
        self.host = self.x(c.get("host", ""))
        self.url, self.tls_url = self.x(c["url"]), self.x(c.get("tls_url", ""))
        self.header = self.x(c.get("header", ""))

    def x(self, s, i=0):
        """@word@ substitution; '#@each' ... '#@end' blocks repeat once per extra tunnel."""
        s = re.sub(r"(?ms)^#@each\n(.*?)^#@end\n?",
                   lambda m: "".join(m[1].replace("@i@", str(k)).replace("@mp@", str(MANY0 + k)) for k in range(self.many)), s)
        v = {"dir": self.dir, "pki": BASE / "pki", "up": UP, "uptls": UPTLS, "upudp": UPUDP, "i": i, "mp": MANY0 + i}
        v |= {f"p{k}": self.c["base"] + k for k in range(PORT_STEP)}
        s = re.sub(r"@jwt:(\w+)@", lambda m: (BASE / "pki" / f"{m[1]}.jwt").read_text(), s)
        return re.sub(r"@(\w+)@", lambda m: str(v[m[1]]) if m[1] in v else m[0], s)

    def spawn(self, p, i=0):
        q = Proc(p["role"], shlex.split(self.x(p["cmd"], i)), str(self.dir), self.dir / f"{p['role']}.log")
        self.procs.append(q)
        return q

    def start(self):
        for n, t in self.c.get("files", {}).items():
            (self.dir / n).write_text(self.x(t))
        for p in self.c.get("proc", []):
            self.spawn(p)
            if "wait" in p and not wait_port(int(self.x(p["wait"]))):
                raise RuntimeError(f"{self.name}: {p['role']} did not listen")
        end, err = time.time() + 20, None
        while time.time() < end:
            try:
                if get(self.url, self.host, self.header):
                    return self
            except OSError as e:
                err = e
            time.sleep(0.1)
        raise RuntimeError(f"{self.name}: no 200 through {self.url} ({err})")

    def stop(self):
        for q in reversed(self.procs):
            q.kill()
        self.procs = []


def hp(url):
    m = re.match(r"https?://([^:/]+):(\d+)(.*)", url)
    return m[1], int(m[2]), m[3] or "/"


def get(url, host="", header="", sock=None, timeout=3):
    """One keep-alive GET on a raw socket; returns the open socket on a 200."""
    h, port, path = hp(url)
    s = sock or socket.create_connection(("127.0.0.1", port), timeout)
    s.settimeout(timeout)
    if url.startswith("https") and not isinstance(s, ssl.SSLSocket):
        s = UNVERIFIED.wrap_socket(s, server_hostname=h)
    s.sendall(f"GET {path} HTTP/1.1\r\nHost: {host or h}\r\n{header + chr(13) + chr(10) if header else ''}\r\n".encode())
    b = b""
    while b"\r\n\r\n" not in b or not b.endswith(b"\n"):
        d = s.recv(65536)
        if not d:
            break
        b += d
        if b"transfer-encoding: chunked" in b.lower() and b.endswith(b"0\r\n\r\n"):
            break
    if b" 200 " not in b[:16]:
        s.close()
        return None
    return s

# ---------------------------------------------------------------- workloads

UPS = []                                # the service behind the tunnel, while running


def busy():
    """CPU seconds used by the whole machine, and by this bench (load makers, service)."""
    f = [int(x) / TICK for x in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    us = sum(x.ru_utime + x.ru_stime for x in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))
    return sum(f) - f[3] - f[4], us + sum(cpu(UPS).values())


def quiet(limit, share=0.25):
    """Wait until others leave the cores alone, limit seconds at most."""
    end = time.time() + limit
    while time.time() < end:
        a = busy()[0]
        time.sleep(1)
        if (busy()[0] - a) / os.cpu_count() < share:
            return


def measured(c, fn):
    a, m, t = cpu(c.procs), busy(), time.time()
    r = fn()
    wall, b, n = time.time() - t, cpu(c.procs), busy()
    # share of the machine's CPU that went to neither contender nor bench: the noise of this run
    r["foreign"] = max(0.0, (n[0] - m[0]) - (n[1] - m[1]) - (sum(b.values()) - sum(a.values()))) / (wall * os.cpu_count())
    r |= {"cpu_server": b["server"] - a["server"], "cpu_agent": b["agent"] - a["agent"], "wall": r.get("wall", wall)}
    r["cpu"] = r["cpu_server"] + r["cpu_agent"]
    return r


def wrk(c, url, conns, secs, close=False):
    cmd = ["wrk", "-t2", f"-c{conns}", f"-d{secs}s", "--timeout", "5s"]
    for h in ([f"Host: {c.host}"] if c.host else []) + ([c.header] if c.header else []) + (["Connection: close"] if close else []):
        cmd += ["-H", h]

    def go():
        o = sh(cmd + [url], timeout=secs + 30).stdout.decode()
        n = int(re.search(r"(\d+) requests in", o)[1])
        bad = sum(map(int, re.findall(r"(?:connect|read|write|timeout) (\d+)", o)))
        m = re.search(r"Non-2xx or 3xx responses: (\d+)", o)
        if close:                       # wrk counts the peer's close as a read error in some versions
            bad = sum(map(int, re.findall(r"(?:connect|write|timeout) (\d+)", o)))
        return {"rate": float(re.search(r"Requests/sec:\s+([\d.]+)", o)[1]), "n": n, "errors": bad + (int(m[1]) if m else 0)}
    r = measured(c, go)
    r["cpu_per_100k"] = r["cpu"] / max(r["n"], 1) * 1e5
    return r


def lat(c, url, secs, conns=20, per=50):
    log = BASE / "h2load.log"
    log.unlink(missing_ok=True)
    cmd = ["h2load", "--h1", f"-c{conns}", "-t1", f"--rps={per}", f"-D{secs}", f"--log-file={log}"]
    for h in ([f":authority: {c.host}"] if c.host else []) + ([c.header] if c.header else []):
        cmd += ["-H", h]

    def go():
        sh(cmd + [url], timeout=secs + 30)
        v = sorted(int(l.split("\t")[2]) for l in log.read_text().splitlines() if l.split("\t")[1] == "200")
        q = lambda p: v[min(len(v) - 1, int(len(v) * p))] / 1000
        return {"n": len(v), "p50": q(.5), "p90": q(.9), "p99": q(.99), "max": v[-1] / 1000}
    r = measured(c, go)
    r["cpu_per_100k"] = r["cpu"] / max(r["n"], 1) * 1e5
    return r


def bulk(c, url, mib, par, up):
    base = url.rstrip("/")
    size = (mib << 20) // (8 if par == 8 else 1)
    src = BASE / "www" / ("part" if par == 8 else "blob")
    h = (["-H", f"Host: {c.host}"] if c.host else []) + (["-H", c.header] if c.header else [])

    def one(k):
        cmd = ["curl", "-sk", "--http1.1", "-m", "60", "-o", "/dev/null", "-w", "%{http_code} %{size_download} %{size_upload}"] + h
        cmd += ["-T", str(src), "-H", "Expect:", f"{base}/up/f{k}"] if up else [f"{base}/{src.name}"]
        return subprocess.Popen(cmd, stdout=subprocess.PIPE)

    def go():
        ok = 0
        for p in [one(k) for k in range(par)]:
            o = p.communicate()[0].decode().split()
            ok += o[0] in ("200", "201", "204") and int(float(o[2 if up else 1])) == size
        return {"ok": ok, "errors": par - ok, "gib": ok * size / 2**30}
    r = measured(c, go)
    if r["ok"]:
        r |= {"mib_s": r["gib"] * 1024 / r["wall"], "cpu_per_gib": r["cpu"] / r["gib"]}
    return r


def idle(c, url, n=1000):
    out = {"idle": mem(c.procs)}
    socks, bad = [], 0
    try:
        for _ in range(n):
            try:
                s = get(url, c.host, c.header)
            except OSError:
                s = None
            if s:
                socks.append(s)
            else:
                bad += 1
                if bad > 20:
                    break
        time.sleep(1)
        out |= {"open": len(socks), "errors": bad, "with": mem(c.procs)}
        a = cpu(c.procs)
        time.sleep(2)
        b = cpu(c.procs)
        out["cpu_idle_per_s"] = (sum(b.values()) - sum(a.values())) / 2
        with contextlib.suppress(OSError):       # an idle connection must still work
            out["alive"] = bool(socks and get(url, c.host, c.header, sock=socks[0]))
    finally:
        for s in socks:
            s.close()
    if out.get("open"):
        for i, k in enumerate(("rss", "pss")):
            out[f"{k}_kib_per_conn"] = sum(out["with"][r][i] - out["idle"][r][i] for r in ("server", "agent")) * 1024 / out["open"]
    return out


def reconnect(c, down=2.0, limit=45):
    """kill -9 the server, leave it down, start it again; seconds from that start to the first 200."""
    srv = [(i, p) for i, p in enumerate(c.c["proc"]) if p["role"] == "server"]
    for i, _ in srv:
        c.procs[i].kill()
    time.sleep(down)
    t = time.time()
    for i, p in srv:
        c.procs[i] = Proc("server", shlex.split(c.x(p["cmd"])), str(c.dir), c.dir / "server.log")
    while time.time() - t < limit:
        with contextlib.suppress(OSError):
            s = get(c.url, c.host, c.header, timeout=1)
            if s:
                s.close()
                return {"seconds": time.time() - t}
        ag = [q for q in c.procs if q.role == "agent"]
        if ag and all(q.p.poll() is not None for q in ag):
            return {"seconds": None, "note": "agent exits"}
        time.sleep(0.02)
    return {"seconds": None, "note": f"not within {limit} s"}


def udp(c, port, secs):
    def go():
        return json.loads(sh([sys.executable, str(HERE / "udp.py"), "load", str(port), "10000", str(secs), "200"], timeout=60).stdout)
    r = measured(c, go)
    r["cpu_per_100k"] = r["cpu"] / max(r["received"], 1) * 1e5
    return r


def many(c0, args):
    """Memory of 0 against --many extra tunnels (same agent, or an agent each)."""
    out = {}
    for n in (0, args.many):
        c = Contender(c0, many=n)
        try:
            t = time.time()
            c.start()
            for i in range(n if "each_proc" in c0 else 0):
                c.spawn(c0["each_proc"], i)
            if n:
                u = f"http://127.0.0.1:{MANY0 + n - 1}/"
                while time.time() - t < 60:
                    with contextlib.suppress(OSError):
                        if get(u, c.host):
                            break
                    time.sleep(0.1)
                else:
                    return {"error": "last tunnel never answered"}
                out["ready_s"] = time.time() - t
            time.sleep(2)
            out[n] = mem(c.procs)
        finally:
            c.stop()
    for r in ("server", "agent"):
        out[f"{r}_pss_kib_per_tunnel"] = (out[args.many][r][1] - out[0][r][1]) * 1024 / args.many
    return {str(k): v for k, v in out.items()}


WORK = ["idle", "rps", "rps_tls", "conn", "conn_tls", "lat", "down1", "down8", "up1", "up8", "down1_tls", "udp", "mem", "reconnect"]
ONCE = {"idle", "reconnect"}            # one round is enough


def one(c, w, args):
    if w == "rps": return wrk(c, c.url, 64, args.secs)
    if w == "rps_tls": return wrk(c, c.tls_url, 64, args.secs)
    if w == "conn": return wrk(c, c.url, 16, args.secs, True)
    if w == "conn_tls": return wrk(c, c.tls_url, 16, args.secs, True)
    if w == "lat": return lat(c, c.url, args.secs)
    if w == "down1_tls": return bulk(c, c.tls_url, args.mib, 1, False)
    if w in ("down1", "down8"): return bulk(c, c.url, args.mib, int(w[-1]), False)
    if w in ("up1", "up8"): return bulk(c, c.url, args.mib, int(w[-1]), True)
    if w == "udp": return udp(c, int(c.x(c.c["udp"])), args.secs)
    if w == "idle": return idle(c, c.url)
    if w == "mem": return {f"{r}_{k}": m[i] for r, m in mem(c.procs).items() for i, k in enumerate(("rss", "pss"))}
    if w == "reconnect": return reconnect(c)


def wants(c, w, rnd):
    if w in ONCE and rnd > 1: return False
    if "only" in c and w not in c["only"]: return False
    if w in c.get("skip", []): return False
    if w.endswith("_tls") and not c.get("tls_url"): return False
    if w == "udp": return "udp" in c
    if w in ("idle", "mem", "reconnect") and c.get("class") == "direct": return False
    return True


def run(args):
    cs = [c for c in load() if not args.only or c["name"] in args.only.split(",")]
    for c in cs:
        if c["missing"]:
            print(f"skip {c['name']}: no {', '.join(c['missing'])}")
    cs = [c for c in cs if not c["missing"]]
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    raw = open(out / "raw.jsonl", "a")
    work = args.work.split(",") if args.work else WORK
    ups, lock = [], Lock(args.lock)
    try:
        ups = fixtures(args)
        UPS.extend(ups)
        for rnd in range(args.first, args.first + args.rounds):
            random.shuffle(cs)
            for c0 in cs:
                todo = [w for w in work if wants(c0, w, rnd)]
                if args.work == "many":
                    todo = []
                    if "many" in c0:
                        with locked(args.lock):
                            r = many(c0, args)
                        print(c0["name"], "many", json.dumps(r), flush=True)
                        raw.write(json.dumps({"c": c0["name"], "w": "many", "round": rnd, "t": time.time(), "r": r}) + "\n")
                        raw.flush()
                if not todo:
                    continue
                lock.take()
                quiet(args.quiet)
                c = Contender(c0)
                try:
                    c.start()
                    for w in todo:
                        load1 = os.getloadavg()[0]
                        try:
                            r = one(c, w, args)
                        except Exception as e:
                            r = {"error": f"{type(e).__name__}: {e}"[:300]}
                        r["load1"] = load1
                        print(f"{rnd} {c.name:18} {w:10} " + " ".join(
                            f"{k}={v:.3g}" if isinstance(v, float) else f"{k}={v}" for k, v in r.items()), flush=True)
                        raw.write(json.dumps({"c": c.name, "w": w, "round": rnd, "t": time.time(), "r": r}) + "\n")
                        raw.flush()
                        if "error" in r or w == "idle":     # after idle afresh: 1,000 connections leave memory behind
                            c.stop()
                            c = Contender(c0).start()
                except Exception as e:
                    print(f"{rnd} {c.name}: {e}", flush=True)
                    raw.write(json.dumps({"c": c.name, "w": "start", "round": rnd, "t": time.time(), "r": {"error": str(e)[:300]}}) + "\n")
                finally:
                    c.stop()
                lock.give(args.hold)
    finally:
        lock.give(0)
        for q in ups:
            q.kill()
        raw.close()

def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("do", choices=["list", "run", "report"])
    a.add_argument("--only", default="", help="contender names, comma separated")
    a.add_argument("--work", default="", help=f"of {','.join(WORK)}, or many")
    a.add_argument("--rounds", type=int, default=3)
    a.add_argument("--first", type=int, default=1, help="number of the first round")
    a.add_argument("--secs", type=int, default=4)
    a.add_argument("--mib", type=int, default=512)
    a.add_argument("--many", type=int, default=500)
    a.add_argument("--out", default=str(HERE / "results"))
    a.add_argument("--hold", type=float, default=180, help="seconds after which the lock is given up between contenders")
    a.add_argument("--quiet", type=float, default=60, help="seconds to wait for quiet cores before each contender")
    a.add_argument("--max-foreign", type=float, default=0.15, help="report: prefer runs with less foreign CPU than this")
    a.add_argument("--lock", default="", help="empty: none")
    a.add_argument("--ref", default="nginx2-tls", help="report: the contender that ratios refer to")
    args = a.parse_args()
    if args.do == "list":
        for c in load():
            print(f"{c['name']:18} {c.get('class', ''):7} {c['base']} {'missing ' + ' '.join(c['missing']) if c['missing'] else 'ok':22} {c.get('note', '')}")
    elif args.do == "run":
        run(args)
    else:
        report(args, load())


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    main()

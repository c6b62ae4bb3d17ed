"""Contenders: the definitions in `contenders/*.toml`, and a running contender.

Substituted in commands, URLs and files: @dir@ (its scratch directory, where [contender.files] are
written), @pki@ (`service.pki`), @up@ @uptls@ @upudp@ (the service), @p0@..@p19@ (its own ports),
@near@ @far@ (the addresses of its server and of its agent, as each sees the other), @engine@ (the
engine's host), @secret@ (of its tokens), @i@ @mp@ @n@ (the further tunnel, its public port, their
number), @jwt:name@ (a token of `pki`). '#@each' … '#@end' is repeated for each further tunnel.
"""
import re, shlex, shutil, socket, ssl, time, tomllib
from pathlib import Path

import service
from isolate import ENGINE, scratch
from processes import Proc, wait_port

HERE = Path(__file__).resolve().parent
PORT0, PORT_STEP, MANY0 = 21000, 20, 24000          # below the ephemeral range


def load():
    """All contenders in the order of the files, each with the programs that it lacks."""
    cs = []
    for name in ("proxies", "tunnels", "ours", "local"):
        f = HERE / "contenders" / f"{name}.toml"
        if f.exists():
            cs += tomllib.loads(f.read_text())["contender"]
    for i, c in enumerate(cs):
        c["base"] = PORT0 + i * PORT_STEP
        c["missing"] = [n for n in c.get("need", []) if not (shutil.which(n) or Path(n).exists())]
    return cs


class Contender:
    """One contender, with its processes once it is started. `place` moves its agent away."""
    def __init__(self, c, services, n=0, up=service.PLAIN, place=None):
        self.c, self.name, self.service, self.n, self.up, self.place = c, c["name"], services, n, up, place
        self.dir = scratch() / "run" / self.name
        shutil.rmtree(self.dir, ignore_errors=True)
        self.dir.mkdir(parents=True)
        self.procs = []
        self.host, self.url, self.tls_url, self.header = (self.x(c.get(k, "")) for k in ("host", "url", "tls_url", "header"))

    def x(self, s, i=0):
        s = re.sub(r"(?ms)^#@each\n(.*?)^#@end\n?",
                   lambda m: "".join(m[1].replace("@i@", str(k)).replace("@mp@", str(MANY0 + k)) for k in range(self.n)), s)
        near, far = (service.NEAR, service.FAR) if self.place else ("127.0.0.1", "127.0.0.1")
        v = {"dir": self.dir, "pki": service.pki(), "up": self.up, "uptls": service.TLS, "upudp": service.UDP, "i": i, "n": self.n,
             "mp": MANY0 + i, "near": near, "far": far, "engine": ENGINE, "secret": service.SECRET}
        v |= {f"p{k}": self.c["base"] + k for k in range(PORT_STEP)}
        s = re.sub(r"@jwt:([\w-]+)@", lambda m: (service.pki() / f"{m[1]}.jwt").read_text(), s)
        return re.sub(r"@(\w+)@", lambda m: str(v[m[1]]) if m[1] in v else m[0], s)

    def spawn(self, p, i=0):
        cmd = shlex.split(self.x(p["cmd"], i))
        if self.place and p["role"] == "agent":
            cmd = [*self.place, *cmd]
        return Proc(p["role"], cmd, str(self.dir), self.dir / f"{p['role']}.log")

    def start(self, parts=None):
        """Starts the processes (or `parts` in their place) and waits for a 200."""
        for n, t in self.c.get("files", {}).items():
            (self.dir / n).write_text(self.x(t))
        for p in self.c.get("proc", []) if parts is None else parts:
            self.procs.append(self.spawn(p))
            if "wait" in p and not wait_port(int(self.x(p["wait"])), ("127.0.0.1", service.NEAR, service.FAR) if self.place else ("127.0.0.1",)):
                raise RuntimeError(f"{self.name}: {p['role']} did not listen: {self.said()}")
        if parts is None:
            self.await_answer(self.url or self.tls_url)
        return self

    def await_answer(self, url, header=None, timeout=20):
        end, err = time.time() + timeout, None
        while time.time() < end:
            try:
                s = get(url, self.host, self.header if header is None else header)
                if s:
                    return s.close()
            except OSError as e:
                err = e
            time.sleep(0.1)
        raise RuntimeError(f"{self.name}: no 200 through {url} ({err}): {self.said()}")

    def said(self):
        """The end of its processes' output."""
        return " | ".join(f.read_text(errors="replace")[-200:].strip() for f in sorted(self.dir.glob("*.log")))

    def stop(self):
        for q in reversed(self.procs):
            q.kill()
        self.procs = []


def split(url):
    """Host, port and path of a URL."""
    m = re.match(r"https?://([^:/]+):(\d+)(.*)", url)
    return m[1], int(m[2]), m[3] or "/"


def get(url, host="", header="", sock=None, timeout=3):
    """One keep-alive GET on a raw socket; returns the open socket after a 200, else None."""
    h, port, path = split(url)
    s = sock or socket.create_connection((h, port), timeout)
    s.settimeout(timeout)
    if url.startswith("https") and not isinstance(s, ssl.SSLSocket):
        s = trust().wrap_socket(s, server_hostname=h)
    s.sendall(f"GET {path} HTTP/1.1\r\nHost: {host or f'{h}:{port}'}\r\n{header + chr(13) + chr(10) if header else ''}\r\n".encode())
    b = b""
    # The bodies of the service end with a line break; other responses are not read completely.
    while b"\r\n\r\n" not in b or (b" 200 " in b[:16] and not b.endswith(b"\n")):
        d = s.recv(65536)
        if not d:
            break
        b += d
    if b" 200 " not in b[:16]:
        s.close()
        return None
    return s


def trust():
    """A TLS context that trusts the bench's authority; shared, because creating one takes milliseconds."""
    if not hasattr(trust, "context"):
        trust.context = ssl.create_default_context(cafile=service.pki() / "ca.pem")
    return trust.context

#!/usr/bin/env python3
"""Bench of terminals: latency of keys, throughput of output with spectators, memory of idle sessions
and of spectators, and the cost of a recording; beside a local terminal and `ssh` on loopback, in
interleaved rounds.

  terminals.py [--only local,ssh,tunnel,managed] [--rounds 3] [--mib 100] [--out results]

Needs `svc` (cargo build --release -p svc), `bench-tools` (cargo build --release -p bench-tools), OpenSSH's
client and server.  BENCH_PATH names directories of programs that are not on PATH.  Standard library only.
Processes are started by this program and ended by id.
"""
import argparse, base64, contextlib, fcntl, http.client, json, os, pty, re, select, shutil, signal, socket, ssl
import statistics, struct, subprocess
import sys, tempfile, termios, time, tty, urllib.parse
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
os.environ["PATH"] = ":".join([os.environ.get("BENCH_PATH", ""), str(ROOT / "target/release"), os.environ["PATH"], "/usr/sbin"])
KEYS, WATCHERS, IDLE = 2000, (0, 1, 100), 50

# ---------------------------------------------------------------- terminals of our own

class Terminal:
    """A program on a terminal that does not change any bytes."""

    def __init__(self, command, env=None):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execvpe(command[0], command, env or os.environ)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        tty.setraw(self.fd)

    def read(self, seconds=20):
        if not select.select([self.fd], [], [], seconds)[0]:
            raise TimeoutError("the terminal says nothing")
        return os.read(self.fd, 1 << 16)

    def until(self, text, seconds=20):
        seen = b""
        while text not in seen:
            seen = (seen + self.read(seconds))[-4096:]

    def write(self, data):
        os.write(self.fd, data)

    def end(self):
        with contextlib.suppress(OSError):
            os.close(self.fd)
        with contextlib.suppress(OSError):
            os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


def shell(terminal):
    """A shell without a prompt and without echo."""
    terminal.write(b"stty -echo -icanon; PS1=; echo rea''dy\n")
    terminal.until(b"ready")


def echo(terminal):
    """Milliseconds from a key to its echo, by `cat`."""
    shell(terminal)
    terminal.write(b"exec cat\n")
    time.sleep(0.5)
    times = []
    for n in range(KEYS + 100):
        key = bytes([97 + n % 26])
        begun = time.perf_counter_ns()
        terminal.write(key)
        while key not in terminal.read():
            pass
        if n >= 100:
            times.append((time.perf_counter_ns() - begun) / 1e6)
        time.sleep(0.001)
    times.sort()
    return {"echo_p50_ms": times[len(times) // 2], "echo_p99_ms": times[len(times) * 99 // 100]}


def output(terminal, mib, file):
    """MiB/s of a file that the shell prints."""
    begun, due, seen = time.perf_counter(), mib << 20, 0
    terminal.write(f"cat {file}; echo; echo en''d\n".encode())
    tail = b""
    while b"end" not in tail:
        got = terminal.read(60)
        seen += len(got)
        tail = (tail + got)[-16:]
    if seen < due:
        raise RuntimeError(f"{due - seen} of {due} bytes are missing; the last ones are {tail!r}")
    return mib / (time.perf_counter() - begun)

# ---------------------------------------------------------------- what stands between

class Local:
    """No connection at all."""

    def command(self):
        return ["sh"]

    def pids(self):
        return []

    def end(self):
        pass


class Ssh:
    """OpenSSH on loopback, with a key and its default settings."""

    def __init__(self, folder):
        folder = Path(folder)
        for name in ("host", "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
        (folder / "authorized").write_text((folder / "user.pub").read_text())
        port = free_port()
        (folder / "sshd").write_text(
            f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nPidFile {folder}/pid\n"
            f"AuthorizedKeysFile {folder}/authorized\nStrictModes no\nUsePAM no\nPermitRootLogin yes\nMaxStartups 200\n")
        Path("/run/sshd").mkdir(exist_ok=True)
        self.server = subprocess.Popen([shutil.which("sshd"), "-D", "-e", "-f", folder / "sshd"], stderr=subprocess.DEVNULL)
        self.options = ["-p", str(port), "-i", str(folder / "user"), "-o", "StrictHostKeyChecking=no",
                        "-o", f"UserKnownHostsFile={folder}/known", "-o", "LogLevel=ERROR", "127.0.0.1"]
        time.sleep(1)

    def command(self):
        return ["ssh", "-tt", *self.options, "sh"]

    def pids(self):
        return [self.server.pid]

    def end(self):
        self.server.kill()
        self.server.wait()


class Platform:
    """`svc up` and a terminal server: through a published tunnel, or registered and therefore managed."""

    def __init__(self, folder, managed, private=False):
        self.env = os.environ | {"HOME": str(folder), "XDG_CONFIG_HOME": f"{folder}/config", "XDG_DATA_HOME": f"{folder}/data"}
        self.managed, self.folder = managed, folder
        self.up = self.start(["svc", "up", "--output", "json", "--data-dir", f"{folder}/up"])
        self.ready = json.loads(self.up.stdout.readline())
        self.name = "bench"
        if managed:
            policy = ["--recording-policy", "private" if private else "recorded"]
            self.run("svc", "webtty", "server", "create", self.name, "--enroll", *policy)
            listed = json.loads(self.run("svc", "webtty", "server", "show", self.name, "--output", "json"))
            self.id = listed.get("server", listed)["id"]
            serve = ["svc", "webtty", "server", "--server-id", self.id, "--execution-mode", "spawn"]
        else:
            serve = ["svc", "webtty", "server", "--name", self.name]
        self.server = self.start([*serve, "--output", "json"])
        self.server.stdout.readline()

    def start(self, command):
        return subprocess.Popen(command, env=self.env, stdout=subprocess.PIPE, stderr=open(f"{self.folder}/log", "a"), text=True)

    def run(self, *command):
        return subprocess.run(command, env=self.env, check=True, capture_output=True, text=True).stdout

    def command(self):
        return ["svc", "webtty", "client", f"svc://{self.name}", "--", "sh"]

    def pids(self):
        return [self.up.pid, self.server.pid]

    def api(self, method, path, body=None):
        url = urllib.parse.urlsplit(self.ready["engine_url"])
        trust = ssl.create_default_context(cafile=self.ready["ca_file"])
        # Resolvers differ in their handling of names below `localhost`.
        with socket.create_connection(("127.0.0.1", url.port)) as tcp:
            connection = http.client.HTTPConnection(url.hostname, url.port)
            connection.sock = trust.wrap_socket(tcp, server_hostname=url.hostname)
            connection.request(method, path, None if body is None else json.dumps(body),
                {"Authorization": "Bearer " + self.ready["token"], "Content-Type": "application/json"})
            answer = connection.getresponse()
            text = answer.read()
            if answer.status >= 300:
                raise RuntimeError(f"{method} {path}: {answer.status} {text[:300]}")
            return json.loads(text)

    def session(self):
        running = [s for s in self.api("GET", "/api/webtty/sessions") if s["status"] == "active"]
        return max(running, key=lambda s: s["started_at"])["id"]

    def watch(self, session, count):
        """This number of spectators that read the output."""
        tool = subprocess.Popen(["bench-tools", "spectate", self.ready["ca_file"], self.ready["token"]],
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(count):
            seat = self.api("POST", f"/api/webtty/sessions/{session}/participants", {"role": "spectator", "transport": "websocket"})
            url = f"{self.ready['engine_url']}/api/webtty/sessions/{session}/participants/{seat['id']}/stream"
            tool.stdin.write(f"{url} {session} {seat['id']} {base64.b64decode(seat['attach_grant']).hex()}\n")
        tool.stdin.write("\n")
        tool.stdin.flush()
        assert tool.stdout.readline() == "open\n"
        return tool

    def end(self):
        for process in (self.server, self.up):
            process.terminate()
            process.wait()


def kinds():
    return {"local": lambda folder: Local(), "ssh": Ssh, "tunnel": lambda folder: Platform(folder, False),
            "managed": lambda folder: Platform(folder, True),
            "unrecorded": lambda folder: Platform(folder, True, private=True)}

# ---------------------------------------------------------------- a round

def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def family(pids):
    """These processes and their children, without the shells."""
    known, shells, added = set(pids), set(), True
    while added:
        added = False
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError, IndexError):
                text = stat.read_text()
                pid, parent = int(text.split()[0]), int(text.rsplit(")", 1)[1].split()[1])
                if parent in known and pid not in known:
                    known.add(pid)
                    if re.search(r"\((sh|dash|cat)\)", text):
                        shells.add(pid)
                    added = True
    return known - shells


def cpu_of(pids):
    """CPU seconds of their threads, to the nanosecond."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            total += sum(int((task / "schedstat").read_text().split()[0]) for task in Path(f"/proc/{pid}/task").iterdir())
    return total / 1e9


def memory(pids):
    """KiB of anonymous memory; shared pages are divided among processes, program files are not counted."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            total += int(re.search(r"^Pss_Anon:\s+(\d+)", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.M)[1])
    return total


def one(name, make, mib, file):
    with tempfile.TemporaryDirectory() as folder:
        between = make(folder)
        try:
            env = getattr(between, "env", None)
            terminal = Terminal(between.command(), env)
            time.sleep(1)
            r = echo(terminal)
            terminal.end()
            # Memory first, because it would otherwise include the allocator's reserves after a load.
            if name != "local":
                time.sleep(1)
                before = memory(family(between.pids()))
                idle = [Terminal(between.command(), env) for _ in range(IDLE)]
                time.sleep(6)
                r["kib_per_idle_session"] = (memory(family(between.pids())) - before) / IDLE
                for each in idle:
                    each.end()
            terminal = Terminal(between.command(), env)
            time.sleep(1)
            shell(terminal)
            if name == "managed":
                time.sleep(1)
                before = memory(between.pids())
                tool = between.watch(between.session(), 100)
                time.sleep(1)
                r["kib_per_spectator"] = (memory(between.pids()) - before) / 100
                tool.kill()
                tool.wait()
            terminal.end()
            for count in WATCHERS if name in ("managed", "unrecorded") else (0,):
                # Each in a separate session, because a session ends when its recording reaches the size
                # limit.
                terminal = Terminal(between.command(), env)
                time.sleep(1)
                shell(terminal)
                tool = between.watch(between.session(), count) if count else None
                busy = family([*between.pids(), terminal.pid]) if between.pids() else []
                before = cpu_of(busy)
                r[f"cat_{count}_mib_s"] = output(terminal, mib, file)
                if busy:
                    r[f"cat_{count}_cpu_s_per_gib"] = (cpu_of(busy) - before) / mib * 1024
                if tool:
                    tool.stdin.close()
                    seen = json.loads(tool.stdout.readline())
                    r[f"watched_{count}_share"] = seen["bytes"] / count / (mib << 20)
                    tool.wait()
                terminal.end()
            return {key: value for key, value in r.items() if value is not None}
        finally:
            between.end()


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--only", default="")
    a.add_argument("--rounds", type=int, default=3)
    a.add_argument("--mib", type=int, default=100)
    a.add_argument("--out", default=str(ROOT / "bench/results"))
    args = a.parse_args()
    makers = {n: make for n, make in kinds().items() if not args.only or n in args.only.split(",")}
    needed = {"ssh": ["ssh", "sshd", "ssh-keygen"], "local": []}
    for name in list(makers):
        missing = [p for p in needed.get(name, ["svc", "bench-tools"]) if not shutil.which(p)]
        if missing:
            print(f"{name} is not run: there is no {', '.join(missing)}", flush=True)
            del makers[name]
    res = {}
    with tempfile.NamedTemporaryFile() as file:
        # Lines as programs print them, so that nothing wraps and the screen scrolls.
        line = b"x" * 79 + b"\n"
        file.write(line * ((args.mib << 20) // len(line) + 1))
        file.flush()
        for _ in range(args.rounds):
            for name, make in makers.items():
                r = one(name, make, args.mib, file.name)
                print(name, json.dumps({k: round(v, 3) for k, v in r.items()}), flush=True)
                res.setdefault(name, []).append(r)
    med = {n: {k: statistics.median(r[k] for r in rs) for k in rs[0]} for n, rs in res.items()}
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    (out / "terminals.json").write_text(json.dumps({"median": med, "runs": res}, indent=1))
    keys = sorted({k for values in med.values() for k in values})
    cell = lambda n, k: f"{med[n][k]:.3g}" if k in med[n] else "–"
    rows = "".join(f"| {k} | " + " | ".join(cell(n, k) for n in med) + " |\n" for k in keys)
    table = "| measure | " + " | ".join(med) + " |\n|---|" + "---:|" * len(med) + "\n" + rows
    (out / "terminals.md").write_text(table)
    print(table)


main()

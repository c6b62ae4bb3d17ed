"""Ports, and resource usage by process."""
import contextlib, os, socket, sys, time
from pathlib import Path

TICK = os.sysconf("SC_CLK_TCK")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_port(port, proc, log):
    end = time.time() + 30
    while time.time() < end and proc.poll() is None:
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        time.sleep(0.02)
    sys.exit(f"{proc.args[0]} does not listen: {log.read_text()}")


def cpu_of(roots):
    """CPU seconds of these process trees, including ended children."""
    kids, own = {}, {}
    for d in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            f = Path(f"/proc/{d}/stat").read_text().rsplit(")", 1)[1].split()
            kids.setdefault(int(f[1]), []).append(int(d))
            own[int(d)] = sum(map(int, f[11:15])) / TICK
    todo, total = list(roots), 0.0
    while todo:
        p = todo.pop()
        total += own.get(p, 0.0)
        todo += kids.get(p, [])
    return total


def machine():
    """CPU seconds of the whole machine, and of this program with the commands that it has run."""
    f = [int(x) / TICK for x in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    t = os.times()
    return sum(f) - f[3] - f[4], sum(t[:4])

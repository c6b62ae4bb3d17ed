"""Processes of the bench: started in separate sessions, ended by id, read from /proc."""
import contextlib, os, re, resource, signal, socket, subprocess, time
from pathlib import Path

TICK = os.sysconf("SC_CLK_TCK")
ENV = dict(os.environ, RUST_LOG=os.environ.get("RUST_LOG", "error"), NO_COLOR="true")
ROLES = ("server", "agent")


class Proc:
    """One process with its children. Its CPU and memory are attributed to `role`."""
    def __init__(self, role, cmd, cwd, log, **more):
        self.role, self.cmd = role, cmd
        self.p = subprocess.Popen(cmd, cwd=cwd, env=ENV, stdin=more.pop("stdin", subprocess.DEVNULL),
                                  stdout=more.pop("stdout", None) or open(log, "ab"), stderr=open(log, "ab"), start_new_session=True, **more)

    def kill(self, sig=signal.SIGKILL):
        for pid in tree(self.p.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, sig)
        self.p.wait()


def run(cmd, **kw):
    """Runs a command to its end; a failure is an exception with the end of its output."""
    done = subprocess.run(cmd, shell=isinstance(cmd, str), capture_output=True, **kw)
    if done.returncode:
        words = cmd if isinstance(cmd, str) else " ".join(cmd)
        raise RuntimeError(f"{words[:80]}: {(done.stderr or done.stdout)[-200:].decode(errors='replace').strip()}")
    return done


def stat_of(pid):
    """(parent, CPU seconds including ended children) of one process, or None."""
    try:
        f = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return None
    return int(f[1]), sum(int(x) for x in f[11:15]) / TICK


def tree(root):
    """Ids of a process and of all its descendants."""
    kids = {}
    for d in filter(str.isdigit, os.listdir("/proc")):
        s = stat_of(int(d))
        if s:
            kids.setdefault(s[0], []).append(int(d))
    todo, seen = [root], []
    while todo:
        p = todo.pop()
        seen.append(p)
        todo += kids.get(p, [])
    return seen


def cpu(procs):
    """CPU seconds so far, by role."""
    out = dict.fromkeys(ROLES, 0.0)
    for q in procs:
        out[q.role] += sum(s[1] for s in map(stat_of, tree(q.p.pid)) if s)
    return out


def memory(procs):
    """MiB by role: resident memory, the role's own share of it (`pss`: a page of n processes counts 1/n),
    and that share split into `anon` (heap, stacks) and `file` (the program).
    """
    keys = {"rss": ("Rss",), "pss": ("Pss",), "anon": ("Pss_Anon",), "file": ("Pss_File", "Pss_Shmem")}
    out = {role: dict.fromkeys(keys, 0.0) for role in ROLES}
    for q in procs:
        for pid in tree(q.p.pid):
            with contextlib.suppress(OSError):
                t = Path(f"/proc/{pid}/smaps_rollup").read_text()
                for k, names in keys.items():
                    out[q.role][k] += sum(int(m) for m in re.findall(rf"^(?:{'|'.join(names)}):\s+(\d+)", t, re.M)) / 1024
    return out


def flat(by_role):
    """{role: {key: value}} as {role_key: value}."""
    return {f"{role}_{k}": v for role, m in by_role.items() for k, v in m.items()}


def wait_port(port, hosts=("127.0.0.1",), timeout=15):
    end = time.time() + timeout
    while time.time() < end:
        for host in hosts:
            with contextlib.suppress(OSError):
                socket.create_connection((host, port), 1).close()
                return True
        time.sleep(0.03)
    return False


def busy(others=()):
    """CPU seconds of the whole machine, and of this bench: itself, ended load generators, `others`."""
    f = [int(x) / TICK for x in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    us = sum(x.ru_utime + x.ru_stime for x in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))
    return sum(f) - f[3] - f[4], us + sum(cpu(others).values())


def quiet(limit, share=0.25):
    """Waits until other processes use little CPU, at most `limit` seconds."""
    end = time.time() + limit
    while time.time() < end:
        a = busy()[0]
        time.sleep(0.5)
        if (busy()[0] - a) * 2 / os.cpu_count() < share:
            return


def measured(contender, work):
    """The result of `work`, with its CPU usage: of server and agent, and `foreign`, the share of the
    machine used by neither contender nor bench, which is the noise of this run.
    """
    a, m, t = cpu(contender.procs), busy(contender.service), time.time()
    r = work()
    wall, b, n = time.time() - t, cpu(contender.procs), busy(contender.service)
    spent = sum(b.values()) - sum(a.values())
    r["foreign"] = max(0.0, (n[0] - m[0]) - (n[1] - m[1]) - spent) / (wall * os.cpu_count())
    r |= {"cpu_server": b["server"] - a["server"], "cpu_agent": b["agent"] - a["agent"], "cpu": spent, "wall": r.get("wall", wall)}
    return r

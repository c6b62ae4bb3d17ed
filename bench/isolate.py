"""Isolation of the bench on the machine: a separate network, hosts file and process ids.

The bench is not reachable from outside, its ports do not collide with those of the machine, and when
it ends for any reason, all of its processes end as well.
"""
import os, shutil, subprocess, sys, tempfile
from pathlib import Path

MARK = "BENCH_ISOLATED"
ENGINE = "engine.bench.test"
NAMES = ["localhost", ENGINE, f"bench.t.{ENGINE}", f"guarded.t.{ENGINE}"]


def enter():
    """Runs this program again in new namespaces, which end with it."""
    if os.environ.get(MARK):
        return
    if not shutil.which("unshare") or not shutil.which("ip"):
        sys.exit("the bench needs `unshare` (util-linux) and `ip` (iproute2), and so Linux")
    scratch = tempfile.mkdtemp(prefix="svc-bench-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
    cmd = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if os.geteuid():
        cmd.append("--map-root-user")
    try:
        code = subprocess.run([*cmd, sys.executable, *sys.argv], env=dict(os.environ, **{MARK: scratch})).returncode
    except KeyboardInterrupt:
        code = 130
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    sys.exit(code)


def scratch():
    return Path(os.environ[MARK])


def network():
    """The loopback device, and names that resolve to it."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    hosts("127.0.0.1")
    subprocess.run(["mount", "--bind", scratch() / "hosts", "/etc/hosts"], check=True)


def hosts(engine):
    """Sets the address of the engine's names; the file is bound over /etc/hosts, so it is rewritten in place."""
    (scratch() / "hosts").write_text(f"127.0.0.1 localhost\n{engine} {' '.join(NAMES[1:])}\n")

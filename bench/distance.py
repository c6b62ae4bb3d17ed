"""The same at a distance: agent and service are in a second network namespace, and between the two
are delay and loss in both directions.

If the kernel supports it, `netem` adds them to a pair of veth devices; otherwise the relay of
`bench-tools` does, between two TUN devices. Visitors are beside the server.
"""
import json, shutil, subprocess, time

import isolate
import service
from contenders import Contender
from processes import Proc, cpu, run
from workloads import latency, wrk

# Round trip in milliseconds, packet loss in per mille per direction.
CELLS = [(rtt, loss) for rtt in (20, 50, 100) for loss in (0, 1, 10)]
QUICK, FEW = [(20, 0), (50, 1), (100, 10)], ("nginx2", "wstunnel-tls", "svc", "svc-tcp")
DEVICES = ("bench-near", "bench-far")


def missing():
    return None if shutil.which("bench-tools") or has_netem() else "netem in the kernel, nor bench-tools"


def has_netem():
    """Tests for `netem` on the loopback device of the bench, and restores the device."""
    ask = lambda what: subprocess.run(["tc", "qdisc", what, "dev", "lo", "root", "netem"], capture_output=True).returncode == 0
    return bool(shutil.which("tc")) and ask("add") and ask("del")


class Network:
    """Two namespaces, this one and a far one, and the network between them."""
    def __init__(self):
        self.procs, self.relay = [], None
        d = isolate.scratch()
        far = Proc("agent", ["unshare", "--net", "sleep", "infinity"], str(d), d / "far.log")
        self.procs.append(far)
        here = run(["readlink", "/proc/self/ns/net"]).stdout
        while run(["readlink", f"/proc/{far.p.pid}/ns/net"]).stdout == here:
            time.sleep(0.01)
        self.prefix = ["nsenter", "-t", str(far.p.pid), "-n", "--"]
        self.netem = has_netem()
        if self.netem:
            run(["ip", "link", "add", DEVICES[0], "type", "veth", "peer", "name", DEVICES[1]])
        else:
            self.relay = Proc("agent", ["bench-tools", "relay", *DEVICES], str(d), d / "relay.log", stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
            self.procs.append(self.relay)
            if self.relay.p.stdout.readline().strip() != "ready":
                raise RuntimeError(f"the relay does not start: {(d / 'relay.log').read_text()[-200:]}")
        run(["ip", "link", "set", DEVICES[1], "netns", str(far.p.pid)])
        for device, prefix, own, peer in ((DEVICES[0], [], service.NEAR, service.FAR), (DEVICES[1], self.prefix, service.FAR, service.NEAR)):
            run([*prefix, "ip", "addr", "add", own, "peer", peer, "dev", device])
            run([*prefix, "ip", "link", "set", device, "txqueuelen", "10000", "up"])
        run([*self.prefix, "ip", "link", "set", "lo", "up"])
        isolate.hosts(service.NEAR)
        self.procs += service.start(self.prefix, "far")

    def set(self, rtt, loss):
        """Packets since the previous call (of the relay; netem does not report them)."""
        if self.relay:
            self.relay.p.stdin.write(f"{rtt / 2} {loss}\n")
            return json.loads(self.relay.p.stdout.readline())
        for device, prefix in zip(DEVICES, ([], self.prefix)):
            run([*prefix, "tc", "qdisc", "replace", "dev", device, "root", "netem", "limit", "65536", "delay", f"{rtt / 2}ms", "loss", f"{loss / 10}%"])
        return {}

    def stop(self):
        for q in reversed(self.procs):
            q.kill()
        if self.netem:
            subprocess.run(["ip", "link", "del", DEVICES[0]], capture_output=True)
        isolate.hosts("127.0.0.1")


def do(contenders, services, args, note):
    """Every contender in every cell; results are passed to `note(contender, work, result)`."""
    network, cells = Network(), QUICK if args.quick else CELLS
    try:
        network.set(0, 0)
        note("network", "distance", ceiling(network))
        for c0 in contenders:
            if not args.quick or c0["name"] in FEW:
                for rtt in sorted({rtt for rtt, _ in cells}):
                    at(rtt, [loss for r, loss in cells if r == rtt], c0, [*services, *network.procs], network, note)
    finally:
        network.stop()


def at(rtt, losses, c0, services, network, note):
    """One contender at one distance from its start on: a congestion control that has once seen a shorter
    path keeps using it for seconds. A failure does not affect the other cells.
    """
    c = Contender(c0, services, place=network.prefix)
    try:
        network.set(rtt, 0)
        c.start()
        for loss in losses:
            network.set(rtt, loss)
            time.sleep(0.2)
            try:
                r = cell(c)
            except Exception as e:
                r = {"error": f"{type(e).__name__}: {e}"}
            note(c.name, f"rtt{rtt}-loss{loss}", r)
    except Exception as e:
        note(c.name, f"rtt{rtt}-loss0", {"error": f"{type(e).__name__}: {e}"})
    finally:
        c.stop()


def ceiling(network):
    """The throughput of the network itself without delay and loss, and its CPU usage."""
    made = [network.relay] if network.relay else []
    used = sum(cpu(made).values())
    r = download(f"http://{service.FAR}:{service.PLAIN}/", "", 3)
    r |= {"made_by": "relay" if network.relay else "netem", "cores": (sum(cpu(made).values()) - used) / r["wall"]}
    passed = network.set(0, 0)
    return r | {"packets_s": passed["passed"] / r["wall"], "overflowed": passed["overflowed"]} if passed else r


def cell(c):
    """16 connections with one request in flight each; the same with a new connection per request; a download."""
    url = c.url or c.tls_url
    r = latency(c, url, 1, conns=16, rate=False)
    out = {k: r[k] for k in ("rate", "p50", "p99", "errors", "cpu_per_100k", "foreign")}
    out["conn_rate"] = wrk(c, url, 16, 1, close=True)["rate"]
    return out | {"mib_s": download(url, c.host, 2.5)["mib_s"]}


def download(url, host, secs):
    """Bytes of one body in this number of seconds, or until it ends."""
    cmd = ["curl", "-s", "--cacert", str(service.pki() / "ca.pem"), "--http1.1", "-m", str(secs), "-o", "/dev/null", "-w", "%{http_code} %{size_download} %{time_total}"]
    o = subprocess.run([*cmd, *(["-H", f"Host: {host}"] if host else []), url.rstrip("/") + "/blob"], capture_output=True).stdout.decode().split()
    if o[0] != "200":
        raise RuntimeError(f"a download is answered {o[0]}")
    return {"mib_s": float(o[1]) / 2**20 / float(o[2]), "wall": float(o[2])}

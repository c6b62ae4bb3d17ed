#!/usr/bin/env python3
"""The engine and agent of this tree beside anchors and peers, in interleaved rounds; run by `cargo xtask bench`.

    bench.py run [--quick] [--rounds 3] [--only svc,nginx2] [--work rps_tls,lat_tls]
    bench.py report [--docs docs/performance.md]
    bench.py list

Everything runs in separate namespaces (`isolate`), so it needs Linux, and root or permission for user
namespaces. Programs are looked up in the directories of BENCH_PATH first. Python's standard library only.
"""
import argparse, datetime, json, os, random, re, resource, shutil, signal, subprocess, sys, time
from pathlib import Path

HERE = Path(__file__).resolve().parent
os.environ["PATH"] = ":".join([os.environ.get("BENCH_PATH", ""), os.environ["PATH"], "/usr/local/sbin", "/usr/sbin"])

import contenders, distance, fanout, isolate, results, service, states, syscalls, workloads      # noqa: E402 (they use PATH)
from processes import flat, measured, memory, quiet                                      # noqa: E402
from report import report                                                               # noqa: E402

ALONE = [*states.WORK, "syscalls", fanout.WORK]         # once in a run, each with processes of its own
WORK = [*ALONE, *workloads.WORK, "distance"]
QUICK = {"direct", "nginx2", "nginx2-stream", "rathole-tls", "wstunnel-tls", "ssh-R", "svc", "svc-tcp"}


class Run:
    def __init__(self, args):
        self.args, self.missing, self.rounds_before = args, {}, 0
        named = args.only.split(",") if args.only else None
        self.work = args.work.split(",") if args.work else [w for w in WORK if not (args.quick and w == "many1000")]
        if unknown := set(self.work) - set(WORK) - set(workloads.NAMED):
            sys.exit(f"no workload {', '.join(sorted(unknown))}; there are {', '.join(WORK + workloads.NAMED)}")
        every = contenders.load()
        if named and (unknown := set(named) - {c["name"] for c in every}):
            sys.exit(f"no contender {', '.join(sorted(unknown))}")
        self.contenders = []
        for c in every:
            if named is not None and c["name"] not in named:
                continue
            if c["missing"]:
                self.missing[c["name"]] = f"no {', '.join(c['missing'])}"
            elif named is None and c.get("extra"):
                self.missing[c["name"]] = "runs only when it is named with --only"
            elif named is None and args.quick and c["name"] not in QUICK:
                self.missing[c["name"]] = "not part of --quick"
            else:
                self.contenders.append(c)
        self.services = []

    def go(self):
        out = Path(self.args.out)
        out.mkdir(parents=True, exist_ok=True)
        before = results.before(out) if self.args.more else None
        if before:
            # Its rounds are followed by the new ones, and work that it missed is done.
            self.rounds_before, self.missing = before.rounds(), before.meta["missing"] | self.missing
        with open(out / "raw.jsonl", "a" if self.args.more else "w") as self.raw:
            isolate.network()
            service.pki()
            service.files(self.args.mib)
            self.find_missing()
            self.write({"meta": meta(self.args, self.missing)})
            self.services = service.start()
            try:
                self.alone()
                self.rounds()
                self.far()
            finally:
                for q in self.services:
                    q.kill()

    def find_missing(self):
        for work in self.work:
            lacks = workloads.missing(work) if work in workloads.WORK + workloads.NAMED else {"sse": fanout.missing, "syscalls": syscalls.missing, "distance": distance.missing}.get(work, lambda: None)()
            if lacks:
                self.missing[f"workload {work}"] = f"no {lacks}"
                self.work = [w for w in self.work if w != work]

    def write(self, line):
        self.raw.write(json.dumps(line) + "\n")
        self.raw.flush()

    def note(self, name, work, r, number=1):
        if "error" in r:
            r["error"] = " ".join(r["error"].split())[:400]
        said = " ".join(f"{k}={v:.3g}" if isinstance(v, float) else f"{k}={v}" for k, v in r.items())
        print(f"{number} {name:16} {work:10} {said}", flush=True)
        self.write({"c": name, "w": work, "round": number, "t": time.time(), "r": r})

    def attempt(self, name, work, do, number=1):
        """Records a failed measurement and continues with the others."""
        try:
            r = do()
        except Exception as e:
            r = {"error": f"{type(e).__name__}: {e}"}
        self.note(name, work, r, number)
        return "error" not in r

    def alone(self):
        for work in [w for w in self.work if w in ALONE]:
            for c in self.contenders:
                if work in states.WORK and states.wants(c, work):
                    if lacks := states.missing(c, work):
                        self.missing[f"{work} of {c['name']}"] = f"no {lacks}"
                    else:
                        self.attempt(c["name"], work, lambda: states.do(c, self.services, work, self.args))
                if work == "syscalls" and syscalls.wants(c):
                    self.attempt(c["name"], work, lambda: syscalls.do(c, self.services))
        if fanout.WORK in self.work and any(c["name"] == "svc" for c in self.contenders):
            anchor, ours = fanout.anchor(), next(c for c in self.contenders if c["name"] == "svc")
            if anchor["missing"]:
                self.missing["nchan"] = f"no {', '.join(anchor['missing'])}"
            for number in self.numbers():
                for c in [ours] + ([] if anchor["missing"] else [anchor]):
                    self.attempt(c["name"], fanout.WORK, lambda: fanout.do(c, self.services, self.args), number)
        self.write({"meta": meta(self.args, self.missing)})

    def numbers(self):
        """Number of rounds of this run."""
        return range(self.rounds_before + 1, self.rounds_before + self.args.rounds + 1)

    def rounds(self):
        for number in self.numbers():
            random.shuffle(self.contenders)
            for c0 in self.contenders:
                todo = [w for w in self.work if w in workloads.WORK + workloads.NAMED and workloads.wants(c0, w)]
                if not todo:
                    continue
                quiet(self.args.quiet)
                c = contenders.Contender(c0, self.services)
                try:
                    c.start()
                    for work in todo:
                        if work == "mem":
                            self.note(c.name, work, flat(memory(c.procs)), number)
                        elif not self.attempt(c.name, work, lambda: workloads.do(c, work, self.args), number):
                            c.stop()
                            c.start()
                except Exception as e:
                    self.note(c.name, "start", {"error": f"{type(e).__name__}: {e}"}, number)
                finally:
                    c.stop()

    def far(self):
        if "distance" not in self.work:
            return
        there = [c for c in self.contenders if c.get("distance")]
        try:
            distance.do(there, self.services, self.args, self.note)
        except Exception as e:
            self.note("network", "distance", {"error": f"{type(e).__name__}: {e}"})


def meta(args, missing):
    """Measured programs, machine and settings."""
    say = lambda *cmd: (subprocess.run(cmd, capture_output=True, text=True, cwd=HERE, stdin=subprocess.DEVNULL) if shutil.which(cmd[0]) else None)
    text = lambda p: (p.stdout + p.stderr).strip() if p else ""
    model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    memory_kb = int(re.search(r"MemTotal:\s+(\d+)", Path("/proc/meminfo").read_text())[1])
    congestion = Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()
    kernel = os.uname().release.split("-")[0]
    machine = f"{os.cpu_count()} cores of {model[1] if model else os.uname().machine}, {memory_kb / 2**20:.0f} GiB, Linux {kernel}, TCP {congestion}; everything on loopback but where distance is named."
    versions = {}
    for name, cmd in {"nginx": ["nginx", "-v"], "haproxy": ["haproxy", "-v"], "OpenSSH": ["ssh", "-V"], "rathole": ["rathole", "--version"], "bore": ["bore", "--version"],
                      "wstunnel": ["wstunnel", "--version"], "frp": ["frps", "--version"], "chisel": ["chisel", "--version"], "wrk": ["wrk", "-v"], "h2load": ["h2load", "--version"]}.items():
        # Some programs print their build tools' versions before their own.
        if found := re.search(r"(?:^|[^-:.\d])v?(\d+\.\d+[.\w]*)", text(say(*cmd))):
            versions[name] = found[1]
    # A program from `go build` does not print its version; its module list does.
    for name in ("chisel",):
        if shutil.which(name) and versions.get(name, "0.0").startswith("0.0") and (pin := re.search(rf"/{name} v([\d.]+)", (HERE / "peers/go.mod").read_text())):
            versions[name] = pin[1]
    return {"date": datetime.date.today().isoformat(), "secs": args.secs, "profile": args.profile, "machine": machine, "missing": missing,
            "commit": text(say("git", "describe", "--always", "--dirty", "--abbrev=10")) or "?", "versions": versions}


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("do", choices=["run", "report", "list"])
    a.add_argument("--only", default="", help="contenders, comma separated")
    a.add_argument("--work", default="", help=f"of {','.join(WORK + workloads.NAMED)}")
    a.add_argument("--rounds", type=int, default=None, help="3; 1 with --quick")
    a.add_argument("--secs", type=float, default=None, help="of each load: 2; 1 with --quick")
    a.add_argument("--mib", type=int, default=None, help="of a body: 512; 256 with --quick")
    a.add_argument("--quick", action="store_true", help="a look: fewer contenders, one round, three distances")
    a.add_argument("--more", action="store_true", help="add to the results of the run before")
    a.add_argument("--quiet", type=float, default=10, help="seconds to wait for quiet cores before each contender")
    a.add_argument("--max-foreign", type=float, default=0.15, help="share of the machine that others may use in a run that counts")
    a.add_argument("--out", default=str(HERE / "results"))
    a.add_argument("--docs", type=Path, help="report: also into the marked block of this page")
    a.add_argument("--profile", default="release", help="of the programs that are measured, for the report")
    args = a.parse_args()
    for name, full, quick in (("rounds", 3, 1), ("secs", 2, 1), ("mib", 512, 256)):
        if getattr(args, name) is None:
            setattr(args, name, quick if args.quick else full)
    if args.do == "list":
        for c in contenders.load():
            print(f"{c['name']:16} {c['class']:7} {'missing ' + ' '.join(c['missing']) if c['missing'] else 'extra' if c.get('extra') else 'ok':22} {c.get('note', '')}")
        return
    if args.do == "run":
        isolate.enter()
        signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))       # thousands of connections
        begun = time.time()
        Run(args).go()
        print(f"\n{(time.time() - begun) / 60:.1f} minutes\n")
    print(report(args.out, args.max_foreign, args.docs))


if __name__ == "__main__":
    main()

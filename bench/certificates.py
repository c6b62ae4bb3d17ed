#!/usr/bin/env python3
"""Bench of an engine with many certificates: handshakes with 10,000 custom domains and with one.

  certificates.py [--domains 10000] [--rounds 5] [--secs 5] [--clients 2] [--out results]

Both engines run at the same time, each with certificates from files: one for each domain, with an
authority behind it, and of the size that public authorities issue. In interleaved rounds, `--clients` processes
open full TLS 1.3 handshakes (no session is resumed) to one engine, each for a random one of its
domains. CPU is that of the engine alone: it shows a difference that slow clients hide in the rate.
Memory is the difference of both engines after their start, divided by the difference of their
certificates.

Needs `svc` (cargo build --release -p svc) and `openssl`; if they are not on PATH, BENCH_PATH names
their directories.  Standard library only.  Processes are started by this program and ended by id.
"""
import argparse, concurrent.futures, json, multiprocessing, os, random, re, socket, ssl, statistics
import subprocess, sys, tempfile, time
from pathlib import Path

from measure import cpu_of, free_port, machine, wait_port

ROOT = Path(__file__).resolve().parent.parent
os.environ["PATH"] = ":".join([os.environ.get("BENCH_PATH", ""), str(ROOT / "target/release"), os.environ["PATH"]])
HOST = "engine.localhost"
# Goals: the rate with all certificates divided by that with one, and KiB of memory for each.
RATE_RATIO, KIB = 0.95, 8
# Bytes of an extension that no client reads: certificates of public authorities have a kilobyte, and those
# of this program less than half of it.
PADDING = 600


def domain(number):
    return f"d{number}.example.com"


def openssl(*args):
    done = subprocess.run(["openssl", *map(str, args)], capture_output=True)
    if done.returncode:
        sys.exit(f"openssl {args[0]}: {done.stderr.decode(errors='replace')}")


def padding():
    """An extension with another content in each certificate."""
    return "1.2.3.4=DER:04:82:" + (PADDING.to_bytes(2, "big") + os.urandom(PADDING)).hex(":")


def issue(base, name, names):
    """A certificate with its authority's in one file; all have the same key."""
    own = base / f"{name}.own"
    alternative = "subjectAltName=" + ",".join(f"DNS:{n}" for n in names)
    openssl("req", "-x509", "-new", "-key", base / "key.pem", "-subj", f"/CN={name}", "-days", 30,
            "-addext", alternative, "-addext", padding(), "-out", own)
    (base / f"{name}.pem").write_bytes(own.read_bytes() + (base / "ca.pem").read_bytes())
    own.unlink()


def certificates(base, count):
    openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", base / "key.pem")
    openssl("req", "-x509", "-new", "-key", base / "key.pem", "-subj", "/CN=bench CA", "-days", 30,
            "-addext", padding(), "-out", base / "ca.pem")
    issue(base, "engine", [HOST, f"*.t.{HOST}"])
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda number: issue(base, domain(number), [domain(number)]), range(count)))


class Engine:
    """An engine with the first `count` domains."""
    def __init__(self, base, count):
        self.count, self.port = count, free_port()
        # A configuration has at most 1 MiB, so the files have short names in the working directory.
        listed = [{"name": domain(n), "cert_file": f"{domain(n)}.pem", "key_file": "key.pem"} for n in range(count)]
        config = {"engine": {"host": HOST}, "tls": {"listen_addr": f"127.0.0.1:{self.port}"},
                  "certs": {"static": {"cert_file": "engine.pem", "key_file": "key.pem"}},
                  "auth": {"jwt": {"token_jwt_secret": "0123456789abcdef0123456789abcdef"}}, "domains": listed}
        file, log = base / f"engine-{count}.yaml", base / f"engine-{count}.log"
        file.write_text(json.dumps(config, separators=(",", ":")))     # JSON is valid YAML
        begun = time.perf_counter()
        self.process = subprocess.Popen(["svc", "engine", "-c", str(file)], stdin=subprocess.DEVNULL, cwd=base,
                                        stdout=open(log, "ab"), stderr=subprocess.STDOUT, start_new_session=True)
        wait_port(self.port, self.process, log)
        self.started = time.perf_counter() - begun

    def anonymous(self):
        """KiB of heap and stacks."""
        return int(re.search(r"^RssAnon:\s+(\d+)", Path(f"/proc/{self.process.pid}/status").read_text(), re.M)[1])

    def stop(self):
        self.process.kill()
        self.process.wait()


def shake(port, count, secs, seed, done):
    """Handshakes for `secs` seconds, each on a connection of its own; puts their number into `done`."""
    choose, made = random.Random(seed), 0
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # The certificate is not checked here: that is the cost of the client.
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["http/1.1"])
    end = time.perf_counter() + secs
    while time.perf_counter() < end:
        with socket.create_connection(("127.0.0.1", port)) as plain:
            with context.wrap_socket(plain, server_hostname=domain(choose.randrange(count))):
                made += 1
    done.put(made)


def measure(engine, args):
    done, before, a = multiprocessing.Queue(), cpu_of([engine.process.pid]), machine()
    begun = time.perf_counter()
    clients = [multiprocessing.Process(target=shake, args=(engine.port, engine.count, args.secs, random.random(), done))
               for _ in range(args.clients)]
    for client in clients:
        client.start()
    made = sum(done.get(timeout=args.secs + 60) for _ in clients)
    wall = time.perf_counter() - begun
    for client in clients:
        client.join()
    spent, b = cpu_of([engine.process.pid]) - before, machine()
    foreign = max(0.0, (b[0] - a[0]) - (b[1] - a[1]) - spent) / (wall * os.cpu_count())
    return {"domains": engine.count, "rate": made / wall, "cpu_per_10k": spent / max(made, 1) * 1e4, "foreign": foreign}


def right_certificate(engine, number):
    """True if the engine presents the certificate of this domain."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(("127.0.0.1", engine.port)) as plain:
        with context.wrap_socket(plain, server_hostname=domain(number)) as session:
            return domain(number).encode() in session.getpeercert(True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--domains", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--secs", type=float, default=5)
    parser.add_argument("--clients", type=int, default=2)
    parser.add_argument("--out", type=Path, default=ROOT / "bench/results")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="svc-bench-") as scratch:
        base = Path(scratch)
        print(f"{args.domains} certificates are issued", flush=True)
        certificates(base, args.domains)
        engines = [Engine(base, 1)]
        try:
            engines.append(Engine(base, args.domains))
            one, many = engines
            for number in (0, args.domains // 2, args.domains - 1):
                if not right_certificate(many, number):
                    sys.exit(f"{domain(number)} has another certificate")
            time.sleep(1)
            each = (many.anonymous() - one.anonymous()) / max(1, args.domains - 1)
            for engine in engines:      # a first load, of which nothing is kept
                measure(engine, argparse.Namespace(secs=1, clients=args.clients))
            rows = [measure(engine, args) for _ in range(args.rounds) for engine in engines]
        finally:
            for engine in engines:
                engine.stop()
    median = lambda engine, key: statistics.median(row[key] for row in rows if row["domains"] == engine.count)
    result = {"domains": args.domains, "kib_per_certificate": each, "start_s": many.started, "rounds": rows,
              "rate_ratio": median(many, "rate") / median(one, "rate"),
              "cpu_ratio": median(many, "cpu_per_10k") / median(one, "cpu_per_10k")}
    args.out.mkdir(parents=True, exist_ok=True)
    with open(args.out / "certificates.jsonl", "a") as file:
        file.write(json.dumps(result) + "\n")
    lines = ["| measure | one domain | " + f"{args.domains:,} domains | ratio |", "|---|---:|---:|---:|"]
    for key, name, digits in (("rate", "handshakes per second", 0), ("cpu_per_10k", "CPU s of the engine for 10,000", 2)):
        a, b = median(one, key), median(many, key)
        lines.append(f"| {name} | {a:,.{digits}f} | {b:,.{digits}f} | {b / a:.3f} |")
    lines.append(f"| start | {one.started:.1f} s | {many.started:.1f} s | |")
    lines.append(f"| memory of a certificate | | {each:.1f} KiB | |")
    lines.append(f"| used by other programs | {median(one, 'foreign'):.0%} | {median(many, 'foreign'):.0%} | |")
    verdict = lambda reached: "reached" if reached else "missed"
    is_fast, is_small = result["rate_ratio"] >= RATE_RATIO, each <= KIB
    lines += ["", f"- rate with {args.domains:,} certificates to rate with one: {result['rate_ratio']:.3f};"
                  f" goal: at least {RATE_RATIO}, {verdict(is_fast)}",
              f"- memory of a certificate to the limit of {KIB} KiB: {each / KIB:.2f};"
              f" goal: at most 1, {verdict(is_small)}"]
    # The clients limit the rate on a machine with few cores; the CPU of the engine shows its own share.
    lines.append(f"- handshakes per CPU second of the engine, with {args.domains:,} certificates to one:"
                 f" {1 / result['cpu_ratio']:.3f}; no goal")
    text = "\n".join(lines) + "\n"
    (args.out / "certificates.md").write_text(text)
    print(text)
    if not (is_fast and is_small):
        sys.exit("a goal is missed")


if __name__ == "__main__":
    main()

"""Instructions of a small request in two builds of the program, counted by callgrind.

    cargo build --release -p svc
    python3 bench/instructions.py BASE HEAD [h1|h2] [--functions]

Without `-p svc` cargo builds dependencies with the features of all packages, including `tokio/test-util`,
which costs a thousand instructions per request in each process.
Unlike times, instruction counts are not noisy on a shared machine: each build serves 500 and then 2,500
requests in fresh processes, and the difference is divided by 2,000, so that start and end do not count.
There is one connection with one request at a time: with more, the number of requests per wake-up, and with
it the count, depends on the machine. Each count is made three times, and the lowest is used, because it
contains the fewest timers of the runtime. The entropy that the TLS library collects at its start depends
on timing and is excluded by name. `--functions` lists the largest changes by function.
"""

import http.server
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading

FEW, MANY = 500, 2500
ROUNDS = 3
# Jitter entropy (aws-lc), whose loops depend on the clock.
STARTUP = re.compile(r"jent|rol64|xoshiro|once_cell|clock_gettime|keccak|sha3")
LINE = re.compile(r"\s*([\d,]+)\s*\(\s*[\d.]+%\)\s+(.*)")
# The object of a function, and the number of a generic instance.
DETAILS = re.compile(r" \[.*\]$|::h[0-9a-f]{16}|^.*?:(?=\S)")


class Service(http.server.BaseHTTPRequestHandler):
    """Responds with six bytes to every request."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "6")
        self.end_headers()
        self.wfile.write(b"hello\n")

    def log_message(self, *_args):
        pass


class Server(http.server.ThreadingHTTPServer):
    def handle_error(self, *_args):
        """Connections end with the processes."""


def start(directory, name, args):
    """Starts the program under callgrind."""
    valgrind = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={directory}/{name}"]
    return subprocess.Popen(
        [*valgrind, *args],
        cwd=directory,
        env={"HOME": directory, "PATH": os.environ["PATH"]},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


def counted(directory, name):
    """Instructions by function, without those of the start that depend on timing."""
    args = ["callgrind_annotate", "--threshold=100", f"{directory}/{name}"]
    text = subprocess.run(args, capture_output=True, text=True, check=True).stdout
    functions = {}
    for line in text.splitlines():
        found = LINE.match(line)
        if found and "PROGRAM TOTALS" not in line and not STARTUP.search(found[2]):
            function = DETAILS.sub("", found[2])
            functions[function] = functions.get(function, 0) + int(found[1].replace(",", ""))
    return functions


def serve(program, service, version, requests):
    """Instructions of the engine and of the agent for this number of requests, by function."""
    with tempfile.TemporaryDirectory() as directory:
        up = [program, "up", "--community", "--port", "0", "--metrics-port", "0", "--output", "json"]
        engine = start(directory, "engine", up)
        port = json.loads(engine.stdout.readline())["engine_url"].rsplit(":", 1)[1]
        forward = [program, "forward", str(service), "--hostname", "web", "--output", "json"]
        agent = start(directory, "agent", forward)
        lines = (json.loads(line) for line in agent.stdout)
        url = next(line["forwarding"] for line in lines if line.get("status") == "online")
        # The agent logs each connection; the output is read so that it never blocks.
        threading.Thread(target=agent.stdout.read, daemon=True).start()
        load = ["h2load", *(["--h1"] if version == "h1" else []), "-n", str(requests), "-c1", "-m1"]
        load += [f"--connect-to=127.0.0.1:{port}", f"{url}/x"]
        said = subprocess.run(load, capture_output=True, text=True, check=True).stdout
        if f"{requests} succeeded" not in said:
            sys.exit(f"not every request succeeded:\n{said}")
        for process in (agent, engine):
            process.send_signal(signal.SIGTERM)
            process.wait()
        return [counted(directory, name) for name in ("engine", "agent")]


def lowest(program, service, version, requests):
    """The run with the fewest instructions, of the engine and of the agent."""
    runs = [serve(program, service, version, requests) for _ in range(ROUNDS)]
    return [min(side, key=lambda functions: sum(functions.values())) for side in zip(*runs)]


def per_request(program, service, version):
    few, many = (lowest(program, service, version, requests) for requests in (FEW, MANY))
    return [
        {name: (high[name] - low.get(name, 0)) / (MANY - FEW) for name in high}
        for low, high in zip(few, many)
    ]


def main():
    args = [arg for arg in sys.argv[1:] if arg != "--functions"]
    if len(args) not in (2, 3):
        sys.exit(__doc__)
    base, head, *version = args
    version = version[0] if version else "h1"
    server = Server(("127.0.0.1", 0), Service)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    port = server.server_address[1]
    pairs = zip(per_request(base, port, version), per_request(head, port, version))
    for side, (before, after) in zip(("engine", "agent"), pairs):
        low, high = sum(before.values()), sum(after.values())
        print(f"{version} {side}: {low:,.0f} -> {high:,.0f} ({high / low - 1:+.1%})")
        if "--functions" in sys.argv:
            changes = {
                name: after.get(name, 0) - before.get(name, 0) for name in before.keys() | after.keys()
            }
            for name in sorted(changes, key=lambda name: -abs(changes[name]))[:40]:
                print(f"  {changes[name]:+9,.0f}  {name[:150]}")


if __name__ == "__main__":
    main()

"""Fan-out of live events over SSE: 1,000 watchers, 20 events per second, over TLS connections.

For svc this is the Engine API (`/api/sse`) with events caused by an agent that opens and closes
tunnels; the anchor is nchan, to which the same stamps are published. Delay is from just before the
cause to the watcher, so for svc it includes the agent and the engine's bookkeeping.
"""
import http.client, json, shutil, subprocess, threading, time
from pathlib import Path

import service
from contenders import PORT0, Contender
from processes import Proc, measured, memory

PORT = PORT0 - 20
NCHAN = "/usr/lib/nginx/modules/ngx_nchan_module.so"
WORK = "sse"
ANCHOR = {
    "name": "nchan", "class": "fanout", "base": PORT, "need": ["nginx", NCHAN],
    "note": "nginx with nchan, the anchor of the fan-out", "proc": [{"role": "server", "cmd": "nginx -c @dir@/n.conf -e @dir@/n.err", "wait": "@p1@"}],
    "tls_url": "https://localhost:@p0@/sub",
    "files": {"n.conf": """
load_module /usr/lib/nginx/modules/ngx_nchan_module.so;
daemon off; worker_processes 2; pid @dir@/pid; user root;
events { worker_connections 4096; }
http { access_log off; keepalive_requests 1000000; nchan_shared_memory_size 64m;
 client_body_temp_path @dir@/b; proxy_temp_path @dir@/t; fastcgi_temp_path @dir@/f; uwsgi_temp_path @dir@/u; scgi_temp_path @dir@/s;
 ssl_certificate @pki@/cert.pem; ssl_certificate_key @pki@/key.pem; ssl_protocols TLSv1.3;
 server { listen 127.0.0.1:@p0@ ssl backlog=4096; listen 127.0.0.1:@p1@;
  location = /sub { nchan_subscriber eventsource; nchan_channel_id c; nchan_subscriber_first_message newest; }
  location = /pub { nchan_publisher http; nchan_channel_id c; nchan_message_buffer_length 10; } } }
"""}}


def missing():
    return next((p for p in ("bench-tools", "churn") if not shutil.which(p)), None)


def anchor():
    return dict(ANCHOR, missing=[n for n in ANCHOR["need"] if not (shutil.which(n) or Path(n).exists())])


def do(c0, services, args, watchers=1000, rate=20):
    """CPU per 100,000 deliveries, delay, and memory per watcher."""
    c, ours = Contender(c0, services), c0["name"] != "nchan"
    others = []
    try:
        c.start([p for p in c0["proc"] if p["role"] == "server"])
        secs, log = max(4, round(args.secs * 2)), c.dir / "fanout.log"
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
        if ours:
            others.append(Proc("agent", ["env", f"SVC_TOKEN={c.x('@jwt:agent@')}", "churn", *c.x("@engine@:@p0@ @pki@/ca.pem").split(), str(rate), str(secs)], str(c.dir), log, **pipes))
            expect(others[0], "ready", log)
        time.sleep(0.5)
        before = memory(c.procs)["server"]
        header = f"Authorization: Bearer {c.x('@jwt:agent@')}" if ours else "X-Bench: 1"
        url = c.x("https://@engine@:@p0@/api/sse") if ours else c.tls_url
        load = Proc("agent", ["bench-tools", "sse", url, str(service.pki() / "ca.pem"), header, str(watchers), str(secs + 1)], str(c.dir), log, **pipes)
        others.append(load)
        expect(load, "open", log)
        time.sleep(1)
        with_all = memory(c.procs)["server"]
        c.service = [*services, *others]        # load generators that still run

        def go():
            load.p.stdin.write("go\n")
            if ours:
                others[0].p.stdin.write("go\n")
            else:
                threading.Thread(target=publish, args=(int(c.x("@p1@")), rate, secs), daemon=True).start()
            return json.loads(load.p.stdout.readline())
        r = measured(c, go)
    finally:
        for q in others:
            q.kill()
        c.stop()
    r |= {"expected": int(rate * secs) * watchers, "cpu_per_100k": r["cpu_server"] / max(r["n"], 1) * 1e5, "rss_idle": before["rss"]}
    r |= {f"{k}_kib_per_watcher": (with_all[k] - before[k]) * 1024 / watchers for k in ("rss", "pss", "anon")}
    r["errors"] = r.pop("ended")
    return r


def expect(proc, word, log):
    if proc.p.stdout.readline().strip() != word:
        raise RuntimeError(f"not `{word}`: {log.read_text()[-300:]}")


def publish(port, rate, secs):
    c, begun = http.client.HTTPConnection("127.0.0.1", port), time.perf_counter()
    for i in range(int(rate * secs)):
        time.sleep(max(0, begun + i / rate - time.perf_counter()))
        c.request("POST", "/pub", f"stamp={time.time_ns()};" + "x" * 180)
        c.getresponse().read()

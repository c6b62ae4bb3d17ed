"""Performance goals as data, and their evaluation for a run.

A goal compares one measure of svc with the anchor's in the same rounds (`ratio`), or is an absolute
figure. `first` was the goal of a first version, `aim` is the current one. With `less`, lower figures
are better.
"""
from dataclasses import dataclass

# Peers that encrypt between server and agent; svc has to be better than each.
ENCRYPTED = ("rathole-tls", "rathole-noise", "frp-tls", "chisel", "wstunnel-tls", "ssh-R", "sandhole")


@dataclass(frozen=True)
class Goal:
    row: str                        # of the table of goals
    what: str
    ours: tuple                     # contender, workload, key
    anchor: tuple | None = None     # the same; None: the figure itself is the goal
    first: float | None = None
    aim: float | None = None
    less: bool = True
    unit: str = ""

    def judge(self, value):
        """`met`, `first` or `missed`; None without a goal."""
        if self.aim is None and self.first is None:
            return "–"
        reached = lambda bound: bound is not None and (value <= bound if self.less else value >= bound)
        return "met" if reached(self.aim) else "first" if reached(self.first) else "missed"


def pair(row, what, work, key, ours="svc", anchor="nginx2", **kw):
    return Goal(row, what, (ours, work, key), (anchor, work, key), **kw)


more = {"less": False}
GOALS = [
    pair("1, 3", "HTTP requests, 64 keep-alive, TLS edge", "rps_tls", "rate", first=1.0, aim=1.4, unit="/s", **more),
    pair("2, 3", "the same, CPU for 100,000", "rps_tls", "cpu_per_100k", first=1.0, aim=0.60, unit="s"),
    pair("–", "HTTP/2 edge: requests", "rps_h2", "rate", unit="/s", **more),
    pair("–", "the same, CPU for 100,000", "rps_h2", "cpu_per_100k", unit="s"),
    pair("–", "HTTP/2 edge: p99 at 1,000 requests/s", "lat_h2", "p99", unit="ms"),
    pair("–", "HTTP/2 edge: eight downloads at once, CPU for a GiB", "down8_h2", "cpu_per_gib", unit="s"),
    pair("–", "HTTP/2 edge: eight uploads at once, CPU for a GiB", "up8_h2", "cpu_per_gib", unit="s"),
    Goal("4", "HS256 token on every request, more CPU", ("svc", "token", "hs256_percent"), first=10, aim=3, unit="%"),
    Goal("4", "ES256 token on every request, more CPU", ("svc", "token", "es256_percent"), first=10, aim=3, unit="%"),
    pair("5", "new TLS connection for each request", "conn_tls", "rate", first=0.9, aim=1.0, unit="/s", **more),
    pair("5, 6", "the same, CPU for 100,000", "conn_tls", "cpu_per_100k", first=1.05, aim=0.85, unit="s"),
    pair("7", "raw TCP, new connection each", "conn", "rate", "svc-tcp", "nginx2-stream", first=0.8, aim=1.0, unit="/s", **more),
    pair("7", "the same, CPU for 100,000", "conn", "cpu_per_100k", "svc-tcp", "nginx2-stream", first=1.25, aim=1.0, unit="s"),
    pair("8", "raw TCP keep-alive, CPU for 100,000", "rps", "cpu_per_100k", "svc-tcp", first=0.72, aim=0.60, unit="s"),
    pair("9", "p50 at 1,000 requests/s, TLS edge", "lat_tls", "p50", first=1.0, aim=0.70, unit="ms"),
    pair("9", "p99", "lat_tls", "p99", first=1.0, aim=0.75, unit="ms"),
    pair("10", "download, one stream, TLS edge", "down1_tls", "mib_s", first=1.0, aim=1.15, unit="MiB/s", **more),
    pair("10", "the same, CPU for a GiB", "down1_tls", "cpu_per_gib", first=1.0, aim=0.65, unit="s"),
    pair("10", "download, one stream, raw TCP", "down1", "mib_s", "svc-tcp", first=1.0, aim=1.15, unit="MiB/s", **more),
    pair("10", "the same, CPU for a GiB", "down1", "cpu_per_gib", "svc-tcp", first=1.0, aim=0.65, unit="s"),
    pair("11", "upload, one stream, TLS edge", "up1_tls", "mib_s", first=1.2, aim=1.5, unit="MiB/s", **more),
    pair("11", "the same, CPU for a GiB", "up1_tls", "cpu_per_gib", first=0.8, aim=0.50, unit="s"),
    pair("11", "upload, one stream, raw TCP", "up1", "mib_s", "svc-tcp", first=1.2, aim=1.5, unit="MiB/s", **more),
    pair("11", "the same, CPU for a GiB", "up1", "cpu_per_gib", "svc-tcp", first=0.8, aim=0.50, unit="s"),
    pair("12", "eight downloads at once, TLS edge, CPU for a GiB", "down8_tls", "cpu_per_gib", first=1.0, aim=0.80, unit="s"),
    pair("12", "eight downloads at once, raw TCP, CPU for a GiB", "down8", "cpu_per_gib", "svc-tcp", first=1.0, aim=0.80, unit="s"),
    pair("–", "WebSocket messages, 64 sockets, TLS edge", "ws_tls", "rate", unit="/s", **more),
    pair("–", "the same, CPU for 100,000", "ws_tls", "cpu_per_100k", unit="s"),
    Goal("14", "RSS idle, engine", ("svc", "idle", "server_rss"), first=12, aim=8, unit="MiB"),
    Goal("14", "RSS idle, agent", ("svc", "idle", "agent_rss"), first=8, aim=7, unit="MiB"),
    Goal("15", "idle HTTP connection (TLS), both ends", ("svc", "idle", "pss_kib_per_conn"), first=16, aim=10, unit="KiB"),
    Goal("15", "idle TCP connection, both ends", ("svc-tcp", "idle", "pss_kib_per_conn"), first=32, aim=16, unit="KiB"),
    Goal("16", "RSS after the whole load, engine", ("svc", "mem", "server_rss"), first=40, aim=16, unit="MiB"),
    Goal("16", "RSS after the whole load, agent", ("svc", "mem", "agent_rss"), first=32, aim=12, unit="MiB"),
    Goal("17", "further tunnel of 500, engine", ("svc", "many500", "server_pss_kib_per_tunnel"), first=8, aim=4, unit="KiB"),
    Goal("17", "further tunnel of 500, agent", ("svc", "many500", "agent_pss_kib_per_tunnel"), first=13, aim=6, unit="KiB"),
    Goal("18", "first answer after an outage of 2 s", ("svc", "reconnect", "seconds"), first=0.5, aim=0.25, unit="s"),
    Goal("18", "500 tunnels back after an outage of 2 s", ("svc", "many500", "back_s"), aim=0.4, unit="s"),
    pair("21", "1,000 watchers, 20 events/s: CPU for 100,000 deliveries", "sse", "cpu_per_100k", "svc", "nchan", first=1.2, aim=0.8, unit="s"),
    pair("21", "the same, p99 of the delay", "sse", "p99", "svc", "nchan", aim=1.0, unit="ms"),
    Goal("21", "the same, p99 of the delay", ("svc", "sse", "p99"), first=20, unit="ms"),
    Goal("21", "memory of a watcher (TLS)", ("svc", "sse", "pss_kib_per_watcher"), first=16, aim=8, unit="KiB"),
    Goal("–", "system calls for a request, both ends", ("svc", "syscalls", "per_request"), aim=10.5, unit=""),
]

# Better than every encrypted peer: svc carries bytes here, as they do.
PEERS = [("CPU for 100,000 requests", "rps", "cpu_per_100k", "s"), ("CPU for 100,000 new connections", "conn", "cpu_per_100k", "s"),
         ("CPU for a GiB down", "down1", "cpu_per_gib", "s"), ("CPU for a GiB up", "up1", "cpu_per_gib", "s")]

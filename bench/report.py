"""The report of a bench run: medians of the raw runs as tables (summary.csv, summary.json, summary.md)."""
import csv, json, statistics
from pathlib import Path

COLS = [("rps", "rate"), ("rps", "cpu_per_100k"), ("rps", "cpu_server"), ("rps", "n"), ("rps_tls", "rate"), ("rps_tls", "cpu_per_100k"),
        ("conn", "rate"), ("conn", "cpu_per_100k"), ("conn_tls", "rate"), ("conn_tls", "cpu_per_100k"),
        ("lat", "p50"), ("lat", "p99"), ("lat", "cpu_per_100k"),
        ("down1", "mib_s"), ("down1", "cpu_per_gib"), ("down8", "mib_s"), ("down8", "cpu_per_gib"),
        ("up1", "mib_s"), ("up1", "cpu_per_gib"), ("up8", "mib_s"), ("up8", "cpu_per_gib"),
        ("down1_tls", "mib_s"), ("down1_tls", "cpu_per_gib"), ("udp", "received"), ("udp", "cpu_per_100k"), ("udp", "p50"), ("udp", "p99"),
        ("mem", "server_rss"), ("mem", "agent_rss"), ("idle", "pss_kib_per_conn"), ("idle", "rss_kib_per_conn"), ("reconnect", "seconds")]


def medians(out, limit=1.0):
    vals, errs, extra, all_ = {}, {}, {}, {}
    for l in (Path(out) / "raw.jsonl").read_text().splitlines():
        d = json.loads(l)
        c, w, r = d["c"], d["w"], d["r"]
        if "error" in r:
            errs.setdefault((c, w), []).append(r["error"])
            continue
        if r.get("errors"):
            errs.setdefault((c, w), []).append(f"{r['errors']} errors")
        if w in ("idle", "reconnect", "many"):
            extra[(c, w)] = r
        for k, v in r.items():
            if isinstance(v, (int, float)) and not isinstance(v, bool):
                (vals if r.get("foreign", 0) <= limit else all_).setdefault((c, w, k), []).append(v)
    for k, v in all_.items():           # only noisy runs: better than none
        vals.setdefault(k, v)
    return {k: statistics.median(v) for k, v in vals.items()}, vals, errs, extra


def fmt(v):
    if not v: return "–"
    if v >= 1000: return f"{v:,.0f}"
    if v >= 100: return f"{v:.0f}"
    if v >= 10: return f"{v:.1f}"
    return f"{v:.2f}"


def table(head, rows):
    return "\n".join(["| " + " | ".join(head) + " |", "|" + "---|" + "---:|" * (len(head) - 1)] +
                     ["| " + " | ".join(map(str, r)) + " |" for r in rows]) + "\n"


def report(args, contenders):
    med, vals, errs, extra = medians(args.out, args.max_foreign)
    out, cs = Path(args.out), contenders
    seen = {k[0] for k in med}
    cs = [c for c in cs if c["name"] in seen]
    with open(out / "summary.csv", "w", newline="") as f:
        w = csv.writer(f)
        w.writerow(["contender", "class", "crypto"] + [f"{a}.{b}" for a, b in COLS])
        for c in cs:
            w.writerow([c["name"], c.get("class", ""), c.get("crypto", "")] + [
                round(med[(c["name"], a, b)], 4) if (c["name"], a, b) in med else "" for a, b in COLS])
    (out / "summary.json").write_text(json.dumps(
        {c["name"]: {f"{a}.{b}": {"median": med[(c["name"], a, b)], "runs": vals[(c["name"], a, b)]}
                     for a, b in COLS if (c["name"], a, b) in med} for c in cs}, indent=1))
    ref, dref = args.ref, "direct"
    g = lambda n, a, b: med.get((n, a, b))
    rat = lambda v, r: "–" if not v or not r else f"{v / r:.2f}"
    md = []

    def sect(title, cols, ratio=()):
        """cols: (heading, workload, key); ratio: (heading, workload, key, reference)."""
        rows = []
        for c in cs:
            v = [g(c["name"], a, b) for _, a, b in cols]
            if any(x is not None for x in v):
                rows.append([c["name"]] + [fmt(x) for x in v] + [rat(g(c["name"], a, b), g(r, a, b)) for _, a, b, r in ratio])
        if rows:
            md.append(f"### {title}\n\n" + table(["contender"] + [h for h, _, _ in cols] + [h for h, *_ in ratio], rows))

    sect("Small GET, keep-alive, 64 connections", [("req/s", "rps", "rate"), ("CPU s/100k", "rps", "cpu_per_100k")],
         [(f"req/s ÷ {ref}", "rps", "rate", ref), (f"CPU ÷ {ref}", "rps", "cpu_per_100k", ref), ("req/s ÷ direct", "rps", "rate", dref)])
    sect("The same with TLS at the edge", [("req/s", "rps_tls", "rate"), ("CPU s/100k", "rps_tls", "cpu_per_100k")],
         [(f"req/s ÷ {ref}", "rps_tls", "rate", ref), (f"CPU ÷ {ref}", "rps_tls", "cpu_per_100k", ref), ("req/s ÷ direct", "rps_tls", "rate", dref)])
    sect("A new connection for each request, 16 at once", [("conn/s", "conn", "rate"), ("CPU s/100k", "conn", "cpu_per_100k"),
         ("TLS conn/s", "conn_tls", "rate"), ("TLS CPU s/100k", "conn_tls", "cpu_per_100k")],
         [(f"conn/s ÷ {ref}", "conn", "rate", ref), (f"CPU ÷ {ref}", "conn", "cpu_per_100k", ref)])
    sect("Latency at 1,000 req/s over 20 connections (ms)", [("p50", "lat", "p50"), ("p90", "lat", "p90"), ("p99", "lat", "p99"), ("CPU s/100k", "lat", "cpu_per_100k")],
         [(f"p50 ÷ {ref}", "lat", "p50", ref), ("p50 ÷ direct", "lat", "p50", dref)])
    sect("Bulk, MiB/s", [("down ×1", "down1", "mib_s"), ("down ×8", "down8", "mib_s"), ("up ×1", "up1", "mib_s"), ("up ×8", "up8", "mib_s"), ("TLS down ×1", "down1_tls", "mib_s")],
         [(f"down×1 ÷ {ref}", "down1", "mib_s", ref), (f"up×1 ÷ {ref}", "up1", "mib_s", ref)])
    sect("Bulk, CPU seconds per GiB (server + agent)", [("down ×1", "down1", "cpu_per_gib"), ("down ×8", "down8", "cpu_per_gib"), ("up ×1", "up1", "cpu_per_gib"), ("up ×8", "up8", "cpu_per_gib"), ("TLS down ×1", "down1_tls", "cpu_per_gib")],
         [(f"down×1 ÷ {ref}", "down1", "cpu_per_gib", ref), (f"up×1 ÷ {ref}", "up1", "cpu_per_gib", ref)])
    sect("UDP echo, 10,000 datagrams/s of 200 bytes", [("received/s", "udp", "rate"), ("lost %", "udp", "lost_pct"), ("CPU s/100k", "udp", "cpu_per_100k"), ("p50 ms", "udp", "p50"), ("p99 ms", "udp", "p99")])
    rows = []
    for c in cs:
        r, k = extra.get((c["name"], "idle")), extra.get((c["name"], "reconnect"))
        if r or k:
            r, k = r or {}, k or {}
            i, wi = r.get("idle"), r.get("with")
            rows.append([c["name"], *( [f"{i['server'][0]:.1f}", f"{i['agent'][0]:.1f}"] if i else ["–", "–"]),
                         r.get("open", "–"), *([f"{wi['server'][0]:.1f}", f"{wi['agent'][0]:.1f}"] if wi else ["–", "–"]),
                         fmt(r.get("rss_kib_per_conn")), fmt(g(c["name"], "mem", "server_rss")), fmt(g(c["name"], "mem", "agent_rss")), f"{k['seconds']:.2f}" if k.get("seconds") else k.get("note", "–")])
    if rows:
        md.append("### Memory (RSS, MiB) and reconnect\n\n" + table(["contender", "server idle", "agent idle", "open conns", "server", "agent", "KiB/conn (both)", "server after load", "agent after load", "reconnect s"], rows))
    rows = [[n, fmt(r.get("server_pss_kib_per_tunnel")), fmt(r.get("agent_pss_kib_per_tunnel")), fmt(r.get("ready_s"))]
            for (n, w), r in extra.items() if w == "many" and "error" not in r]
    if rows:
        md.append(f"### {args.many} more tunnels (PSS, KiB per tunnel)\n\n" + table(["contender", "server", "agent(s)", "all ready s"], rows))
    if errs:
        md.append("### Runs with errors\n\n" + "\n".join(f"- {c} {w}: {'; '.join(e[:3])}" for (c, w), e in sorted(errs.items())) + "\n")
    spread = [(max(v) - min(v)) / statistics.median(v) for k, v in vals.items() if k[1:] == ("rps", "cpu_per_100k") and len(v) > 2 and max(v)]
    rspread = [(max(v) - min(v)) / statistics.median(v) for k, v in vals.items() if k[1:] == ("rps", "rate") and len(v) > 2]
    if spread:
        md.append(f"Spread (max−min)/median over the rounds, median over contenders: req/s {statistics.median(rspread):.0%}, CPU per request {statistics.median(spread):.0%}.\n")
    fo = [x for k, v in vals.items() if k[2] == "foreign" for x in v]
    if fo:
        md.append(f"Foreign CPU during the runs used here: median {statistics.median(fo):.0%}, max {max(fo):.0%} of the machine; {len(fo)} runs.\n")
    (out / "summary.md").write_text("\n".join(md))
    print("\n".join(md))

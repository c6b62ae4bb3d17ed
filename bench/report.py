"""The report of a run: goals and measured values, and the tables behind them, in Markdown."""
from pathlib import Path

from goals import ENCRYPTED, GOALS, PEERS
from results import Results

BEGIN, END = "<!-- bench: begin -->", "<!-- bench: end -->"


def report(out, max_foreign, docs=None):
    """Writes `report.md` beside the raw results, and its text into the marked block of `docs`."""
    res = Results(out, max_foreign)
    text = "\n".join(part for part in (head(res), goals(res), peers(res), *tables(res), distance(res), absent(res)) if part)
    (Path(out) / "report.md").write_text(text)
    if docs:
        page = docs.read_text()
        before, rest = page.split(BEGIN)
        _, after = rest.split(END)
        docs.write_text(f"{before}{BEGIN}\n\n{text}\n{END}{after}")
    return text


def fmt(v, unit=""):
    if v is None:
        return "–"
    digits = 0 if abs(v) >= 100 else 1 if abs(v) >= 10 else 2
    return f"{v:,.{digits}f}" + (f" {unit}" if unit and unit[0] not in "%/" else unit)


def table(heads, rows):
    if not rows:
        return ""
    return "\n".join(["| " + " | ".join(heads) + " |", "|" + "---|" + "---:|" * (len(heads) - 1)] + ["| " + " | ".join(map(str, r)) + " |" for r in rows]) + "\n"


def head(res):
    m, f = res.meta, sorted(res.foreign)
    least, most = res.counts()
    rounds = f"{least} to {most}" if least < most else f"{most}"
    lines = [f"{m.get('date', '')}, {rounds} interleaved rounds of {m.get('secs', '?')} s, build `{m.get('profile', '?')}` of {m.get('commit', '?')}. {m.get('machine', '')}", ""]
    lines.append("Versions: " + ", ".join(f"{k} {v}" for k, v in m.get("versions", {}).items()) + ".")
    if f:
        lines.append(f"\nOthers used {f[len(f) // 2]:.0%} of the machine (median), {f[-1]:.0%} at most, over {len(f)} measurements; runs above {res.limit:.0%} count only where there are no others.")
    spread = {what: res.spread(*key) for what, key in {"requests/s": ("rps", "rate"), "CPU for a request": ("rps", "cpu_per_100k"), "CPU for a GiB": ("down1", "cpu_per_gib")}.items()}
    if any(s is not None for s in spread.values()):
        lines.append("Spread over the rounds, (max − min) / median: " + ", ".join(f"{what} {s:.0%}" for what, s in spread.items() if s is not None) + ".")
    return "\n".join(lines) + "\n"


def goals(res):
    rows, count = [], {}
    for g in GOALS:
        own = res.median(*g.ours)
        ratio = res.ratio(g.ours, g.anchor) if g.anchor else None
        value = (ratio[0] if ratio else None) if g.anchor else own
        verdict = "not measured" if value is None else g.judge(value)
        count[verdict] = count.get(verdict, 0) + 1
        sign, mark = ("≤" if g.less else "≥"), ("×" if g.anchor else g.unit)
        bound = lambda b: "–" if b is None else f"{sign} {b:g} {mark}".rstrip()
        rows.append([g.row, f"{g.what} (`{g.ours[0]}`)", fmt(own, g.unit), f"{g.anchor[0]} {fmt(res.median(*g.anchor), g.unit)}" if g.anchor else "–",
                     f"{ratio[0]:.2f} ({ratio[1]:.2f}–{ratio[2]:.2f})" if ratio else "–", bound(g.first), bound(g.aim), verdict])
    said = ", ".join(f"{n} {what}" for what, n in sorted(count.items()) if what not in ("–", "not measured"))
    return f"### Goals\n\n{said or 'Nothing was measured'}. Ratios are to the anchor in the same rounds: median (least–greatest).\n\n" + table(["row", "measure", "ours", "anchor", "ratio", "first", "aim", "reached"], rows)


def peers(res):
    rows = []
    for what, work, key, unit in PEERS:
        own = res.median("svc-tcp", work, key)
        others = {n: res.median(n, work, key) for n in ENCRYPTED}
        others = {n: v for n, v in others.items() if v}
        if own is None or not others:
            continue
        best = min(others, key=others.get)
        ratio = res.ratio(("svc-tcp", work, key), (best, work, key))[0]
        rows.append([what, fmt(own, unit), f"{best} {fmt(others[best], unit)}", f"{ratio:.2f}", "ahead" if ratio < 1 else "behind"])
    return rows and "### Encrypted peers\n\nOurs is `svc-tcp`, which carries bytes as they do; the peer is the best of all that were here.\n\n" + table(["measure", "ours", "best peer", "ratio", ""], rows)


def section(res, title, columns):
    """columns: (heading, workload, key). A contender without any of them has no row."""
    rows = []
    for name in res.contenders():
        # Without a proxy there is no CPU usage to attribute.
        v = [None if name == "direct" and key.startswith("cpu") else res.median(name, work, key) for _, work, key in columns]
        if any(x is not None for x in v):
            rows.append([name, *map(fmt, v)])
    return rows and f"### {title}\n\n" + table(["contender", *[h for h, _, _ in columns]], rows)


def tables(res):
    bulk = [(f"{way} ×{n}", f"{way}{n}") for way in ("down", "up") for n in (1, 8)]
    yield section(res, "Small requests, 64 keep-alive connections", [("req/s", "rps", "rate"), ("CPU s/100k", "rps", "cpu_per_100k"), ("TLS req/s", "rps_tls", "rate"),
                  ("TLS CPU", "rps_tls", "cpu_per_100k"), ("HTTP/2 req/s", "rps_h2", "rate"), ("HTTP/2 CPU", "rps_h2", "cpu_per_100k")])
    yield section(res, "A new connection for each request, 16 at once", [("conn/s", "conn", "rate"), ("CPU s/100k", "conn", "cpu_per_100k"),
                  ("TLS conn/s", "conn_tls", "rate"), ("TLS CPU", "conn_tls", "cpu_per_100k")])
    yield section(res, "Latency at 1,000 requests/s (ms)", [("p50", "lat", "p50"), ("p99", "lat", "p99"), ("CPU s/100k", "lat", "cpu_per_100k"),
                  ("TLS p50", "lat_tls", "p50"), ("TLS p99", "lat_tls", "p99"), ("TLS CPU", "lat_tls", "cpu_per_100k"),
                  ("HTTP/2 p50", "lat_h2", "p50"), ("HTTP/2 p99", "lat_h2", "p99"), ("HTTP/2 CPU", "lat_h2", "cpu_per_100k")])
    for suffix, title in (("", "Bulk"), ("_tls", "Bulk, TLS at the edge"), ("_h2", "Bulk, HTTP/2 at the edge")):
        yield section(res, f"{title}, MiB/s and CPU seconds for a GiB", [(h, w + suffix, "mib_s") for h, w in bulk] + [(f"CPU {h}", w + suffix, "cpu_per_gib") for h, w in bulk])
    yield section(res, "WebSocket messages of 100 bytes, there and back on 64 sockets", [("/s", "ws", "rate"), ("CPU s/100k", "ws", "cpu_per_100k"), ("p99 ms", "ws", "p99"),
                  ("TLS /s", "ws_tls", "rate"), ("TLS CPU", "ws_tls", "cpu_per_100k"), ("TLS p99 ms", "ws_tls", "p99")])
    yield section(res, "Echoes of 10,000 datagrams/s", [("received/s", "udp", "rate"), ("CPU s/100k", "udp", "cpu_per_100k"), ("p50 ms", "udp", "p50"), ("p99 ms", "udp", "p99")])
    yield section(res, "A token on every request, more CPU in per cent", [("HS256", "token", "hs256_percent"), ("ES256", "token", "es256_percent")])
    yield section(res, "Memory (MiB; KiB for each of 1,000 idle connections, both ends)", [("server RSS", "idle", "server_rss"), ("anonymous", "idle", "server_anon"), ("file", "idle", "server_file"),
                  ("agent RSS", "idle", "agent_rss"), ("anonymous", "idle", "agent_anon"), ("file", "idle", "agent_file"), ("KiB/conn", "idle", "pss_kib_per_conn"),
                  ("server after load", "mem", "server_rss"), ("agent after load", "mem", "agent_rss")])
    for n in (500, 1000):
        w = f"many{n}"
        yield section(res, f"{n} tunnels (KiB of PSS for each)", [("server", w, "server_pss_kib_per_tunnel"), ("agent", w, "agent_pss_kib_per_tunnel"), ("all ready s", w, "ready_s"), ("back after 2 s s", w, "back_s")])
    yield section(res, "First answer after the server was away for 2 s", [("s", "reconnect", "seconds")])
    yield section(res, "Fan-out: 1,000 watchers over TLS, 20 events/s", [("deliveries", "sse", "n"), ("expected", "sse", "expected"), ("CPU s/100k", "sse", "cpu_per_100k"), ("p50 ms", "sse", "p50"), ("p99 ms", "sse", "p99"), ("KiB/watcher", "sse", "pss_kib_per_watcher")])
    rows = [[n, fmt(r["per_request"]), r["which_request"], fmt(r["per_mib"]), r["which_mib"]] for n in res.contenders() if (r := res.last(n, "syscalls"))]
    yield rows and "### System calls, both ends (counts under strace, not times)\n\n" + table(["contender", "for a request", "which", "for a MiB down", "which"], rows)


def distance(res):
    cells = sorted({tuple(map(int, w.removeprefix("rtt").split("-loss"))) for _, w in res.runs if w.startswith("rtt")})
    if not cells:
        return ""
    net, parts = res.last("network", "distance"), []
    how = f"Made by {net.get('made_by', '?')}, which carries {fmt(net.get('mib_s'))} MiB/s of one stream without delay and loss"
    how += f" ({fmt(net['packets_s'])} packets/s, {net['cores']:.0%} of a core)" if "packets_s" in net else ""
    heads = ["contender", *[f"{rtt} ms, {loss / 10:g} %" for rtt, loss in cells]]
    for key, title in (("rate", "requests/s on 16 connections"), ("p99", "p99 of them, ms"), ("conn_rate", "requests/s, a new connection for each, 16 at once"), ("mib_s", "one download, MiB/s")):
        rows = [[n, *[fmt(res.median(n, f"rtt{rtt}-loss{loss}", key)) for rtt, loss in cells]] for n in res.contenders() if any((n, f"rtt{a}-loss{b}") in res.runs for a, b in cells)]
        parts.append(f"{title[0].upper()}{title[1:]}:\n\n" + table(heads, rows))
    return f"### Distance and loss between server and agent\n\n{how}. Round trip, and loss of packets in each direction.\n\n" + "\n".join(parts)


def absent(res):
    """Work that could not be run, and failures: always named."""
    lines = [f"- {what}: {why}" for what, why in res.meta.get("missing", {}).items()]
    text = "### Not here\n\n" + ("\n".join(lines) or "Everything that the bench knows was here.") + "\n"
    notes = [f"- {c} {w}: {r['note']}" for (c, w), rounds in sorted(res.runs.items()) for r in list(rounds.values())[-1:] if "note" in r]
    errors = [f"- {c} {w}: {'; '.join(dict.fromkeys(e))[:300]}" for (c, w), e in sorted(res.errors.items())]
    if notes or errors:
        text += "\n### Notes and runs with errors\n\n" + "\n".join(notes + errors) + "\n"
    return text

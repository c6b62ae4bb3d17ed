"""Raw results of a run: one line of JSON for each measurement, and queries for the report."""
import json, statistics
from pathlib import Path

import workloads


def before(out):
    """The previous run, if there was one."""
    return Results(out, 1) if (Path(out) / "raw.jsonl").exists() else None


class Results:
    """The measurements of `raw.jsonl`. If a measure has quiet runs, the noisy ones are left out."""
    def __init__(self, out, max_foreign):
        self.meta, self.runs, self.errors, self.foreign = {}, {}, {}, []
        for line in (Path(out) / "raw.jsonl").read_text().splitlines():
            d = json.loads(line)
            if "meta" in d:
                self.meta = d["meta"]
                continue
            name, work, r = d["c"], d["w"], d["r"]
            if "error" in r:
                self.errors.setdefault((name, work), []).append(r["error"])
                continue
            if r.get("errors"):
                self.errors.setdefault((name, work), []).append(f"{r['errors']} errors")
            self.runs.setdefault((name, work), {})[d["round"]] = r
            self.foreign += [r["foreign"]] if "foreign" in r else []
        self.limit = max_foreign

    def rounds(self):
        """The number of the last round."""
        return max((max(rounds) for rounds in self.runs.values()), default=0)

    def counts(self):
        """The minimum and maximum number of rounds of a contender for one load."""
        n = [len(rounds) for (_, work), rounds in self.runs.items() if work in workloads.WORK]
        return (min(n), max(n)) if n else (0, 0)

    def contenders(self):
        return list(dict.fromkeys(name for name, _ in self.runs))

    def last(self, name, work):
        """The newest result as a whole, or {}."""
        rounds = self.runs.get((name, work), {})
        return rounds[max(rounds)] if rounds else {}

    def values(self, name, work, key):
        """{round: value}, only of quiet rounds if there are any."""
        rounds = {n: r for n, r in self.runs.get((name, work), {}).items() if isinstance(r.get(key), (int, float))}
        quiet = {n: r[key] for n, r in rounds.items() if r.get("foreign", 0) <= self.limit}
        return quiet or {n: r[key] for n, r in rounds.items()}

    def median(self, name, work, key):
        v = self.values(name, work, key)
        return statistics.median(v.values()) if v else None

    def ratio(self, ours, anchor):
        """(median, minimum, maximum) of the ratio of svc to the anchor in the same rounds, or None."""
        a, b = self.values(*ours), self.values(*anchor)
        both = [a[n] / b[n] for n in a.keys() & b.keys() if b[n]]
        if not both and a and any(b.values()):      # only different rounds were quiet
            both = [statistics.median(a.values()) / statistics.median(b.values())]
        return (statistics.median(both), min(both), max(both)) if both else None

    def spread(self, work, key):
        """(max − min) / median over the rounds, the median over contenders; None with one round."""
        s = []
        for name in self.contenders():
            v = list(self.values(name, work, key).values())
            if len(v) > 1 and statistics.median(v):
                s.append((max(v) - min(v)) / statistics.median(v))
        return statistics.median(s) if s else None

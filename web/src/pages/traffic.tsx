// The traffic of a project or a tunnel: graphs over a chosen range.

import { useEffect, useMemo, useState } from "preact/hooks";
import type { ComponentChildren, ComponentType } from "preact";
import { bytes, count, millis, rate } from "../format/text";
import { add, columns, percentile, RANGES, rangeOf, type Traffic } from "../live/traffic";
import { useTraffic } from "../live/use-traffic";
import { useFilter } from "../router/location";
import { Select } from "../ui/fields";
import { Button, Card, Empty, Failure, Skeleton } from "../ui/parts";
import type { Line } from "../ui/graph";

type GraphProps = { label: string; seconds: readonly number[]; lines: readonly Line[]; format: (value: number) => string };

export function TrafficGraphs({ project, tunnel }: { project: string; tunnel?: string }) {
  const [range, setRange] = useFilter("range", "1h");
  const traffic = useTraffic(project, range, tunnel === undefined ? "project" : "tunnel", tunnel);
  return (
    <Card title="Traffic" actions={<Select label="Range" isLabelSeen={false} value={rangeOf(range).value} options={[...RANGES]} onValue={setRange} />}>
      {traffic.data === undefined ? (
        traffic.error === undefined ? (
          <Skeleton rows={6} />
        ) : traffic.error.status === 404 ? (
          <Empty icon="overview" title="No time series">
            <p class="quiet">This platform does not keep time series yet. The request log has every visit.</p>
          </Empty>
        ) : (
          <Failure error={traffic.error} onRetry={traffic.reload} />
        )
      ) : (
        <Graphs traffic={traffic.data} />
      )}
    </Card>
  );
}

function Graphs({ traffic }: { traffic: Traffic }) {
  const Graph = useGraph();
  const view = useMemo(() => {
    const points = traffic.series.flatMap((series) => series.points);
    const grid = columns(traffic, points);
    const each = (value: (index: number) => number | null) => grid.seconds.map((_, index) => value(index));
    const of = (index: number) => grid.points[index];
    const quantile = (share: number) =>
      each((index) => {
        const point = of(index);
        return point === undefined ? null : (percentile(point.durations, traffic.bucketBounds, share) ?? null);
      });
    return {
      sum: add(points),
      seconds: grid.seconds,
      requests: each((index) => (of(index)?.requests ?? 0) / grid.stepSeconds),
      errors: each((index) => (of(index)?.errors ?? 0) / grid.stepSeconds),
      up: each((index) => (of(index)?.upstreamBytes ?? 0) / grid.stepSeconds),
      down: each((index) => (of(index)?.downstreamBytes ?? 0) / grid.stepSeconds),
      p50: quantile(0.5),
      p99: quantile(0.99),
    };
  }, [traffic]);
  if (view.sum.requests === 0) {
    return (
      <Empty icon="overview" title="No traffic in this range">
        <p class="quiet">Open an address of the project, and its requests appear here.</p>
      </Empty>
    );
  }
  if (Graph === "gone") {
    return (
      <div class="note is-warn" role="alert">
        <span>The graphs could not be loaded. The platform may have been updated since this page was opened.</span>
        <span>
          <Button onClick={() => location.reload()}>Load the page again</Button>
        </span>
      </div>
    );
  }
  if (Graph === undefined) return <Skeleton rows={8} />;
  const visits = `${count(view.sum.requests)} requests, ${count(view.sum.errors)} errors, ${count(view.sum.denied)} refused`;
  const p50 = percentile(view.sum.durations, traffic.bucketBounds, 0.5);
  const p99 = percentile(view.sum.durations, traffic.bucketBounds, 0.99);
  return (
    <div class="grid">
      <Plot title="Requests per second" note={visits} keys={[["", "requests"], ["bad", "errors"]]}>
        <Graph label={`Requests per second. ${visits}.`} seconds={view.seconds} format={rate} lines={[{ name: "requests", colour: "--accent", values: view.requests }, { name: "errors", colour: "--bad", values: view.errors }]} />
      </Plot>
      <Plot title="Duration" note={`p50 ${millis(p50)}, p99 ${millis(p99)}`} keys={[["", "p50"], ["warn", "p99"]]}>
        <Graph label={`Duration. p50 ${millis(p50)}, p99 ${millis(p99)}.`} seconds={view.seconds} format={millis} lines={[{ name: "p50", colour: "--accent", values: view.p50 }, { name: "p99", colour: "--warn", values: view.p99 }]} />
      </Plot>
      <Plot title="Bytes per second" note={`${bytes(view.sum.downstreamBytes)} to visitors, ${bytes(view.sum.upstreamBytes)} from them`} keys={[["", "to visitors"], ["good", "from visitors"]]}>
        <Graph label="Bytes per second" seconds={view.seconds} format={bytes} lines={[{ name: "to visitors", colour: "--accent", values: view.down }, { name: "from visitors", colour: "--good", values: view.up }]} />
      </Plot>
    </div>
  );
}

function Plot({ title, note, keys, children }: { title: string; note: string; keys: readonly (readonly [string, string])[]; children: ComponentChildren }) {
  return (
    <div>
      <div class="row">
        <h3>{title}</h3>
        <span class="small quiet" aria-hidden="true">
          {keys.map(([tone, text]) => (
            <span key={text} class={tone === "" ? "key" : `key is-${tone}`}>
              {text}
            </span>
          ))}
        </span>
      </div>
      <p class="small quiet number">{note}</p>
      {children}
    </div>
  );
}

let loaded: ComponentType<GraphProps> | undefined;

/** The graphs' chunk, once it is loaded. After a failure the next view tries again. */
function useGraph(): ComponentType<GraphProps> | "gone" | undefined {
  const [state, setState] = useState<"" | "gone" | "loaded">("");
  useEffect(() => {
    if (loaded !== undefined) return;
    void import("../ui/graph")
      .then((module) => {
        loaded = module.default;
        setState("loaded");
      })
      .catch(() => setState("gone"));
  }, []);
  return state === "gone" ? state : loaded;
}

// The time series of a project: counts, and histograms of durations that add up.

export interface TrafficPoint {
  readonly at: string;
  readonly requests: number;
  readonly errors: number;
  /** Visits that the edge refused. */
  readonly denied: number;
  readonly upstreamBytes: number;
  readonly downstreamBytes: number;
  /** One more than the bounds: the last entry has no bound. */
  readonly durations: readonly number[];
}

export interface TrafficSeries {
  /** Name of the tunnel; absent for the whole project, or for all tunnels without a series of their own. */
  readonly tunnel?: string;
  readonly points: readonly TrafficPoint[];
}

export interface Traffic {
  readonly resolution: "minute" | "hour";
  readonly start: string;
  readonly end: string;
  /** Upper bounds in milliseconds, inclusive. */
  readonly bucketBounds: readonly number[];
  readonly series: readonly TrafficSeries[];
}

export interface Sum {
  readonly requests: number;
  readonly errors: number;
  readonly denied: number;
  readonly upstreamBytes: number;
  readonly downstreamBytes: number;
  readonly durations: readonly number[];
}

export interface Range {
  readonly value: string;
  readonly text: string;
  readonly minutes: number;
  /** Name of the range in the API, if it has one. The API takes the start of other ranges. */
  readonly timeline?: string;
}

const HOUR: Range = { value: "1h", text: "1 hour", minutes: 60, timeline: "1h" };

export const RANGES: readonly Range[] = [
  { value: "15m", text: "15 minutes", minutes: 15 },
  HOUR,
  { value: "6h", text: "6 hours", minutes: 360 },
  { value: "24h", text: "24 hours", minutes: 1_440, timeline: "24h" },
  { value: "7d", text: "7 days", minutes: 10_080, timeline: "1w" },
  { value: "30d", text: "30 days", minutes: 43_200, timeline: "30d" },
];

export function rangeOf(value: string): Range {
  return RANGES.find((one) => one.value === value) ?? HOUR;
}

/** The query of a range that ends now. A computed start is on a minute. */
export function trafficQuery(range: Range, now: number): Readonly<Record<string, string>> {
  if (range.timeline !== undefined) return { timeline: range.timeline };
  const start = Math.ceil((now - range.minutes * 60_000) / 60_000) * 60_000;
  return { resolution: "minute", start: new Date(start).toISOString() };
}

export function add(points: readonly TrafficPoint[]): Sum {
  let requests = 0;
  let errors = 0;
  let denied = 0;
  let upstreamBytes = 0;
  let downstreamBytes = 0;
  const durations: number[] = [];
  for (const point of points) {
    requests += point.requests;
    errors += point.errors;
    denied += point.denied;
    upstreamBytes += point.upstreamBytes;
    downstreamBytes += point.downstreamBytes;
    for (const [index, value] of point.durations.entries()) durations[index] = (durations[index] ?? 0) + value;
  }
  return { requests, errors, denied, upstreamBytes, downstreamBytes, durations };
}

/**
 * The duration in milliseconds that the share `share` of the requests does not exceed, interpolated in its
 * bucket. Undefined without requests. In the last bucket, which is open, it is its lower bound.
 */
export function percentile(durations: readonly number[], bounds: readonly number[], share: number): number | undefined {
  const total = durations.reduce((sum, value) => sum + value, 0);
  if (total === 0) return undefined;
  const rank = share * total;
  let before = 0;
  for (const [index, value] of durations.entries()) {
    if (value > 0 && before + value >= rank) {
      const low = index === 0 ? 0 : (bounds[index - 1] ?? 0);
      const high = bounds[index];
      if (high === undefined) return low;
      return low + (high - low) * Math.max(0, (rank - before) / value);
    }
    before += value;
  }
  return bounds.at(-1);
}

export interface Columns {
  readonly seconds: readonly number[];
  readonly points: readonly (TrafficPoint | undefined)[];
  readonly stepSeconds: number;
}

/** The points on a complete grid: times without traffic are missing in the response. */
export function columns(traffic: Traffic, points: readonly TrafficPoint[]): Columns {
  const stepSeconds = traffic.resolution === "minute" ? 60 : 3600;
  const first = Math.floor(Date.parse(traffic.start) / 1000 / stepSeconds) * stepSeconds;
  const end = Date.parse(traffic.end) / 1000;
  const byTime = new Map(points.map((point) => [Math.floor(Date.parse(point.at) / 1000 / stepSeconds) * stepSeconds, point]));
  const seconds: number[] = [];
  for (let at = first; at < end && seconds.length < MAX_COLUMNS; at += stepSeconds) seconds.push(at);
  return { seconds, points: seconds.map((at) => byTime.get(at)), stepSeconds };
}

/** Requests in each interval, by the name of the tunnel. A row calls it only when it is shown. */
export function requestsOf(traffic: Traffic): (tunnel: string | undefined) => readonly number[] {
  const series = new Map(traffic.series.flatMap((one) => (one.tunnel === undefined ? [] : [[one.tunnel, one.points] as const])));
  return (tunnel) => columns(traffic, (tunnel === undefined ? undefined : series.get(tunnel)) ?? []).points.map((point) => point?.requests ?? 0);
}

/** The API never returns more than a day of minutes or 31 days of hours. */
const MAX_COLUMNS = 2_000;

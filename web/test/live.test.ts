import assert from "node:assert/strict";
import { test } from "node:test";
import { ApiError, unreachable } from "../src/api/problem";
import { Batch, gapMs } from "../src/live/batch";
import { LiveObjects, MAX_EVENTS } from "../src/live/objects";
import { Reconnect } from "../src/live/reconnect";
import { sseReader } from "../src/live/sse";
import { hasSameName, successorOf } from "../src/live/successor";
import { add, columns, percentile, rangeOf, requestsOf, type Traffic, trafficQuery } from "../src/live/traffic";
import { visible } from "../src/ui/virtual";

test("events arrive whole wherever the stream is cut", () => {
  const text = ": keep-alive\n\ndata: {\"a\":1}\n\ndata: x\r\ndata: y\r\n\r\n: closed: the token expired\n";
  for (let cut = 0; cut <= text.length; cut += 1) {
    const reader = sseReader();
    assert.deepEqual([...reader.push(text.slice(0, cut)), ...reader.push(text.slice(cut))], ['{"a":1}', "x\ny"], `cut at ${cut}`);
    assert.equal(reader.closed, "the token expired");
  }
});

const event = (type: string, object: unknown, id = "evt") => JSON.stringify({ id, type, created_at: "2026-01-01T00:00:00Z", object });

test("a snapshot replaces the objects, and changes follow it", () => {
  const live = new LiveObjects();
  live.apply([event("tunnel.created", { id: "tun_0", name: "old" })]);
  live.apply([event("state.initial", { tunnels: [{ id: "tun_1", name: "web" }], clients: [{ id: "cli_1" }] })]);
  assert.deepEqual([...live.tunnels.keys()], ["tun_1"]);
  assert.equal(live.hasSnapshot, true);
  live.apply([event("tunnel.updated", { id: "tun_1", name: "api" }), event("client.deleted", { id: "cli_1" })]);
  assert.equal(live.tunnels.get("tun_1")?.name, "api");
  assert.equal(live.clients.size, 0);
  assert.deepEqual(live.events.map((one) => one.type), ["client.deleted", "tunnel.updated", "tunnel.created"]);
});

test("broken and unknown events change nothing", () => {
  const live = new LiveObjects();
  live.apply(["", "null", "[]", "{", '{"type":7}', event("tunnel.created", { name: "without id" }), event("tunnel.created", null), event("state.initial", { tunnels: "no" })]);
  assert.equal(live.tunnels.size, 0);
  assert.equal(live.events.length, 0);
});

test("the list of events has a limit", () => {
  const live = new LiveObjects();
  for (let batch = 0; batch < 10; batch += 1) live.apply(Array.from({ length: 100 }, (_, index) => event("tunnel.updated", { id: "tun_1" }, `evt_${batch}_${index}`)));
  assert.equal(live.events.length, MAX_EVENTS);
  assert.equal(live.events[0]?.id, "evt_9_99");
});

test("percentiles come from the sum of histograms", () => {
  const bounds = [10, 20, 50];
  assert.equal(percentile([0, 0, 0, 0], bounds, 0.5), undefined);
  assert.equal(percentile([10, 0, 0, 0], bounds, 0.5), 5);
  assert.equal(percentile([0, 10, 0, 0], bounds, 1), 20);
  assert.equal(percentile([1, 0, 0, 9], bounds, 0.99), 50);
  const point = { at: "", requests: 2, errors: 1, denied: 1, upstreamBytes: 3, downstreamBytes: 4, durations: [1, 1, 0, 0] };
  assert.deepEqual(add([point, point]), { requests: 4, errors: 2, denied: 2, upstreamBytes: 6, downstreamBytes: 8, durations: [2, 2, 0, 0] });
});

test("times without traffic are columns without a point", () => {
  const point = { at: "2026-01-01T00:02:00Z", requests: 1, errors: 0, denied: 0, upstreamBytes: 0, downstreamBytes: 0, durations: [] };
  const traffic: Traffic = { resolution: "minute", start: "2026-01-01T00:00:00Z", end: "2026-01-01T00:04:00Z", bucketBounds: [], series: [{ points: [point] }] };
  const grid = columns(traffic, [point]);
  assert.equal(grid.seconds.length, 4);
  assert.deepEqual(grid.points.map((one) => one?.requests ?? 0), [0, 0, 1, 0]);
});

test("each tunnel has the requests of its own series", () => {
  const point = { at: "2026-01-01T00:01:00Z", requests: 3, errors: 0, denied: 0, upstreamBytes: 0, downstreamBytes: 0, durations: [] };
  const series = [{ tunnel: "shop", points: [point] }, { points: [{ ...point, requests: 9 }] }];
  const requests = requestsOf({ resolution: "minute", start: "2026-01-01T00:00:00Z", end: "2026-01-01T00:03:00Z", bucketBounds: [], series });
  assert.deepEqual(requests("shop"), [0, 3, 0]);
  assert.deepEqual(requests("other"), [0, 0, 0]);
  assert.deepEqual(requests(undefined), [0, 0, 0], "the rest of the project belongs to no tunnel");
});

test("a range has its name in the API, or a start", () => {
  const now = Date.parse("2026-01-02T00:00:30Z");
  assert.deepEqual(trafficQuery(rangeOf("24h"), now), { timeline: "24h" });
  assert.deepEqual(trafficQuery(rangeOf("15m"), now), { resolution: "minute", start: "2026-01-01T23:46:00.000Z" });
  assert.equal(rangeOf("nonsense").value, "1h");
});

test("only the visible rows of ten thousand exist", () => {
  const [first, end] = visible(48 * 5000, 480, 48, 10_000);
  assert.ok(first > 4900 && first <= 5000 && end >= 5010 && end - first < 40);
  assert.deepEqual(visible(0, 480, 48, 0), [0, 0]);
  assert.deepEqual(visible(1e9, 480, 48, 10), [9, 10]);
});

test("a burst of 5,000 events is a few updates, and none of them is lost", () => {
  let now = 0;
  const timers: { at: number; run: () => void }[] = [];
  const after = (ms: number, run: () => void) => void timers.push({ at: now + ms, run });
  const advance = (to: number) => {
    for (;;) {
      timers.sort((one, other) => one.at - other.at);
      const next = timers[0];
      if (next === undefined || next.at > to) break;
      timers.shift();
      now = next.at;
      next.run();
    }
    now = to;
  };
  const live = new LiveObjects();
  live.apply([event("state.initial", { tunnels: Array.from({ length: 10_000 }, (_, index) => ({ id: `tun_${index}` })) })]);
  let updates = 0;
  let events = 0;
  const show = (texts: readonly string[]) => {
    updates += 1;
    events += texts.length;
    live.apply(texts);
  };
  const batch = new Batch(show, () => gapMs(live.tunnels.size), { now: () => now, after, frame: (run) => after(16, run) });
  // Ten seconds with 500 events each second, in pieces of one event.
  for (let index = 0; index < 5_000; index += 1) {
    advance(index * 2);
    batch.add([event("tunnel.updated", { id: `tun_${index}`, name: `new-${index}` })]);
  }
  advance(20_000);
  assert.equal(events, 5_000);
  assert.ok(updates <= 10_000 / 600 + 2, `${updates} updates`);
  assert.equal(live.tunnels.get("tun_4999")?.name, "new-4999");
  assert.equal(live.events.length, MAX_EVENTS);
});

test("an update does not wait for a frame on a hidden page", () => {
  const waits: number[] = [];
  let updates = 0;
  const runs: (() => void)[] = [];
  const after = (ms: number, run: () => void) => void (waits.push(ms), runs.push(run));
  const batch = new Batch(() => (updates += 1), () => 100, { now: () => 0, after, frame: () => {} });
  batch.add(["{}"]);
  assert.deepEqual(waits, [1_000]);
  for (const run of runs) run();
  assert.equal(updates, 1);
});

test("a tunnel that its agent opened again continues the lost one", () => {
  const lost = { id: "tun_1", name: "shop", hostname: "shop.example.com" };
  const tunnels = (...all: { id: string; name?: string; hostname?: string }[]) => new Map(all.map((one) => [one.id, one]));
  assert.equal(successorOf(lost, tunnels({ id: "tun_2", name: "other", hostname: "other.example.com" })), undefined);
  assert.equal(successorOf(lost, tunnels({ id: "tun_3", name: "shop", hostname: "shop.example.com" }))?.id, "tun_3");
  // A private tunnel has only a name.
  assert.equal(successorOf({ id: "tun_1", name: "db" }, tunnels({ id: "tun_4", name: "db" }))?.id, "tun_4");
  assert.equal(successorOf({ id: "tun_1" }, tunnels({ id: "tun_5" })), undefined, "without a name there is no successor");
});

test("TCP tunnels differ by their names and ports, because all of them show the host name of the engine", () => {
  const tcp = (port: number, name?: string) => ({ protocol: "tcp" as const, publish: true, hostname: "t.example.com", port, ...(name !== undefined && { name }) });
  assert.equal(hasSameName(tcp(4000, "db"), tcp(4001, "mail")), false);
  assert.equal(hasSameName(tcp(4000, "db"), tcp(4001, "db")), true);
  assert.equal(hasSameName(tcp(4000, "db"), tcp(4000)), false);
  assert.equal(hasSameName(tcp(4000), tcp(4001)), false);
  assert.equal(hasSameName(tcp(4000), tcp(4000)), true);
  const web = { protocol: "http" as const, publish: true, hostname: "t.example.com", port: 443 };
  assert.equal(hasSameName(tcp(4000), web), false);
  assert.equal(hasSameName({ publish: false, port: 4000 }, { publish: false, port: 4000 }), false, "a private one has only a name");
});

test("a long line in many pieces is one event, and a line without an end has a limit", () => {
  const reader = sseReader();
  const piece = "x".repeat(64 * 1024);
  const done: string[] = reader.push("data: ");
  for (let count = 0; count < 100; count += 1) done.push(...reader.push(piece));
  assert.equal(done.length, 0);
  done.push(...reader.push("\r\n\r\n"));
  assert.deepEqual(done.map((one) => one.length), [100 * piece.length]);
  assert.throws(() => {
    for (let count = 0; count < 2_000; count += 1) reader.push(piece);
  });
});

/** The waits of a stream on a clock that the test moves, with the times of its connections. */
function reconnects() {
  let now = 0;
  const timers = new Set<{ at: number; run: () => void }>();
  const after = (ms: number, run: () => void) => {
    const timer = { at: now + ms, run };
    timers.add(timer);
    return () => void timers.delete(timer);
  };
  const connections: number[] = [];
  const waits = new Reconnect(() => connections.push(now), { after, random: () => 0.5 });
  const advance = (to: number) => {
    now = to;
    for (const timer of [...timers]) {
      if (timer.at > now || !timers.delete(timer)) continue;
      timer.run();
    }
  };
  return { waits, connections, advance };
}

const refusal = (code: string) => new ApiError({ status: 403, code, title: "", detail: "" });

test("a stream that is refused waits, and connects when its project is active again", () => {
  const { waits, connections, advance } = reconnects();
  waits.setActive(false);
  waits.afterFailure(refusal("project_suspended"));
  advance(15_000);
  waits.setActive(false);
  assert.deepEqual(connections, [], "the project is still suspended");
  waits.setActive(true);
  assert.deepEqual(connections, [15_000]);
  advance(60_000);
  waits.setActive(true);
  assert.deepEqual(connections, [15_000], "one connection for one change");
});

test("an engine that receives the end of a suspension late is tried again after short waits", () => {
  const { waits, connections, advance } = reconnects();
  for (let refused = 0; refused < 20; refused += 1) waits.afterFailure(refusal("project_suspended"));
  waits.setActive(false);
  waits.setActive(true);
  for (const at of [1_000, 3_000]) {
    waits.afterFailure(refusal("project_suspended"));
    advance(at);
  }
  assert.deepEqual(connections, [0, 1_000, 3_000]);
});

test("another refusal, and a project that was active before, keep the wait", () => {
  const { waits, connections, advance } = reconnects();
  waits.setActive(true);
  waits.afterFailure(refusal("insufficient_scope"));
  waits.setActive(true);
  advance(29_999);
  assert.deepEqual(connections, []);
  advance(30_000);
  assert.deepEqual(connections, [30_000]);
});

test("a status starts no connection while the stream does not wait", () => {
  const { waits, connections, advance } = reconnects();
  waits.afterFailure(unreachable());
  waits.cancel();
  waits.setActive(false);
  waits.setActive(true);
  advance(60_000);
  assert.deepEqual(connections, []);
});

test("a stream that ends connects soon, and waits longer with each end until it is live", () => {
  const { waits, connections, advance } = reconnects();
  for (const at of [250, 2_250]) {
    waits.afterEnd();
    advance(at);
  }
  waits.reset();
  waits.afterEnd();
  advance(2_500);
  assert.deepEqual(connections, [250, 2_250, 2_500]);
});

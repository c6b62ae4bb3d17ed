import assert from "node:assert/strict";
import { test } from "node:test";
import { LiveObjects } from "../src/live/objects";
import { first, Order } from "../src/live/order";
import { Slices } from "../src/live/slices";
import { snapshotItems } from "../src/live/snapshot";

const event = (type: string, object: unknown) => JSON.stringify({ id: "evt", type, created_at: "2026-01-01T00:00:00Z", object });
const tunnels = (count: number) => Array.from({ length: count }, (_, index) => ({ id: `tun_${index}`, name: `n${(index * 7919) % count}`, labels: { text: 'a "quoted" \\ [text], {more}' } }));

test("an order follows changes like a new sort", () => {
  const objects = new Map<string, { name: string }>();
  const order = new Order<{ name: string }>((one) => one.name);
  let seed = 7;
  const random = (below: number) => (seed = (seed * 1_103_515_245 + 12_345) % 2_147_483_648) % below;
  for (let round = 0; round < 200; round += 1) {
    const changed = new Set<string>();
    for (let change = 0; change < random(6); change += 1) {
      const id = `id_${random(40)}`;
      changed.add(id);
      if (random(3) === 0) objects.delete(id);
      else objects.set(id, { name: `name ${random(20)}` });
    }
    order.update(changed, objects);
    const fresh = new Order<{ name: string }>((one) => one.name);
    fresh.reset(objects);
    assert.deepEqual(order.values, fresh.values, `round ${round}`);
  }
});

test("an order is another list only after a change, and may be descending", () => {
  const order = new Order<string>((_, id) => id, -1);
  order.reset(new Map([["a", "A"], ["c", "C"]]));
  const before = order.values;
  order.update(new Set(), new Map());
  assert.equal(order.values, before);
  order.update(new Set(["b"]), new Map([["b", "B"]]));
  assert.deepEqual(order.values, ["C", "B", "A"]);
});

test("the first values are those of a sort, and equal ones keep their order", () => {
  const values = Array.from({ length: 500 }, (_, index) => ({ index, weight: (index * 37) % 11 }));
  const compare = (one: { weight: number }, other: { weight: number }) => other.weight - one.weight;
  assert.deepEqual(first(values, 10, compare), [...values].sort(compare).slice(0, 10));
  assert.deepEqual(first(values.slice(0, 3), 10, compare), values.slice(0, 3).sort(compare));
});

test("the objects of a snapshot are read one by one", () => {
  const object = { snapshot_at: "x", clients: [{ id: "cli_1" }], more: [[1, "]"], { a: "}" }], tunnels: tunnels(3) };
  const items = [...(snapshotItems(event("state.initial", object)) ?? [])];
  assert.deepEqual(items.map((item) => item.kind), ["client", "tunnel", "tunnel", "tunnel"]);
  assert.deepEqual(items.slice(1).map((item) => JSON.parse(item.text)), object.tunnels);
  const spaced = JSON.stringify(JSON.parse(event("state.initial", object)), null, 2);
  assert.equal([...(snapshotItems(spaced) ?? [])].length, 4);
});

test("only a snapshot is read as one", () => {
  // The label of a tunnel that looks like the type of a snapshot.
  const labelled = event("tunnel.created", { id: "tun_1", labels: { type: "state.initial" }, tunnels: [{ id: "x" }] });
  assert.equal(snapshotItems(labelled), undefined);
  for (const text of ["", "null", "[]", '{"type":7}', '"state.initial"']) assert.equal(snapshotItems(text), undefined, text);
  const whole = event("state.initial", { tunnels: tunnels(2) });
  assert.throws(() => [...(snapshotItems(whole.slice(0, -20)) ?? [])], SyntaxError);
});

test("a large snapshot takes the place of the objects at once, and a broken one changes nothing", () => {
  const live = new LiveObjects();
  live.apply([event("tunnel.created", { id: "tun_old", name: "old" })]);
  const snapshot = event("state.initial", { tunnels: tunnels(2_000), clients: [{ id: "cli_1" }] });
  live.apply([snapshot.slice(0, -30)]);
  assert.deepEqual([...live.tunnels.keys()], ["tun_old"]);
  let steps = 0;
  for (const work = live.steps([snapshot]); work.next().done !== true; steps += 1) {
    assert.ok(live.tunnels.has("tun_old") || live.tunnels.size === 2_000, "a part of the snapshot is shown");
  }
  assert.ok(steps >= 10, `${steps} steps`);
  assert.equal(live.clients.size, 1);
  const names = live.sortedTunnels.map((one) => one.name ?? "");
  assert.deepEqual(names, [...names].sort());
  live.apply([event("tunnel.updated", { id: "tun_0", name: "zzz" }), event("tunnel.deleted", { id: "tun_1" })]);
  assert.equal(live.sortedTunnels.length, 1_999);
  assert.equal(live.sortedTunnels.at(-1)?.name, "zzz");
});

test("work is done in slices, in its order, and the page gets the time between them", () => {
  let now = 0;
  const later: (() => void)[] = [];
  const done: string[] = [];
  function* start(name: string): Generator<void> {
    for (let step = 0; step < 5; step += 1) {
      now += 3;
      yield;
    }
    done.push(name);
  }
  let shown = 0;
  const slices = new Slices<string>(start, () => (shown += 1), { now: () => now, later: (run) => void later.push(run) });
  slices.add("one");
  slices.add("two");
  assert.deepEqual(done, []);
  let longest = 0;
  for (let run = later.shift(); run !== undefined; run = later.shift()) {
    const before = now;
    run();
    longest = Math.max(longest, now - before);
  }
  assert.deepEqual(done, ["one", "two"]);
  assert.equal(shown, 2);
  assert.ok(longest < 12, `a slice took ${longest} ms`);
  now = 1_000;
  slices.add("three");
  for (let run = later.shift(); run !== undefined; run = later.shift()) run();
  assert.deepEqual(done, ["one", "two", "three"]);
});

import assert from "node:assert/strict";
import { test } from "node:test";
import { SerialWork } from "../src/api/serial";

test("a request during a run is followed by another run, which it awaits", async () => {
  let state = "before";
  const seen: string[] = [];
  const reads: (() => void)[] = [];
  const work = new SerialWork(async () => {
    const read = state;
    await new Promise<void>((resolve) => reads.push(resolve));
    seen.push(read);
  });
  const first = work.request();
  state = "after";
  const second = work.request();
  // A third request joins the run that has not started.
  assert.equal(work.request(), second);
  assert.equal(reads.length, 1);
  reads[0]?.();
  await first;
  while (reads.length < 2) await Promise.resolve();
  assert.deepEqual(seen, ["before"]);
  reads[1]?.();
  await second;
  assert.deepEqual(seen, ["before", "after"]);

  const third = work.request();
  reads[2]?.();
  await third;
  assert.equal(seen.length, 3);
});

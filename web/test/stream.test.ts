import assert from "node:assert/strict";
import { test } from "node:test";
import { type LiveView, ProjectStream } from "../src/live/project";

const snapshot = JSON.stringify({ id: "evt_1", type: "state.initial", created_at: "2026-01-01T00:00:00Z", object: { tunnels: [{ id: "tun_1", name: "web" }], clients: [] } });

test("events that are read after the end of their stream do not make the view live", async (context) => {
  const frames: (() => void)[] = [];
  const answers = [
    new Response(`data: ${snapshot}\n\n`, { headers: { "Content-Type": "text/event-stream" } }),
    new Response(JSON.stringify({ code: "insufficient_scope", title: "No", detail: "No" }), { status: 403 }),
  ];
  const globals = {
    document: { visibilityState: "visible", addEventListener: () => {}, removeEventListener: () => {} },
    requestAnimationFrame: (run: () => void) => frames.push(run),
    fetch: async () => answers.shift() ?? Response.error(),
  };
  const before = Object.fromEntries(Object.keys(globals).map((name) => [name, Reflect.get(globalThis, name)]));
  Object.assign(globalThis, globals);
  context.after(() => Object.assign(globalThis, before));
  context.mock.timers.enable({ apis: ["setTimeout"] });

  const stream = new ProjectStream("prj_1", () => {});
  const until = (isDone: (view: LiveView) => boolean) =>
    new Promise<void>((resolve) => {
      const stop = stream.view.follow(() => {
        if (!isDone(stream.view.get())) return;
        stop();
        resolve();
      });
    });
  const release = stream.hold();
  context.after(release);
  const waiting = until((view) => view.state === "waiting");
  // The stream ends with its snapshot still unread, and the next connection, after a quarter of a second, is refused.
  while (answers.length === 2 || frames.length === 0) await new Promise(setImmediate);
  await new Promise(setImmediate);
  while (answers.length > 0) {
    context.mock.timers.tick(50);
    await new Promise(setImmediate);
  }
  await waiting;
  for (const run of frames) run();
  const view = stream.view.get();
  assert.deepEqual([...view.objects.tunnels.keys()], ["tun_1"], "the snapshot is shown");
  assert.equal(view.state, "waiting");
  assert.equal(view.error?.code, "insufficient_scope");
});

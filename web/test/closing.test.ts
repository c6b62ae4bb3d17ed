import assert from "node:assert/strict";
import { test } from "node:test";
import { ApiError } from "../src/api/problem";
import { closeEach, underSameName } from "../src/pages/project/closing";

const refusal = (status: number) => new ApiError({ status, code: "", title: "", detail: "" });

/** Closes these tunnels at an engine that refuses some, and returns the ids that it closed. */
async function closed(ids: readonly string[], refused: Readonly<Record<string, number>>): Promise<string[]> {
  const done: string[] = [];
  await closeEach(ids, async (id) => {
    const status = refused[id];
    if (status !== undefined) throw refusal(status);
    done.push(id);
  });
  return done;
}

test("a name is closed with all of its tunnels, and one TCP tunnel without the others", () => {
  const tcp = { protocol: "tcp" as const, publish: true, hostname: "t.example.com" };
  const shared = { publish: true, name: "web", hostname: "web.t.example.com" };
  const all = [{ id: "tun_1", ...shared }, { id: "tun_2", ...shared }, { id: "tun_3", ...tcp, port: 4000 }, { id: "tun_4", ...tcp, port: 4001 }];
  const tunnels = new Map(all.map((one) => [one.id, one]));
  const ids = (id: string) => underSameName(tunnels.get(id) ?? {}, tunnels).map((one) => one.id);
  assert.deepEqual(ids("tun_1"), ["tun_1", "tun_2"]);
  assert.deepEqual(ids("tun_3"), ["tun_3"]);
});

test("a tunnel that has ended is skipped, and nothing is reported as closed if all have", async () => {
  assert.deepEqual(await closed(["tun_1", "tun_2"], {}), ["tun_1", "tun_2"]);
  assert.deepEqual(await closed(["tun_1", "tun_2"], { tun_1: 404 }), ["tun_2"]);
  await assert.rejects(closed(["tun_1", "tun_2"], { tun_1: 404, tun_2: 404 }), { status: 404 });
  await assert.rejects(closed(["tun_1", "tun_2"], { tun_1: 403 }), { status: 403 });
});

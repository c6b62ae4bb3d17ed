import assert from "node:assert/strict";
import { test } from "node:test";
import { asCsv, asJson, type Entry, filterEntries, isFiltered, loadNewest, NO_FILTER, PLATFORM, targetOf } from "../src/pages/audit-search";

const names = new Map([["usr_1", "Ada"], ["prj_1", "shop"]]);

function entry(id: string, part: Partial<Entry> = {}): Entry {
  return { id, action: "member.changed", targetKind: "user", targetId: "usr_2", details: {}, createdAt: new Date(2026, 0, 15, 12).toISOString(), ...part };
}

test("an audit log is filtered by action, actor, days and names", () => {
  const entries = [
    entry("adt_1", { actorUserId: "usr_1", targetKind: "project", targetId: "prj_1" }),
    entry("adt_2", { action: "project.suspended", createdAt: new Date(2026, 0, 16, 0, 0).toISOString() }),
    entry("adt_3", { ip: "192.0.2.7", createdAt: new Date(2026, 0, 14, 23, 59, 59, 999).toISOString() }),
  ];
  const ids = (part: Partial<typeof NO_FILTER>) => filterEntries(entries, { ...NO_FILTER, ...part }, names).map((one) => one.id);
  assert.deepEqual(ids({}), ["adt_1", "adt_2", "adt_3"]);
  assert.deepEqual(ids({ action: "project.suspended" }), ["adt_2"]);
  assert.deepEqual(ids({ actor: "usr_1" }), ["adt_1"]);
  assert.deepEqual(ids({ actor: PLATFORM }), ["adt_2", "adt_3"]);
  assert.deepEqual(ids({ from: "2026-01-15", to: "2026-01-15" }), ["adt_1"]);
  assert.deepEqual(ids({ to: "2026-01-14" }), ["adt_3"]);
  assert.deepEqual(ids({ from: "yesterday" }), ["adt_1", "adt_2", "adt_3"]);
  assert.deepEqual(ids({ q: " SHOP " }), ["adt_1"]);
  assert.deepEqual(ids({ q: "192.0.2." }), ["adt_3"]);
  assert.equal(isFiltered(NO_FILTER), false);
  assert.equal(isFiltered({ ...NO_FILTER, to: "2026-01-14" }), true);
});

test("the newest entries are loaded once each, up to a limit and a day", async () => {
  const pages = [
    [entry("adt_4"), entry("adt_3")],
    // An entry that was added meanwhile has moved adt_3 to this page.
    [entry("adt_3"), entry("adt_2", { createdAt: new Date(2026, 0, 13).toISOString() })],
    [entry("adt_1", { createdAt: new Date(2026, 0, 12).toISOString() })],
  ];
  const asked: number[] = [];
  const fetch = async (page: number) => {
    asked.push(page);
    return { entries: pages[page - 1] ?? [], page, pageSize: 2, total: 5, totalPages: 3 };
  };
  const whole = await loadNewest(fetch, 9, "");
  assert.deepEqual(whole.entries.map((one) => one.id), ["adt_4", "adt_3", "adt_2", "adt_1"]);
  assert.equal(whole.isComplete, true);
  assert.equal((await loadNewest(fetch, 1, "")).isComplete, false);
  asked.length = 0;
  assert.equal((await loadNewest(fetch, 9, "2026-01-14")).isComplete, true);
  assert.deepEqual(asked, [1, 2]);
});

test("an export of an audit log has names and ids", () => {
  const entries = [entry("adt_1", { actorUserId: "usr_1", targetKind: "project", targetId: "prj_1", details: { name: "=1" } })];
  assert.match(asCsv(entries, names), /,member\.changed,Ada,usr_1,,,project,shop,prj_1,"\{""name"":""=1""\}"\r\n$/);
  const [read] = JSON.parse(asJson(entries, names)) as [Record<string, unknown>];
  assert.equal(read["actorName"], "Ada");
  assert.equal(read["targetName"], "shop");
  assert.equal(read["targetId"], "prj_1");
});

test("a target without a known name has that of the details", () => {
  assert.equal(targetOf(entry("adt_1", { targetId: "prj_1", details: { name: "old" } }), names), "shop");
  assert.equal(targetOf(entry("adt_1", { targetId: "inv_1", details: { email: "grace@example.com", role: "admin" } }), names), "grace@example.com");
  assert.equal(targetOf(entry("adt_1", { targetId: "inv_1", details: { name: 7, email: "" } }), names), "inv_1");
});

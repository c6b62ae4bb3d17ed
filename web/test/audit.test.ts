import assert from "node:assert/strict";
import { test } from "node:test";
import { asCsv, asJson, auditQuery, type Entry, isFiltered, loadNewest, NO_FILTER, PLATFORM, searchEntries, targetOf } from "../src/pages/audit-search";

const names = new Map([["usr_1", "Ada"], ["prj_1", "shop"]]);

function entry(id: string, part: Partial<Entry> = {}): Entry {
  return { id, action: "member.changed", targetKind: "user", targetId: "usr_2", details: {}, createdAt: new Date(2026, 0, 15, 12).toISOString(), ...part };
}

test("the platform filters an audit log by action, actor and days of the reader", () => {
  const query = (part: Partial<typeof NO_FILTER>) => auditQuery({ ...NO_FILTER, ...part }, 3);
  const all = { page: 3, pageSize: 100 };
  assert.deepEqual(query({}), all);
  assert.deepEqual(query({ action: "member.changed", actor: PLATFORM }), { ...all, action: "member.changed", actor: "platform" });
  const start = new Date(2026, 0, 15).toISOString();
  const end = new Date(2026, 0, 16).toISOString();
  assert.deepEqual(query({ from: "2026-01-15", to: "2026-01-15" }), { ...all, start, end });
  assert.deepEqual(query({ from: "yesterday" }), all);
  assert.deepEqual(query({ q: "shop" }), all);
});

test("a text is searched in the names of entries", () => {
  const entries = [
    entry("adt_1", { actorUserId: "usr_1", targetKind: "project", targetId: "prj_1" }),
    entry("adt_2", { action: "project.suspended" }),
    entry("adt_3", { ip: "192.0.2.7" }),
  ];
  const ids = (text: string) => searchEntries(entries, text, names).map((one) => one.id);
  assert.deepEqual(ids(" "), ["adt_1", "adt_2", "adt_3"]);
  assert.deepEqual(ids(" SHOP "), ["adt_1"]);
  assert.deepEqual(ids("192.0.2."), ["adt_3"]);
  assert.equal(isFiltered(NO_FILTER), false);
  assert.equal(isFiltered({ ...NO_FILTER, to: "2026-01-14" }), true);
});

test("the newest entries are loaded once each, up to a limit", async () => {
  const pages = [
    [entry("adt_4"), entry("adt_3")],
    // An entry that was added meanwhile has moved adt_3 to this page.
    [entry("adt_3"), entry("adt_2")],
    [entry("adt_1")],
  ];
  const asked: number[] = [];
  const fetch = async (page: number) => {
    asked.push(page);
    return { entries: pages[page - 1] ?? [], page, pageSize: 2, total: 5, totalPages: 3 };
  };
  const whole = await loadNewest(fetch, 9);
  assert.deepEqual(whole.entries.map((one) => one.id), ["adt_4", "adt_3", "adt_2", "adt_1"]);
  assert.equal(whole.isComplete, true);
  assert.deepEqual(asked, [1, 2, 3]);
  assert.equal((await loadNewest(fetch, 1)).isComplete, false);
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

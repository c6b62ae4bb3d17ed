import assert from "node:assert/strict";
import { test } from "node:test";
import { amountOf, commandOf, durationOf, endOf, type Session, sessionParams } from "../src/format/session";
import { bothZones, dayRange } from "../src/format/text";

function session(part: Partial<Session> = {}): Session {
  return {
    id: "wts_1",
    tunnel_id: "tun_1",
    status: "active",
    session_mode: "interactive",
    recording_mode: "recorded",
    encryption_mode: "managed",
    started_at: "2026-01-02T12:00:00Z",
    live: { available: true, attachable: true, participant_count: 1, has_upstream: true },
    ...part,
  };
}

test("a session is described without trust in its command", () => {
  assert.equal(commandOf(session({ command_meta: { command: "" } })), "shell");
  assert.equal(commandOf(session({ command_meta: { command: "top" } })), "top");
  assert.equal(commandOf(session({ command_meta: { command: "x".repeat(500) } }))?.length, 122);
  for (const meta of [{}, { command: 7 }]) assert.equal(commandOf(session({ command_meta: meta })), undefined);
  assert.equal(commandOf(session()), undefined);
});

test("a session has a duration and an end", () => {
  const noon = Date.parse("2026-01-02T12:00:00Z");
  assert.equal(durationOf(session(), noon + 180_000), "3 min");
  assert.equal(durationOf(session({ status: "closed", ended_at: "2026-01-02T13:30:00Z" }), noon), "1 h");
  assert.equal(durationOf(session({ status: "errored" }), noon), undefined);
  assert.equal(endOf(session()), "1 participant");
  assert.equal(endOf(session({ status: "closed", exit_code: 2 })), "ended with 2");
  assert.equal(endOf(session({ status: "errored", error_message: "the server was lost" })), "the server was lost");
});

test("a request for control states its amount", () => {
  const request = { id: "wcr_1", session_id: "wts_1", requester_participant_id: "p", status: "pending", created_at: "", updated_at: "" } as const;
  assert.equal(amountOf(request), "without a limit");
  assert.equal(amountOf({ ...request, control_seconds: 600, control_lines: 1 }), "for 10 min, for one command");
});

test("the filters of sessions are those of the engine", () => {
  const none = { status: "", user: "", server: "", from: "", to: "" };
  assert.equal(sessionParams(none, 50), '{"limit":50}');
  assert.equal(sessionParams({ ...none, status: "closed", user: "usr_1" }, 1), '{"limit":1,"filters":{"status":"closed","user_id":"usr_1"}}');
  assert.equal(sessionParams({ ...none, status: "constructor" }, 1), '{"limit":1}');
  const { filters } = JSON.parse(sessionParams({ ...none, from: "2026-01-02", to: "2026-01-02" }, 1)) as { filters: Record<string, string> };
  assert.equal(Date.parse(filters["started_from"] ?? ""), new Date(2026, 0, 2).getTime());
  assert.equal(Date.parse(filters["started_to"] ?? ""), new Date(2026, 0, 3).getTime() - 1);
});

test("days are those of the reader, and other texts are no limit", () => {
  assert.deepEqual(dayRange("", "tomorrow"), { start: undefined, end: undefined });
  assert.deepEqual(dayRange("2026-02-28", "2026-02-28"), { start: new Date(2026, 1, 28).getTime(), end: new Date(2026, 2, 1).getTime() });
});

test("a time has UTC on hover", () => {
  assert.match(bothZones(new Date("2026-01-02T12:00:00.5Z")), / · 2026-01-02 12:00:00 UTC$/);
});

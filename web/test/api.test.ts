import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { backoffMs } from "../src/api/backoff";
import { address } from "../src/api/client";
import { nextStep, parseProblem, unreachable } from "../src/api/problem";
import { givable, may, type Permission, ROLES } from "../src/api/roles";

test("an address has its parameters encoded and its empty filters left out", () => {
  assert.equal(address("/api/projects/tunnels/{project_id}/logs", { project_id: "a/b" }, { q: "x y", outcome: undefined, page: 2 }), "/api/projects/tunnels/a%2Fb/logs?q=x+y&page=2");
  assert.equal(address("/api/tunnels", {}, { params: { limit: 3 } }), "/api/tunnels?params=%7B%22limit%22%3A3%7D");
});

test("a problem names its field, its scope and the wait", () => {
  const error = parseProblem(429, JSON.stringify({ code: "rate_limited", title: "Too many", detail: "Wait.", field: "name" }), "7");
  assert.equal(error.code, "rate_limited");
  assert.equal(error.field, "name");
  assert.equal(error.retryAfterMs, 7000);
  assert.equal(error.isTemporary, true);
});

test("a body that is not a problem is not shown", () => {
  for (const body of ["<html>502</html>", "null", "[]", "7", ""]) {
    const error = parseProblem(502, body, "soon");
    assert.equal(error.code, "http_502", body);
    assert.equal(error.retryAfterMs, undefined);
    assert.ok(!error.detail.includes("<"));
  }
});

test("an ended session leads to the sign-in page and back", () => {
  const step = nextStep(parseProblem(401, "{}", null), "/projects/p?q=a&b");
  assert.equal(step?.href, "/login?next=%2Fprojects%2Fp%3Fq%3Da%26b");
  assert.equal(unreachable().isTemporary, true);
  assert.equal(nextStep(parseProblem(403, JSON.stringify({ code: "proof_required" }), null), "/x")?.href, "/account/confirm?next=%2Fx");
});

test("a refusal names its next step", () => {
  const step = (code: string, here = "/projects/prj_1/settings?a=b") => nextStep(parseProblem(409, JSON.stringify({ code }), null), here);
  assert.equal(step("not_in_plan")?.href, "/projects/prj_1/usage");
  // A view of no project has no such page.
  assert.equal(step("not_in_plan", "/projects?new=1")?.href, undefined);
  assert.match(step("published_tcp_disabled")?.text ?? "", /settings of the project/);
  assert.equal(step("conflict"), undefined);
});

test("the wait grows to its limit and is spread", () => {
  assert.equal(backoffMs(0, 0.5), 1000);
  assert.equal(backoffMs(3, 0.5), 8000);
  assert.equal(backoffMs(99, 1), 37500);
  assert.ok(backoffMs(99, 0) < backoffMs(99, 1));
});

test("a role gives only roles that it may give", () => {
  assert.deepEqual(givable("owner"), ROLES);
  assert.deepEqual(givable("admin"), ["viewer", "member", "admin"]);
  assert.deepEqual(givable("member"), []);
  assert.deepEqual(givable(undefined), []);
  assert.equal(may(undefined, "account.projects.read-only"), false);
});

const DOCUMENT = "../docs/roles.md";

test("the table of roles is that of the documentation", { skip: !existsSync(DOCUMENT) }, () => {
  const rows = readFileSync(DOCUMENT, "utf8").matchAll(/^\| `([a-z.-]+)` \|[^|]*\| (yes|–) \| (yes|–) \| (yes|–) \| (yes|–) \|$/gm);
  let count = 0;
  for (const [, name, ...cells] of rows) {
    for (const [index, role] of ROLES.entries()) assert.equal(may(role, name as Permission), cells[index] === "yes", `${name} for ${role}`);
    count += 1;
  }
  assert.equal(count, 23);
});

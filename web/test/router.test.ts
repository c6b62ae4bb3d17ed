import assert from "node:assert/strict";
import { test } from "node:test";
import { isServerPage, matchPath, to, withFilter, withQuery, withValue } from "../src/router/match";

test("a pattern matches its paths and names their parameters", () => {
  assert.deepEqual(matchPath("/projects/:project/tunnels", "/projects/prj_1/tunnels"), { project: "prj_1" });
  assert.deepEqual(matchPath("/projects/:project", "/projects/a%2Fb"), { project: "a/b" });
  assert.deepEqual(matchPath("/", "/"), {});
  assert.equal(matchPath("/projects/:project", "/projects/prj_1/tunnels"), undefined);
  assert.equal(matchPath("/projects/:project", "/projects/%E0%A4%A"), undefined);
});

test("parameters are encoded, so that a hostile id stays one segment", () => {
  const path = to("/projects/:project/tunnels/:tunnel", { project: "../x", tunnel: "a/b?c" });
  assert.equal(path, "/projects/..%2Fx/tunnels/a%2Fb%3Fc");
  assert.deepEqual(matchPath("/projects/:project/tunnels/:tunnel", path), { project: "../x", tunnel: "a/b?c" });
});

test("empty filters are not in the address", () => {
  assert.equal(withQuery("/projects", { q: "", workspace: "wks_1" }), "/projects?workspace=wks_1");
  assert.equal(withQuery("/projects", { q: "" }), "/projects");
});

test("a filter starts at the first page, and a dialog leaves the page", () => {
  const query = { page: "2", q: "a" };
  assert.equal(withQuery("/credentials", withFilter(query, "q", "b")), "/credentials?q=b");
  assert.equal(withQuery("/credentials", withValue(query, "credential", "crd_1")), "/credentials?page=2&q=a&credential=crd_1");
  assert.equal(withQuery("/credentials", withValue(query, "page", "3")), "/credentials?page=3&q=a");
});

test("pages of the platform open as documents of their own", () => {
  for (const path of ["/account", "/login", "/operator/users", "/projects/p/terminals", "/projects/p/terminals/s", "/projects/p/sessions/s", "/projects/p/sessions/s/replay", "/api/user"]) {
    assert.equal(isServerPage(path), true, path);
  }
  for (const path of ["/", "/welcome", "/projects", "/projects/p", "/projects/p/tunnels", "/workspaces/w/members", "/credentials", "/installation/users"]) {
    assert.equal(isServerPage(path), false, path);
  }
});

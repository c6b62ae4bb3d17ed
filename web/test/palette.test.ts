import assert from "node:assert/strict";
import { test } from "node:test";
import type { Project, Workspace } from "../src/api/data";
import { commands, type PaletteSources } from "../src/shell/commands";
import { find } from "../src/shell/find";

const project = { id: "prj_1", name: "shop", workspaceId: "wks_1" } as Project;

function workspace(role: string): Workspace {
  return { id: "wks_1", name: "team", membership: { role, status: "active" } } as Workspace;
}

function sources(part: Partial<PaletteSources> = {}): PaletteSources {
  return { project: undefined, projects: [project, { ...project, id: "prj_2", name: "blog" }], workspaces: [workspace("owner")], isOperator: false, tunnels: new Map(), ...part };
}

const texts = (part: Partial<PaletteSources>) => commands(sources(part)).map((one) => one.text);

test("the palette offers pages and actions of the project and its workspace", () => {
  const all = texts({ project: "prj_1" });
  for (const text of ["Domains", "Terminal sessions", "Add a domain", "Create a webhook", "Register a terminal server", "Search terminal recordings", "Create a credential", "Invite a member", "Sign out", "blog", "team"]) {
    assert.ok(all.includes(text), text);
  }
  assert.ok(!texts({}).includes("Add a domain"), "no project is chosen");
  assert.ok(texts({ projects: [project] }).includes("Add a domain"), "the only project");
  assert.ok(!all.includes("Engines"));
  assert.ok(texts({ isOperator: true }).includes("Engines"));
});

test("the palette leaves out actions that the role does not allow", () => {
  const all = texts({ project: "prj_1", workspaces: [workspace("viewer")] });
  for (const text of ["Add a domain", "Create a webhook", "Invite a member", "Search terminal recordings", "Publish something", "Create a project"]) assert.ok(!all.includes(text), text);
  assert.ok(all.includes("Show refused requests"));
  const own = { ...workspace("owner"), id: "wks_2" };
  const both = texts({ project: "prj_1", workspaces: [workspace("viewer"), own] });
  assert.ok(both.includes("Create a project") && !both.includes("Publish something"), "the project of the page is read only");
  const suspended = { ...workspace("owner"), membership: { role: "owner", status: "suspended" } } as Workspace;
  assert.ok(!texts({ project: "prj_1", workspaces: [suspended] }).includes("Invite a member"));
});

test("the palette finds tunnels of several projects, and shares only what a browser opens", () => {
  const tunnels = new Map([
    ["prj_1", [{ id: "tun_1", name: "web", publish: true, host: "web.example:443" }]],
    ["prj_2", [{ id: "a/b", name: "db", publish: false }, { name: "without an id" }]],
  ]);
  const all = commands(sources({ project: "prj_1", tunnels }));
  assert.deepEqual(find(all, "web").map((one) => [one.text, one.kind]), [["web", "Tunnel"], ["Webhooks", "shop"], ["Share web", "Action"], ["Close web", "Action"], ["Create a webhook", "Action"]]);
  const at = "/projects/prj_2/tunnels/a%2Fb";
  assert.deepEqual(find(all, "db").map((one) => [one.text, one.kind, one.href]), [["db", "Tunnel · blog", at], ["Close db", "Action", `${at}?show=close`]]);
  const viewed = commands(sources({ project: "prj_1", tunnels, workspaces: [workspace("viewer")] }));
  assert.ok(viewed.some((one) => one.text === "Share web"));
  assert.ok(!viewed.some((one) => one.text.startsWith("Close ")));
  assert.ok(!all.some((one) => one.text === "Share db"));
});

test("no two commands of the palette are the same", () => {
  const all = commands(sources({ project: "prj_1", isOperator: true }));
  assert.equal(new Set(all.map((one) => `${one.href} ${one.text}`)).size, all.length);
});

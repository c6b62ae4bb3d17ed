// The commands of the palette: pages, tunnels and actions. Actions that the role does not allow are
// left out.

import type { Project, Workspace } from "../api/data";
import { isRole, may, type Permission, type Role } from "../api/roles";
import type { Tunnel } from "../live/objects";
import { browserLink, nameOf } from "../pages/address";
import { to, withQuery } from "../router/match";
import type { Command } from "./find";
import { operatorItems, projectItems, workspaceItems } from "./places";

/** The data from which the commands are built. */
export interface PaletteSources {
  /** The project of the page. */
  readonly project: string | undefined;
  readonly projects: readonly Project[];
  readonly workspaces: readonly Workspace[];
  readonly isOperator: boolean;
  /** Live tunnels by project. */
  readonly tunnels: ReadonlyMap<string, readonly Tunnel[]>;
}

/** The address of the command that ends the session. It needs a form, not a page. */
export const SIGN_OUT = "/logout";

export function commands(sources: PaletteSources): readonly Command[] {
  const { project, projects, workspaces, tunnels } = sources;
  const here = project ?? (projects.length === 1 ? projects[0]?.id : undefined);
  return [
    ...everywhere(here, sources),
    ...(here === undefined ? [] : ofProject(here, sources)),
    ...[...tunnels].flatMap(([id, list]) => ofTunnels(id, list, id === here ? undefined : projects.find((one) => one.id === id)?.name, roleAt(id, sources))),
    ...projects.map((one) => ({ text: one.name, kind: "Project", href: to("/projects/:id", { id: one.id }) })),
    ...workspaces.flatMap(ofWorkspace),
    ...(sources.isOperator ? operatorItems().map((item) => ({ text: item.text, kind: "Installation", href: item.href })) : []),
  ];
}

function everywhere(project: string | undefined, sources: PaletteSources): Command[] {
  const mayAnywhere = (permission: Permission) => sources.workspaces.some((one) => may(roleIn(one), permission));
  const publish: Permission = "tunnels.tunnels.create-delete";
  const mayPublish = project === undefined ? mayAnywhere(publish) : may(roleAt(project, sources), publish);
  return [
    ...(mayPublish ? [{ text: "Publish something", kind: "Action", href: withQuery("/welcome", { project: project ?? "" }) }] : []),
    ...(mayAnywhere("account.projects.read-write") ? [{ text: "Create a project", kind: "Action", href: "/projects?new=1" }] : []),
    { text: "Create a workspace", kind: "Action", href: "/workspaces?new=1" },
    { text: "Create a credential", kind: "Action", href: "/credentials?new=1" },
    { text: "Sign out", kind: "Action", href: SIGN_OUT },
    { text: "Projects", kind: "Page", href: "/projects" },
    { text: "Workspaces", kind: "Page", href: "/workspaces" },
    { text: "Credentials", kind: "Page", href: "/credentials" },
    { text: "Your account", kind: "Page", href: "/account" },
  ];
}

function ofProject(project: string, sources: PaletteSources): Command[] {
  const found = sources.projects.find((one) => one.id === project);
  const role = roleAt(project, sources);
  const base = to("/projects/:id", { id: project });
  const actions: readonly (readonly [string, string, Permission])[] = [
    ["Add a domain", "/domains?new=1", "account.projects.read-write"],
    ["Create a webhook", "/webhooks?new=1", "network.webhooks.read-write"],
    ["Register a terminal server", "/servers?show=new", "network.webtty-servers.read-write"],
    ["Search terminal recordings", "/recordings?tab=search", "webtty.logs.read-only"],
    ["Show refused requests", "/requests?outcome=denied", "network.streams.read-only"],
  ];
  return [
    ...projectItems(project).map((item) => ({ text: item.text, kind: found?.name ?? "Project", href: item.href })),
    ...actions.filter(([, , permission]) => may(role, permission)).map(([text, rest]) => ({ text, kind: "Action", href: base + rest })),
  ];
}

function ofTunnels(project: string, tunnels: readonly Tunnel[], projectName: string | undefined, role: Role | undefined): Command[] {
  const kind = projectName === undefined ? "Tunnel" : `Tunnel · ${projectName}`;
  return tunnels.flatMap((tunnel) => {
    if (tunnel.id === undefined) return [];
    const href = `${to("/projects/:project/tunnels/:tunnel", { project, tunnel: tunnel.id })}`;
    const action = (verb: string, show: string) => ({ text: `${verb} ${nameOf(tunnel)}`, kind: "Action", href: `${href}?show=${show}` });
    return [
      { text: nameOf(tunnel), kind, href },
      ...(browserLink(tunnel) === undefined ? [] : [action("Share", "share")]),
      ...(may(role, "tunnels.tunnels.create-delete") ? [action("Close", "close")] : []),
    ];
  });
}

function ofWorkspace(workspace: Workspace): Command[] {
  const role = roleIn(workspace);
  const at = to("/workspaces/:id", { id: workspace.id });
  const pages = workspaceItems(workspace.id).map((item) => (item.isExact === true ? { text: workspace.name, kind: "Workspace", href: item.href } : { text: item.text, kind: workspace.name, href: item.href }));
  const kind = `Action · ${workspace.name}`;
  return [
    ...pages,
    ...(may(role, "account.workspace-protection.read-write") ? [{ text: "Invite a member", kind, href: `${at}/members?new=1` }] : []),
    ...(may(role, "account.projects.read-write") ? [{ text: "Create a project", kind, href: withQuery("/projects", { new: "1", workspace: workspace.id }) }] : []),
    { text: "Permissions of the roles", kind: workspace.name, href: `${at}/members?show=roles` },
  ];
}

/** The role of the person in a project. */
function roleAt(project: string, { projects, workspaces }: PaletteSources): Role | undefined {
  const home = projects.find((one) => one.id === project)?.workspaceId;
  return roleIn(workspaces.find((one) => one.id === home));
}

function roleIn(workspace: Workspace | undefined): Role | undefined {
  const membership = workspace?.membership;
  return membership !== undefined && membership.status === "active" && isRole(membership.role) ? membership.role : undefined;
}

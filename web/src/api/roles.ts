// Permissions of the workspace roles, as in docs/roles.md. They decide only what the pages offer: the server decides
// what is allowed.

import type { Control } from "./client";

export type Role = Control<"Role">;
export type Permission = Control<"Permission">;

const VIEWER: readonly Permission[] = [
  "account.projects.read-only",
  "account.plan.read-only",
  "account.workspaces.read-only",
  "account.tokens.create",
  "account.credentials.read-only",
  "network.streams.read-only",
  "network.events.read-only",
  "network.webhooks.read-only",
  "network.webtty-servers.read-only",
  "tunnels.resources.read-only",
  "webtty.sessions.read-only",
];
const MEMBER: readonly Permission[] = [
  ...VIEWER,
  "account.credentials.read-write",
  "tunnels.tunnels.create-delete",
  "tunnels.streams.create-delete",
  "webtty.sessions.read-write",
  "turn.credentials.create",
  "turn.relay.allocate",
];
const ADMIN: readonly Permission[] = [
  ...MEMBER,
  "account.projects.read-write",
  "account.workspace-protection.read-write",
  "network.webhooks.read-write",
  "network.webtty-servers.read-write",
  "webtty.logs.read-only",
];
const OWNER: readonly Permission[] = [...ADMIN, "webtty.logs.read-write"];

export const ROLES: readonly Role[] = ["viewer", "member", "admin", "owner"];
const TABLE: Readonly<Record<Role, readonly Permission[]>> = { viewer: VIEWER, member: MEMBER, admin: ADMIN, owner: OWNER };

export const ROLE_TEXT: Readonly<Record<Role, string>> = {
  viewer: "Reads projects, tunnels, logs and events.",
  member: "Also opens tunnels, connects to them, and issues own credentials.",
  admin: "Also manages projects, domains, webhooks, terminal servers and members.",
  owner: "Also deletes recordings and the workspace, and appoints owners.",
};

/** True if the role has the permission. Without a role nothing is allowed. */
export function may(role: Role | undefined, permission: Permission): boolean {
  return role !== undefined && TABLE[role].includes(permission);
}

/** The roles that a member with `role` may give. */
export function givable(role: Role | undefined): readonly Role[] {
  if (role === "owner") return ROLES;
  return role === "admin" ? ["viewer", "member", "admin"] : [];
}

export function isRole(text: string): text is Role {
  return Object.hasOwn(TABLE, text);
}

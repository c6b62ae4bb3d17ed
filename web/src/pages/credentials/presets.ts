// Combinations of permissions for common work, as in docs/roles.md.

import type { Permission } from "../../api/roles";

export interface Preset {
  readonly value: string;
  readonly text: string;
  readonly permissions: readonly Permission[];
}

export const PRESETS: readonly Preset[] = [
  { value: "publish", text: "Publish services in existing projects", permissions: ["account.projects.read-only", "tunnels.resources.read-only", "tunnels.tunnels.create-delete"] },
  { value: "connect", text: "Connect to private tunnels", permissions: ["account.projects.read-only", "tunnels.resources.read-only", "tunnels.streams.create-delete"] },
  {
    value: "create",
    text: "Create projects and publish in them",
    permissions: ["account.projects.read-only", "account.projects.read-write", "account.plan.read-only", "network.streams.read-only", "tunnels.resources.read-only", "tunnels.tunnels.create-delete", "tunnels.streams.create-delete"],
  },
  { value: "watch", text: "Follow live tunnels and agents", permissions: ["tunnels.resources.read-only"] },
  { value: "terminal", text: "Run a terminal through a tunnel", permissions: ["tunnels.resources.read-only", "tunnels.tunnels.create-delete", "tunnels.streams.create-delete"] },
];

// The pages of the navigation.

import type { IconName } from "../ui/icons";
import { to } from "../router/match";

export interface Item {
  readonly href: string;
  readonly text: string;
  readonly icon: IconName;
  /** True if pages below it have entries of their own. */
  readonly isExact?: boolean;
}

export function projectItems(project: string): Item[] {
  const at = (rest: string) => to("/projects/:id", { id: project }) + rest;
  return [
    { href: at(""), text: "Overview", icon: "overview", isExact: true },
    { href: at("/tunnels"), text: "Tunnels", icon: "tunnels" },
    { href: at("/clients"), text: "Clients", icon: "clients" },
    { href: at("/requests"), text: "Requests", icon: "log" },
    { href: at("/events"), text: "Events", icon: "audit" },
    { href: at("/domains"), text: "Domains", icon: "domains" },
    { href: at("/webhooks"), text: "Webhooks", icon: "webhooks" },
    { href: at("/terminals"), text: "Terminals", icon: "terminal" },
    { href: at("/recordings"), text: "Terminal sessions", icon: "play" },
    { href: at("/servers"), text: "Terminal servers", icon: "engine" },
    { href: at("/usage"), text: "Usage", icon: "usage" },
    { href: at("/settings"), text: "Settings", icon: "settings" },
  ];
}

export function workspaceItems(workspace: string): Item[] {
  const at = (rest: string) => to("/workspaces/:id", { id: workspace }) + rest;
  return [
    { href: at(""), text: "Overview", icon: "home", isExact: true },
    { href: at("/members"), text: "Members", icon: "members" },
    { href: at("/billing"), text: "Billing", icon: "usage" },
    { href: at("/audit"), text: "Audit log", icon: "audit" },
    { href: at("/settings"), text: "Settings", icon: "settings" },
  ];
}

export function operatorItems(): Item[] {
  return [
    { href: "/installation/users", text: "Users", icon: "user" },
    { href: "/installation/workspaces", text: "Workspaces", icon: "members" },
    { href: "/installation/projects", text: "Projects", icon: "projects" },
    { href: "/installation/takedowns", text: "Takedowns", icon: "tunnels" },
    { href: "/installation/engines", text: "Engines", icon: "engine" },
    { href: "/installation/audit", text: "Audit log", icon: "audit" },
  ];
}

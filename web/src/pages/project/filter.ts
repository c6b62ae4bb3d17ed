// Filters of the lists of live objects.

import { proofs } from "../../format/access";
import type { Client, Tunnel } from "../../live/objects";

export interface TunnelChoice {
  readonly search: string;
  readonly protocol: string;
  readonly visibility: string;
  readonly label: string;
}

/** The tunnels that match, by name. */
export function filterTunnels(tunnels: readonly Tunnel[], choice: TunnelChoice): Tunnel[] {
  const text = choice.search.trim().toLowerCase();
  const found = tunnels.filter((tunnel) => {
    if (choice.protocol !== "" && (tunnel.protocol ?? "http") !== choice.protocol) return false;
    if (choice.visibility === "public" && tunnel.publish !== true) return false;
    if (choice.visibility === "private" && tunnel.publish === true) return false;
    if (choice.visibility === "protected" && proofs(tunnel).length === 0) return false;
    if (!hasLabel(tunnel.labels, choice.label)) return false;
    return text === "" || contains(text, tunnel.name, tunnel.host, tunnel.hostname, tunnel.id, tunnel.client_id);
  });
  return found.map((tunnel) => ({ tunnel, key: tunnel.name ?? tunnel.hostname ?? tunnel.id ?? "" })).sort((one, other) => order(one.key, other.key)).map(({ tunnel }) => tunnel);
}

/** The clients that match, newest ids first. */
export function filterClients(clients: readonly Client[], search: string): Client[] {
  const text = search.trim().toLowerCase();
  return clients
    .filter((client) => text === "" || contains(text, client.id, client.agent, client.version, client.os, client.arch, client.user_id, ...Object.values(client.labels ?? {})))
    .sort((one, other) => order(other.id, one.id));
}

/** Matches `name` or `name=value`. */
export function hasLabel(labels: Readonly<Record<string, string>> | undefined, wanted: string): boolean {
  const text = wanted.trim();
  if (text === "") return true;
  const split = text.indexOf("=");
  const name = split < 0 ? text : text.slice(0, split);
  if (labels === undefined || !Object.hasOwn(labels, name)) return false;
  return split < 0 || labels[name] === text.slice(split + 1);
}

function contains(text: string, ...parts: readonly (string | undefined)[]): boolean {
  return parts.some((part) => part !== undefined && part.toLowerCase().includes(text));
}

function order(one: string, other: string): number {
  return one < other ? -1 : one > other ? 1 : 0;
}

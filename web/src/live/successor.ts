// Tunnels under one name. An agent that reconnects opens its tunnel again, under another id.

import type { Tunnel } from "./objects";

/** True if visitors reach both under the same name. */
export function hasSameName(one: Tunnel, other: Tunnel): boolean {
  if (one.hostname !== undefined || other.hostname !== undefined) return one.hostname === other.hostname;
  return one.name !== undefined && one.name === other.name;
}

/** The tunnel that continues `lost`, whose id is no longer online. */
export function successorOf(lost: Tunnel, tunnels: ReadonlyMap<string, Tunnel>): Tunnel | undefined {
  for (const one of tunnels.values()) if (one.id !== lost.id && hasSameName(one, lost)) return one;
  return undefined;
}

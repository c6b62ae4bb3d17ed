// Tunnels under one name. An agent that reconnects opens its tunnel again, under another id.

import type { Tunnel } from "./objects";

/** True if visitors reach both under the same name. */
export function hasSameName(one: Tunnel, other: Tunnel): boolean {
  const [hostname, otherHostname] = [ownHostname(one), ownHostname(other)];
  if (hostname !== undefined || otherHostname !== undefined) return hostname === otherHostname;
  if (one.name !== undefined || other.name !== undefined) return one.name === other.name;
  const port = publicPort(one);
  return port !== undefined && port === publicPort(other);
}

/** The host name of only this tunnel. A TCP tunnel shows that of its engine, which all TCP tunnels have. */
function ownHostname(tunnel: Tunnel): string | undefined {
  return tunnel.protocol === "tcp" ? undefined : tunnel.hostname;
}

/** The port by which visitors reach a published TCP tunnel. */
function publicPort(tunnel: Tunnel): number | undefined {
  return tunnel.protocol === "tcp" && tunnel.publish === true ? tunnel.port : undefined;
}

/** The tunnel that continues `lost`, whose id is no longer online. */
export function successorOf(lost: Tunnel, tunnels: ReadonlyMap<string, Tunnel>): Tunnel | undefined {
  for (const one of tunnels.values()) if (one.id !== lost.id && hasSameName(one, lost)) return one;
  return undefined;
}

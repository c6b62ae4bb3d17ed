// The addresses of a tunnel.

import type { Tunnel } from "../live/objects";

/** The address for visitors. Undefined for a private tunnel. */
export function visitAddress(tunnel: Tunnel): string | undefined {
  const host = tunnel.host ?? tunnel.hostname;
  if (tunnel.publish !== true || host === undefined || host === "") return undefined;
  const isWeb = tunnel.protocol === "http" || tunnel.protocol === undefined || tunnel.protocol === "webtty";
  const scheme = isWeb ? "https" : tunnel.protocol;
  return `${scheme}://${host.replace(/:443$/, isWeb ? "" : ":443")}`;
}

/** The address as a link, only if a browser can open it. */
export function browserLink(tunnel: Tunnel): string | undefined {
  const address = visitAddress(tunnel);
  return address?.startsWith("https://") === true ? address : undefined;
}

/** The address for `svc dial`. Undefined for a published tunnel, which is not dialled. */
export function dialAddress(tunnel: Tunnel): string | undefined {
  return tunnel.publish === true || tunnel.name === undefined ? undefined : `svc://${tunnel.name}`;
}

export function nameOf(tunnel: Tunnel): string {
  return tunnel.name ?? tunnel.hostname ?? tunnel.id ?? "unnamed";
}

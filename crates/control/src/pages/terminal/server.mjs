// Which tunnels are servers of terminals, what of their labels counts, and for whom they are.

import { MANAGES, page, platform } from "/terminal/engine.mjs";

/**
 * The server that a tunnel is, or nothing. Whoever may open a tunnel writes its labels; the engine
 * checks who it is of those with the protocol `webtty` alone, and no other has the id or the name
 * of a registered server.
 */
export function serverOf(tunnel) {
  const labels = tunnel.labels ?? {};
  const label = (key) => labels[`svc.webtty.${key}`];
  if (tunnel.protocol === "webtty") {
    return { isManaged: true, id: label("server_id"), name: label("server_name"), label };
  }
  // Bytes of a private tunnel have no protocol.
  const isHttp = tunnel.protocol === "http" || tunnel.protocol === undefined;
  const isLightweight = isHttp && labels["application-protocol"] === "svc.webtty";
  return isLightweight ? { isManaged: false, label } : undefined;
}

/** Whether the person may come to restricted servers. */
export const mayManage = page.may.has(MANAGES);

/**
 * Whether a registered server is for those alone who manage servers. Where the person may not know,
 * the engine tells.
 */
export async function isRestricted(id) {
  if (!page.may.has("network.webtty-servers.read-only")) return false;
  const at = `/api/projects/tunnels/${page.project}/webtty/servers/${encodeURIComponent(id)}`;
  return (await platform(at)).accessPolicy === "restricted";
}

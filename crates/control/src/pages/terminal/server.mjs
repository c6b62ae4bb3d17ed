// Tunnels that are terminal servers: their labels and their restrictions.

import { MANAGES, engine, page, platform } from "/terminal/engine.mjs";

/**
 * The server of a tunnel, or nothing. Every user who may open a tunnel writes its labels. The
 * engine verifies the identity of tunnels with the protocol `webtty` only, and no other tunnel has
 * the id or the name of a registered server.
 */
export function serverOf(tunnel) {
  const labels = tunnel.labels ?? {};
  const label = (key) => labels[`svc.webtty.${key}`];
  if (tunnel.protocol === "webtty") {
    return { isManaged: true, id: label("server_id"), name: label("server_name"), label };
  }
  // The protocol of a private bytestream tunnel is undefined.
  const isHttp = tunnel.protocol === "http" || tunnel.protocol === undefined;
  const isLightweight = isHttp && labels["application-protocol"] === "svc.webtty";
  return isLightweight ? { isManaged: false, label } : undefined;
}

/** The name of a session's server; undefined if it is not online, or the user may not see it. */
export async function nameOfServer(session) {
  try {
    const tunnels = await engine("/api/tunnels", { params: { limit: 1000 } });
    const tunnel =
      tunnels.find((tunnel) => serverOf(tunnel)?.id === session.server_id) ??
      tunnels.find((tunnel) => tunnel.id === session.tunnel_id);
    return (tunnel && serverOf(tunnel)?.name) ?? tunnel?.name;
  } catch (error) {
    // Then the page only shows the time.
    console.warn(error);
    return undefined;
  }
}

/** True if the user may connect to restricted servers. */
export const mayManage = page.may.has(MANAGES);

/**
 * True if a registered server is only for users who manage servers. If the user may not see that,
 * the engine decides.
 */
export async function isRestricted(id) {
  if (!page.may.has("network.webtty-servers.read-only")) return false;
  const at = `/api/projects/tunnels/${page.project}/webtty/servers/${encodeURIComponent(id)}`;
  return (await platform(at)).accessPolicy === "restricted";
}

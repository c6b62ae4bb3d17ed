// Which tunnels are servers of terminals, and what of their labels counts.

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

// Closing a tunnel, from its page and from the list, and the agents behind it.

import { callEngine } from "../../api/client";
import type { Client, Tunnel } from "../../live/objects";
import { Confirm } from "../../ui/dialog";
import { nameOf } from "../address";
import { closeEach, underSameName } from "./closing";

interface CloseProps {
  project: string;
  tunnel: Tunnel;
  tunnels: ReadonlyMap<string, Tunnel>;
  clients: ReadonlyMap<string, Client>;
  onClose: () => void;
}

/** Closes a tunnel at the engine. Several agents may share its name: the name is offline afterwards. */
export function CloseDialog({ project, tunnel, tunnels, clients, onClose }: CloseProps) {
  const name = nameOf(tunnel);
  const agents = agentsOf(tunnel, tunnels, clients);
  const close = () => {
    const ids = underSameName(tunnel, tunnels).flatMap((one) => (one.id === undefined ? [] : [one.id]));
    return closeEach(ids, (id) => callEngine("delete", project, "/api/tunnels/{id}", { path: { id } }));
  };
  return (
    <Confirm title={`Close ${name}`} verb="Close the tunnel" done={`${name} is closed.`} action={close} onClose={onClose}>
      <p>
        It goes offline at once, and its open requests and connections end. {agents.length > 1 ? "Its agents are" : "Its agent is"} {agents.map(describe).join(", ")}.
      </p>
      <p class="quiet small">
        An agent of svc opens it again only when it is started again. A service (svc run) also does so after a SIGHUP, or if its definition of the tunnel changes. A program of another maker may open it again at once, until the credential that it uses is revoked.
      </p>
    </Confirm>
  );
}

/** The agents behind the name. */
export function agentsOf(tunnel: Tunnel, tunnels: ReadonlyMap<string, Tunnel>, clients: ReadonlyMap<string, Client>): Client[] {
  const ids = new Set<string>();
  for (const one of underSameName(tunnel, tunnels)) if (one.client_id !== undefined) ids.add(one.client_id);
  return [...ids].map((id) => clients.get(id) ?? { id, status: "offline" });
}

export function describe(client: Client): string {
  return [client.agent, client.version, client.os].filter((part) => part !== undefined).join(" ") || client.id;
}

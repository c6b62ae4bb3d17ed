// Closing a tunnel, from its page and from the list, and the agents behind it.

import { callEngine } from "../../api/client";
import { ApiError } from "../../api/problem";
import type { Client, Tunnel } from "../../live/objects";
import { hasSameName } from "../../live/successor";
import { Confirm } from "../../ui/dialog";
import { nameOf } from "../address";

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
  return (
    <Confirm title={`Close ${name}`} verb="Close the tunnel" done={`${name} is closed.`} action={() => close(project, idsOf(tunnel, tunnels))} onClose={onClose}>
      <p>
        It goes offline at once, and its open requests and connections end. {agents.length > 1 ? "Its agents are" : "Its agent is"} {agents.map(describe).join(", ")}.
      </p>
      <p class="quiet small">
        An agent of svc opens it again only when it is started again or reads its file again. A program of another maker may open it again at once, until the credential that it uses is revoked.
      </p>
    </Confirm>
  );
}

/** One request after the other, because a session may have few at the same time. */
async function close(project: string, ids: readonly string[]): Promise<void> {
  for (const id of ids) {
    try {
      await callEngine("delete", project, "/api/tunnels/{id}", { path: { id } });
    } catch (thrown) {
      // It has ended meanwhile.
      if (!(thrown instanceof ApiError && thrown.status === 404)) throw thrown;
    }
  }
}

/** The tunnels under the name: several agents may share it. */
function idsOf(tunnel: Tunnel, tunnels: ReadonlyMap<string, Tunnel>): string[] {
  const ids = [];
  for (const one of tunnels.values()) {
    if (one.id !== undefined && (one.id === tunnel.id || hasSameName(one, tunnel))) ids.push(one.id);
  }
  return ids;
}

/** The agents behind the name. */
export function agentsOf(tunnel: Tunnel, tunnels: ReadonlyMap<string, Tunnel>, clients: ReadonlyMap<string, Client>): Client[] {
  const ids = new Set<string>();
  for (const one of tunnels.values()) {
    if ((one.id === tunnel.id || hasSameName(one, tunnel)) && one.client_id !== undefined) ids.add(one.client_id);
  }
  return [...ids].map((id) => clients.get(id) ?? { id, status: "offline" });
}

export function describe(client: Client): string {
  return [client.agent, client.version, client.os].filter((part) => part !== undefined).join(" ") || client.id;
}

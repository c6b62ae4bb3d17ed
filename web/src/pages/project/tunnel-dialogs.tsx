// Sharing and closing a tunnel, from its page and from the list.

import type { Client, Tunnel } from "../../live/objects";
import { hasSameName } from "../../live/successor";
import { sentence } from "../../format/access";
import { useSettings, useUser } from "../../api/data";
import { Dialog } from "../../ui/dialog";
import { Code, Facts } from "../../ui/parts";
import { QrCode } from "../../ui/qr";
import { browserLink, dialAddress, nameOf, visitAddress } from "../address";

export function ShareDialog({ project, tunnel, onClose }: { project: string; tunnel: Tunnel; onClose: () => void }) {
  const link = browserLink(tunnel);
  const visit = visitAddress(tunnel);
  const dial = dialAddress(tunnel);
  return (
    <Dialog title={`Share ${nameOf(tunnel)}`} onClose={onClose}>
      <div class="online">
        {link !== undefined && <QrCode text={link} label={`QR code of ${link}`} />}
        <div>
          {visit !== undefined && <Code text={visit} label="Copy the address" />}
          {dial !== undefined && <Code text={`svc dial ${dial}`} label="Copy the command" />}
          {visit === undefined && dial === undefined && <p>The tunnel has no address.</p>}
          <Sentence project={project} tunnel={tunnel} />
        </div>
      </div>
    </Dialog>
  );
}

/** The visitors that the tunnel admits, in words. */
export function Sentence({ project, tunnel }: { project: string; tunnel: Tunnel }) {
  const settings = useSettings(project);
  return (
    <>
      <p>{sentence(tunnel, settings.data)}</p>
      {settings.isHidden && <HiddenRules />}
    </>
  );
}

/** Without the project's rules, a sentence about visitors may promise too much. */
export function HiddenRules() {
  return <p class="quiet small">The rules of the project, which your role does not show, may admit fewer visitors.</p>;
}

/** No operation closes a tunnel: its agent owns it. The dialog shows how its agent is stopped. */
export function CloseDialog({ tunnel, agents, onClose }: { tunnel: Tunnel; agents: readonly Client[]; onClose: () => void }) {
  const user = useUser().data;
  const isOwn = user !== undefined && tunnel.user_id === user.id;
  return (
    <Dialog title={`Close ${nameOf(tunnel)}`} onClose={onClose}>
      <p>The agent that opened the tunnel owns it, and an agent that runs opens it again whenever the connection is lost. Stop that agent where it runs:</p>
      <Facts
        rows={[
          ["A command in a terminal", <>press <kbd>q</kbd> or <kbd>Ctrl C</kbd></>],
          ["A service", <code key="service">systemctl stop svc-agent</code>],
          ["A container", <code key="container">docker stop NAME</code>],
        ]}
      />
      <p>
        If that machine is out of reach,{" "}
        {isOwn ? (
          <>
            revoke the <a href="/credentials">credential</a> that it uses
          </>
        ) : (
          "its user can revoke the credential that it uses, and an admin can remove that user from the workspace"
        )}
        : everything that the credential has opened ends immediately.
      </p>
      <p class="quiet small">The agent is {agents.map(describe).join(", ") || "not connected"}.</p>
    </Dialog>
  );
}

/** The agents behind the name: several may share it. */
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

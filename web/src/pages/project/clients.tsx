// The connected agents of a project.

import { useMemo } from "preact/hooks";
import { useProject } from "../../api/data";
import { count } from "../../format/text";
import type { Client } from "../../live/objects";
import { useLive } from "../../live/project";
import { useDialog, useFilter } from "../../router/location";
import { to, withQuery } from "../../router/match";
import { Dialog } from "../../ui/dialog";
import { Search } from "../../ui/fields";
import { Card, Empty, Facts, Labels, Page, Skeleton, Status } from "../../ui/parts";
import { Virtual } from "../../ui/virtual";
import { nameOf } from "../address";
import { Publish } from "../publish";
import { filterClients } from "./filter";
import { LivePill, LiveState } from "./overview";

export function Clients({ project }: { project: string }) {
  const live = useLive(project);
  const [search, setSearch] = useFilter("q");
  const [chosen, setChosen] = useDialog("client");
  const found = useMemo(() => filterClients(live.objects.sortedClients, search), [live.objects.sortedClients, search]);
  const tunnels = useMemo(() => {
    const counts = new Map<string, number>();
    for (const tunnel of live.objects.tunnels.values()) if (tunnel.client_id !== undefined) counts.set(tunnel.client_id, (counts.get(tunnel.client_id) ?? 0) + 1);
    return counts;
  }, [live]);
  const data = useProject(project).data;
  const isEmpty = live.objects.hasSnapshot && live.objects.clients.size === 0;
  const client = live.objects.clients.get(chosen);
  const base = to("/projects/:id", { id: project });
  return (
    <Page title="Clients" note={<><LivePill live={live} /> <span class="number">{count(live.objects.clients.size)} connected</span></>}>
      <LiveState live={live} />
      {isEmpty && data !== undefined && <Publish project={data} />}
      <div class="bar">
        <Search label="Search agents, versions, systems and users" value={search} onValue={(value) => setSearch(value, true)} />
      </div>
      <Card isFlush>
        {!live.objects.hasSnapshot ? (
          <div class="rows"><div><Skeleton /></div></div>
        ) : found.length === 0 ? (
          <Empty icon="clients" title={isEmpty ? "No agent is connected" : "Nothing matches"} />
        ) : (
          <>
            <div class="vhead columns-client" aria-hidden="true">
              <span>Agent</span>
              <span>System</span>
              <span>User</span>
              <span>Tunnels</span>
              <span>Status</span>
            </div>
            <Virtual label={`${found.length} clients`} rows={found} height={44} row={(one, style) => <Row key={one.id} client={one} tunnels={tunnels.get(one.id) ?? 0} style={style} onOpen={() => setChosen(one.id)} />} />
          </>
        )}
      </Card>
      {client !== undefined && (
        <Dialog title={`${client.agent ?? "Client"} ${client.version ?? ""}`} onClose={() => setChosen("", true)}>
          <Facts
            rows={[
              ["Status", <Status key="status" of={client.status} />],
              ["System", [client.os, client.arch].filter((part) => part !== undefined).join(" ")],
              ["Channel", client.channel],
              ["Protocol", client.protocol_version],
              ["Labels", Object.keys(client.labels ?? {}).length === 0 ? undefined : <Labels key="labels" of={client.labels} />],
              ["User", client.user_id],
              ["Region", client.region],
              ["Id", <code key="id">{client.id}</code>],
            ]}
          />
          <h3>Tunnels</h3>
          <ul class="plain">
            {[...live.objects.tunnels.values()]
              .filter((tunnel) => tunnel.client_id === client.id)
              .slice(0, SHOWN_TUNNELS)
              .map((tunnel) => (
                <li key={tunnel.id}>
                  <a href={`${base}/tunnels/${encodeURIComponent(tunnel.id ?? "")}`}>{nameOf(tunnel)}</a>
                </li>
              ))}
          </ul>
          {(tunnels.get(client.id) ?? 0) > SHOWN_TUNNELS && <a href={withQuery(`${base}/tunnels`, { q: client.id })}>All {count(tunnels.get(client.id) ?? 0)} tunnels</a>}
        </Dialog>
      )}
    </Page>
  );
}

/** Tunnels in the dialog of a client. The list of tunnels has all of them. */
const SHOWN_TUNNELS = 50;

function Row({ client, tunnels, style, onOpen }: { client: Client; tunnels: number; style: { top: string; height: string }; onOpen: () => void }) {
  return (
    <button type="button" class="vrow columns-client" style={{ ...style }} onClick={onOpen}>
      <span class="cut">
        {client.agent ?? client.id} <span class="quiet">{client.version}</span>
      </span>
      <span class="cut">{[client.os, client.arch].filter((part) => part !== undefined).join(" ")}</span>
      <span class="cut quiet">{client.user_id}</span>
      <span class="number">{tunnels}</span>
      <Status of={client.status} />
    </button>
  );
}

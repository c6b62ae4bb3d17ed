// One tunnel: addresses, agents, settings, access rules, traffic and its requests.

import { useEffect, useMemo, useRef } from "preact/hooks";
import { useSettings } from "../../api/data";
import { accessRules, sentence } from "../../format/access";
import { agentSettings } from "../../format/settings";
import type { Client, Tunnel as LiveTunnel } from "../../live/objects";
import { type LiveView, useLive } from "../../live/project";
import { successorOf } from "../../live/successor";
import { navigate, useAddress, useDialog, useFilter } from "../../router/location";
import { to, withQuery } from "../../router/match";
import { Button, ButtonLink, Card, Code, Empty, Facts, Page, Pill, Skeleton, Status, Tabs, Time } from "../../ui/parts";
import { Table } from "../../ui/table";
import { browserLink, dialAddress, nameOf, visitAddress } from "../address";
import { TrafficGraphs } from "../traffic";
import { RequestLog } from "./log";
import { LiveState } from "./overview";
import { useProjectRights } from "./rights";
import { HiddenRules, Sentence, ShareDialog } from "./share";
import { agentsOf, CloseDialog, describe } from "./tunnel-dialogs";
import { Takedowns } from "./takedowns";

export function TunnelPage({ project, id }: { project: string; id: string }) {
  const live = useLive(project);
  const [dialog, setDialog] = useDialog("show");
  // A token for visitors is shown once, also while the agent reconnects.
  const tunnel = useTunnel(live, project, id, dialog === "share");
  const isOnline = live.objects.tunnels.has(id);
  const mayClose = useProjectRights(project).may("tunnels.tunnels.create-delete");
  const [tab] = useFilter("tab", "overview");
  const base = `${to("/projects/:id", { id: project })}/tunnels`;
  const here = `${base}/${encodeURIComponent(id)}`;
  const link = tunnel === undefined || !isOnline ? undefined : browserLink(tunnel);
  const tabs = [["overview", "Overview"], ["access", "Access"], ["requests", "Requests"]] as const;
  return (
    <Page
      title={tunnel === undefined ? "Tunnel" : nameOf(tunnel)}
      note={
        <>
          <a href={base}>Tunnels</a> · <Status of={isOnline ? (tunnel?.status ?? "online") : live.objects.hasSnapshot ? "offline" : "connecting"} />
        </>
      }
      actions={
        isOnline && (
          <>
            <Button icon="share" onClick={() => setDialog("share")}>Share</Button>
            {link !== undefined && (
              <a class="button is-main" href={link} target="_blank" rel="noreferrer">
                Open
              </a>
            )}
            {mayClose && <Button onClick={() => setDialog("close")}>Close…</Button>}
          </>
        )
      }
    >
      <LiveState live={live} />
      {tunnel !== undefined && !isOnline && (
        <div class="note is-warn" role="status">
          <strong>This tunnel is not online</strong>
          <span>Its agent was stopped, it is reconnecting, or a member closed the tunnel. The page shows it as soon as it is online again.</span>
        </div>
      )}
      {tunnel?.hostname !== undefined && <Takedowns project={project} hostname={tunnel.hostname} />}
      <Tabs label="Views of the tunnel" items={tabs.map(([value, text]) => ({ href: value === "overview" ? here : `${here}?tab=${value}`, text, isChosen: tab === value }))} />
      {tab === "requests" ? (
        <RequestLog project={project} tunnel={id} />
      ) : tunnel === undefined ? (
        live.objects.hasSnapshot ? <Gone here={here} base={base} /> : <Skeleton rows={6} />
      ) : tab === "access" ? (
        <Access project={project} tunnel={tunnel} />
      ) : (
        <Details project={project} tunnel={tunnel} agents={agentsOf(tunnel, live.objects.tunnels, live.objects.clients)} />
      )}
      {dialog === "share" && tunnel !== undefined && <ShareDialog project={project} tunnel={tunnel} onClose={() => setDialog("", true)} />}
      {dialog === "close" && mayClose && tunnel !== undefined && isOnline && (
        <CloseDialog project={project} tunnel={tunnel} tunnels={live.objects.tunnels} clients={live.objects.clients} onClose={() => setDialog("", true)} />
      )}
    </Page>
  );
}

/**
 * The tunnel, also after it has ended: its content stays until the agent has opened it again, and then the address
 * changes to the new id. With `isHeld` the address stays, because its change would close a dialog.
 */
function useTunnel(live: LiveView, project: string, id: string, isHeld: boolean): LiveTunnel | undefined {
  const { query } = useAddress();
  const last = useRef<LiveTunnel | undefined>(undefined);
  const online = live.objects.tunnels.get(id);
  if (online !== undefined) last.current = online;
  const known = last.current?.id === id ? last.current : undefined;
  const next = known === undefined || online !== undefined ? undefined : successorOf(known, live.objects.tunnels)?.id;
  useEffect(() => {
    if (next === undefined || isHeld) return;
    const page = to("/projects/:id/tunnels/:tunnel", { id: project, tunnel: next });
    navigate(withQuery(page, query), { replace: true });
  }, [next, isHeld]);
  return known;
}

function Gone({ here, base }: { here: string; base: string }) {
  return (
    <Empty icon="tunnels" title="This tunnel is not online">
      <p class="quiet">Its agent was stopped, or it reconnected with another id. <a href={base}>Tunnels that are online</a></p>
      <ButtonLink href={`${here}?tab=requests`}>Its stored requests</ButtonLink>
    </Empty>
  );
}

function Details({ project, tunnel, agents }: { project: string; tunnel: LiveTunnel; agents: readonly Client[] }) {
  const visit = visitAddress(tunnel);
  const dial = dialAddress(tunnel);
  const base = to("/projects/:id", { id: project });
  return (
    <>
      <div class="grid">
        <Card title="Addresses">
          {visit !== undefined && <Code text={visit} label="Copy the address" />}
          {dial !== undefined && <Code text={`svc dial ${dial}`} label="Copy the command" />}
          {visit === undefined && dial === undefined && <p class="quiet">It has no address; its id is in the settings.</p>}
        </Card>
        <Card title="Access">
          <Sentence project={project} tunnel={tunnel} />
        </Card>
        <Card isFlush title={`Agents (${agents.length})`}>
          <ul class="plain rows">
            {agents.map((agent) => (
              <li key={agent.id} class="row">
                <span class="stack">
                  <a href={`${base}/clients?q=${encodeURIComponent(agent.id)}`}>{describe(agent)}</a>
                  <span class="small quiet">{agent.id}</span>
                </span>
                <Status of={agent.status} />
              </li>
            ))}
          </ul>
        </Card>
      </div>
      {tunnel.name !== undefined && <TrafficGraphs project={project} tunnel={tunnel.name} />}
      <Card title="Settings" actions={<span class="small quiet">Set by the agent</span>}>
        <Table label="Settings" columns={["Setting", "Value", "Change it with"]}>
          {agentSettings(tunnel).map((setting) => (
            <tr key={setting.name}>
              <td>{setting.name}</td>
              <td>{setting.value}</td>
              <td>
                <code>{setting.option}</code>
              </td>
            </tr>
          ))}
        </Table>
        <p class="quiet small">
          Options of <code>svc forward</code>. The file of <code>svc run</code> has the same settings.
        </p>
      </Card>
      <Card title="About this tunnel">
        <Facts
          rows={[
            ["Region", tunnel.region],
            ["Online since", <Time key="since" at={tunnel.creation_date} />],
            ["User", tunnel.user_id],
            ["Id", <code key="id">{tunnel.id}</code>],
          ]}
        />
      </Card>
    </>
  );
}

function Access({ project, tunnel }: { project: string; tunnel: LiveTunnel }) {
  const settings = useSettings(project);
  const rules = useMemo(() => accessRules(tunnel, settings.data), [tunnel, settings.data]);
  return (
    <>
      <Card isFlush title={sentence(tunnel, settings.data)}>
        <Table label="Rules" columns={["Rule", "Value", "Set by", "Change it with"]}>
          {rules.map((rule) => (
            <tr key={rule.owner + rule.name}>
              <td>{rule.name}</td>
              <td>{rule.value}</td>
              <td>
                <Pill>{rule.owner}</Pill>
              </td>
              <td>{rule.owner === "project" ? <a href={`${to("/projects/:id", { id: project })}/settings`}>{rule.change}</a> : <code>{rule.change}</code>}</td>
            </tr>
          ))}
        </Table>
      </Card>
      {settings.isHidden && <HiddenRules />}
    </>
  );
}

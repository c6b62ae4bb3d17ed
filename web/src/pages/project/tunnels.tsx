// The live tunnels of a project, with search and filters.

import { useMemo, useRef } from "preact/hooks";
import { useProject } from "../../api/data";
import { count } from "../../format/text";
import type { Tunnel } from "../../live/objects";
import { useLive } from "../../live/project";
import { requestsOf } from "../../live/traffic";
import { useTraffic } from "../../live/use-traffic";
import { navigate, useDialog, useFilter } from "../../router/location";
import { to, withQuery } from "../../router/match";
import { Search, Select } from "../../ui/fields";
import { Button, ButtonLink, Card, Empty, Labels, Page, Skeleton, Status, Time } from "../../ui/parts";
import { Spark } from "../../ui/spark";
import { Virtual } from "../../ui/virtual";
import { nameOf, visitAddress } from "../address";
import { Publish } from "../publish";
import { filterTunnels } from "./filter";
import { LivePill, LiveState, useIsEmpty } from "./overview";
import { useProjectRights } from "./rights";
import { ShareDialog } from "./share";
import { CloseDialog } from "./tunnel-dialogs";
import { Takedowns } from "./takedowns";

const PROTOCOLS = ["http", "tls", "tcp", "dtls", "quic", "webtty"];

export function Tunnels({ project }: { project: string }) {
  const live = useLive(project);
  const data = useProject(project).data;
  // One permission is for opening and for closing.
  const mayPublish = useProjectRights(project).may("tunnels.tunnels.create-delete");
  const [search, setSearch] = useFilter("q");
  const [protocol, setProtocol] = useFilter("protocol");
  const [visibility, setVisibility] = useFilter("visibility");
  const [label, setLabel] = useFilter("label");
  const found = useMemo(() => filterTunnels(live.objects.sortedTunnels, { search, protocol, visibility, label }), [live.objects.sortedTunnels, search, protocol, visibility, label]);
  const [dialog, setDialog] = useDialog("show");
  const [chosenId, setChosen] = useDialog("tunnel");
  const chosen = live.objects.tunnels.get(chosenId);
  const shared = useShared(chosen, chosenId);
  const open = (show: string, id: string) => {
    setChosen(id, true);
    setDialog(show);
  };
  const close = () => {
    setDialog("", true);
    setChosen("", true);
  };
  const traffic = useTraffic(project, "15m", "tunnel").data;
  const requests = useMemo(() => (traffic === undefined ? undefined : requestsOf(traffic)), [traffic]);
  const total = live.objects.tunnels.size;
  const isEmpty = useIsEmpty(live);
  const base = to("/projects/:id", { id: project });
  return (
    <Page
      title="Tunnels"
      note={
        <>
          <LivePill live={live} /> <span class="number">{found.length === total ? `${count(total)} online` : `${count(found.length)} of ${count(total)} online`}</span>
        </>
      }
      actions={
        mayPublish && (
          <ButtonLink href={withQuery("/welcome", { project })} look="main" icon="plus">
            Publish something
          </ButtonLink>
        )
      }
    >
      <LiveState live={live} />
      <Takedowns project={project} />
      {isEmpty && data !== undefined && <Publish project={data} />}
      {!(isEmpty && total === 0) && (
        <>
          <div class="bar">
            <Search label="Search names, addresses and ids" value={search} onValue={(value) => setSearch(value, true)} />
            <Select label="Protocol" isLabelSeen={false} value={protocol} onValue={setProtocol} options={[{ value: "", text: "All protocols" }, ...PROTOCOLS.map((value) => ({ value, text: value }))]} />
            <Select
              label="Visibility"
              isLabelSeen={false}
              value={visibility}
              onValue={setVisibility}
              options={[
                { value: "", text: "Public and private" },
                { value: "public", text: "Public" },
                { value: "private", text: "Private" },
                { value: "protected", text: "Needs a proof" },
              ]}
            />
            <input class="input" aria-label="Label, as name or name=value" placeholder="label=value" value={label} autocomplete="off" spellcheck={false} onInput={(event) => setLabel(event.currentTarget.value, true)} />
          </div>
          <Card isFlush>
            {!live.objects.hasSnapshot ? (
              live.error === undefined ? <div class="rows"><div><Skeleton rows={6} /></div></div> : <p class="empty quiet">The tunnels appear as soon as the engine responds.</p>
            ) : found.length === 0 ? (
              <Empty icon="search" title="Nothing matches">
                <Button onClick={() => navigate(`${base}/tunnels`)}>Show all tunnels</Button>
              </Empty>
            ) : (
              <>
                <div class="vhead has-actions columns-tunnel" aria-hidden="true">
                  <span>Name</span>
                  <span>Address</span>
                  <span>Protocol</span>
                  <span>Labels</span>
                  <span>Requests, 15 min</span>
                  <span>Since</span>
                </div>
                <Virtual label={`${found.length} tunnels`} rows={found} height={48} narrowHeight={68} row={(tunnel, style) => <Row key={tunnel.id} tunnel={tunnel} base={base} requests={requests?.(tunnel.name) ?? []} style={style} mayClose={mayPublish} onShow={open} />} />
              </>
            )}
          </Card>
        </>
      )}
      {dialog === "share" && shared !== undefined && <ShareDialog project={project} tunnel={shared} onClose={close} />}
      {dialog === "close" && mayPublish && chosen !== undefined && <CloseDialog project={project} tunnel={chosen} tunnels={live.objects.tunnels} clients={live.objects.clients} onClose={close} />}
    </Page>
  );
}

/** The tunnel of the dialog, also after it has ended: a token for visitors is shown once. */
function useShared(chosen: Tunnel | undefined, id: string): Tunnel | undefined {
  const last = useRef<Tunnel | undefined>(undefined);
  if (chosen !== undefined) last.current = chosen;
  return last.current?.id === id ? last.current : undefined;
}

interface RowProps {
  tunnel: Tunnel;
  base: string;
  requests: readonly number[];
  style: { top: string; height: string };
  mayClose: boolean;
  onShow: (dialog: string, id: string) => void;
}

function Row({ tunnel, base, requests, style, mayClose, onShow }: RowProps) {
  const id = tunnel.id ?? "";
  const name = nameOf(tunnel);
  return (
    <div class="vitem" style={{ ...style }}>
      <a class="vrow columns-tunnel" href={`${base}/tunnels/${encodeURIComponent(id)}`}>
        <strong class="cut">{name}</strong>
        <span class="cut quiet">{visitAddress(tunnel) ?? "private"}</span>
        <span>{tunnel.protocol ?? "http"}</span>
        <span class="cut">
          <Labels of={tunnel.labels} />
        </span>
        <Spark values={requests} label={`Requests of ${name} per minute`} />
        <span class="cut small quiet">{tunnel.status === "offline" ? <Status of="offline" /> : <Time at={tunnel.creation_date} />}</span>
      </a>
      <span class="vactions">
        <Button look="bare" icon="share" aria-label={`Share ${name}`} title="Share" onClick={() => onShow("share", id)} />
        {mayClose && <Button look="bare" icon="close" aria-label={`Close ${name}`} title="Close" onClick={() => onShow("close", id)} />}
      </span>
    </div>
  );
}

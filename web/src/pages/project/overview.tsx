// The overview of a project: live objects, events and traffic.

import type { ComponentChildren } from "preact";
import { useMemo, useRef } from "preact/hooks";
import { type Project, useProject } from "../../api/data";
import { bytes, count, millis, rate, words } from "../../format/text";
import type { Tunnel } from "../../live/objects";
import { first } from "../../live/order";
import { type LiveView, useLive } from "../../live/project";
import { add, columns, percentile, type Traffic } from "../../live/traffic";
import { useTraffic } from "../../live/use-traffic";
import { to } from "../../router/match";
import { ButtonLink, Card, Code, Facts, Failure, Loaded, Page, Pill, Status, Time } from "../../ui/parts";
import { Spark } from "../../ui/spark";
import { Table } from "../../ui/table";
import { nameOf, visitAddress } from "../address";
import { Publish } from "../publish";
import { TrafficGraphs } from "../traffic";
import { useProjectRights } from "./rights";

export function Overview({ project }: { project: string }) {
  const resource = useProject(project);
  const mayPublish = useProjectRights(project).may("tunnels.tunnels.create-delete");
  return (
    <Page title={resource.data?.name ?? "Project"} note={resource.data !== undefined && <code>{resource.data.url}</code>} actions={mayPublish && <ButtonLink href={`/welcome?project=${encodeURIComponent(project)}`} look="main" icon="plus">Publish something</ButtonLink>}>
      <Loaded of={resource}>{(data) => <Content project={data} />}</Loaded>
    </Page>
  );
}

function Content({ project }: { project: Project }) {
  const live = useLive(project.id);
  const traffic = useTraffic(project.id, "15m", "tunnel");
  const isEmpty = useIsEmpty(live);
  const hasTraffic = traffic.data === undefined ? traffic.error === undefined : traffic.data.series.some((series) => series.points.length > 0);
  return (
    <>
      <LiveState live={live} />
      {isEmpty && <Publish project={project} />}
      {!(isEmpty && live.objects.tunnels.size === 0 && !hasTraffic) && (
        <>
          <Stats live={live} traffic={traffic.data} />
          <TrafficGraphs project={project.id} />
          <div class="split">
            <Busy project={project.id} live={live} traffic={traffic.data} />
            <Feed project={project.id} live={live} />
          </div>
        </>
      )}
      <About project={project} />
    </>
  );
}

/**
 * True if nothing is published, or was when the view opened: the first tunnel then stays with its address and
 * next steps in place of the command.
 */
export function useIsEmpty(live: LiveView): boolean {
  const atStart = useRef<boolean | undefined>(undefined);
  const isNow = live.objects.hasSnapshot && live.objects.tunnels.size === 0;
  if (atStart.current === undefined && live.objects.hasSnapshot) atStart.current = isNow;
  return isNow || atStart.current === true;
}

/** The state of the live view, in place, while it is not live. */
export function LiveState({ live }: { live: LiveView }) {
  // Notices of the frame cover the platform, the session and a suspension.
  if (live.error === undefined || live.error.code === "unreachable" || live.error.code === "project_suspended" || live.error.status === 401) return null;
  return <Failure error={live.error} />;
}

export function LivePill({ live }: { live: LiveView }) {
  if (live.state === "live") {
    return (
      <Pill tone="good" isLive>
        Live
      </Pill>
    );
  }
  return <Pill tone="warn">{live.state === "waiting" ? "Reconnecting" : "Connecting"}</Pill>;
}

function Stats({ live, traffic }: { live: LiveView; traffic: Traffic | undefined }) {
  const view = useMemo(() => {
    if (traffic === undefined) return undefined;
    const points = traffic.series.flatMap((series) => series.points);
    const grid = columns(traffic, mergeByTime(points));
    const sum = add(points);
    const perSecond = grid.points.map((point) => (point?.requests ?? 0) / grid.stepSeconds);
    return {
      sum,
      perSecond,
      errors: grid.points.map((point) => point?.errors ?? 0),
      now: Math.max(perSecond.at(-1) ?? 0, perSecond.at(-2) ?? 0),
      p50: percentile(sum.durations, traffic.bucketBounds, 0.5),
      p99: percentile(sum.durations, traffic.bucketBounds, 0.99),
    };
  }, [traffic]);
  const share = view === undefined || view.sum.requests === 0 ? 0 : view.sum.errors / view.sum.requests;
  return (
    <div class="stats">
      <Stat name="Tunnels" value={live.objects.hasSnapshot ? count(live.objects.tunnels.size) : "–"} />
      <Stat name="Clients" value={live.objects.hasSnapshot ? count(live.objects.clients.size) : "–"} />
      {view !== undefined && (
        <>
          <Stat name="Requests per second" value={rate(view.now)}>
            <Spark values={view.perSecond} label="Requests per second in the last 15 minutes" />
          </Stat>
          <Stat name="Errors, 15 min" value={`${(share * 100).toFixed(share > 0 && share < 0.1 ? 1 : 0)} %`}>
            <Spark values={view.errors} label="Errors in the last 15 minutes" isBad />
          </Stat>
          <Stat name="p50 / p99, 15 min" value={pair(millis(view.p50), millis(view.p99))} />
          <Stat name="Out / in, 15 min" value={pair(bytes(view.sum.downstreamBytes), bytes(view.sum.upstreamBytes))} />
        </>
      )}
    </div>
  );
}

/** Two values that wrap only between them. */
function pair(one: string, other: string): string {
  const whole = (text: string) => text.replace(" ", "\u00a0");
  return `${whole(one)} / ${whole(other)}`;
}

function Stat({ name, value, children }: { name: string; value: string; children?: ComponentChildren }) {
  return (
    <div class="stat">
      <span class="name">{name}</span>
      <span class="value">{value}</span>
      {children}
    </div>
  );
}

/** Points of several tunnels at the same time as one. */
function mergeByTime(points: readonly Traffic["series"][number]["points"][number][]) {
  const byTime = new Map<string, (typeof points)[number][]>();
  for (const point of points) byTime.set(point.at, [...(byTime.get(point.at) ?? []), point]);
  return [...byTime].map(([at, same]) => ({ at, ...add(same) }));
}

const NO_TRAFFIC = add([]);

/** Rows of the busiest tunnels; the list has all of them. */
const BUSY_ROWS = 10;

function Busy({ project, live, traffic }: { project: string; live: LiveView; traffic: Traffic | undefined }) {
  const base = to("/projects/:id", { id: project });
  const rows = useMemo(() => {
    const series = new Map((traffic?.series ?? []).flatMap((one) => (one.tunnel === undefined ? [] : [[one.tunnel, one] as const])));
    const sums = new Map([...series].map(([name, one]) => [name, add(one.points)]));
    // There may be thousands of tunnels, so that only the rows that are shown get a graph.
    const sumOf = (tunnel: Tunnel) => sums.get(tunnel.name ?? "") ?? NO_TRAFFIC;
    return first(live.objects.sortedTunnels, BUSY_ROWS, (one, other) => sumOf(other).requests - sumOf(one).requests)
      .map((tunnel) => ({ tunnel, sum: sumOf(tunnel) }))
      .map((row) => ({ ...row, perMinute: traffic === undefined ? [] : columns(traffic, series.get(row.tunnel.name ?? "")?.points ?? []).points.map((point) => point?.requests ?? 0) }));
  }, [live, traffic]);
  const bounds = traffic?.bucketBounds ?? [];
  return (
    <Card isFlush title="Tunnels" actions={<a href={`${base}/tunnels`}>All {count(live.objects.tunnels.size)}</a>}>
      {rows.length === 0 ? (
        <p class="empty quiet">No tunnel is online.</p>
      ) : (
        <Table columns={["Name", "Last 15 minutes"]} numbers={["Requests", "Errors", "p50", "p99"]}>
          {rows.map(({ tunnel, sum, perMinute }) => (
            <tr key={tunnel.id}>
              <td>
                <div class="stack">
                  <a href={`${base}/tunnels/${encodeURIComponent(tunnel.id ?? "")}`}>{nameOf(tunnel)}</a>
                  <span class="small quiet cut">{visitAddress(tunnel) ?? "private"}</span>
                </div>
              </td>
              <td>
                <Spark values={perMinute} label={`Requests of ${nameOf(tunnel)} per minute`} />
              </td>
              <td class="end number">{count(sum.requests)}</td>
              <td class="end number">{count(sum.errors)}</td>
              <td class="end number">{millis(percentile(sum.durations, bounds, 0.5))}</td>
              <td class="end number">{millis(percentile(sum.durations, bounds, 0.99))}</td>
            </tr>
          ))}
        </Table>
      )}
    </Card>
  );
}

function Feed({ project, live }: { project: string; live: LiveView }) {
  const base = to("/projects/:id", { id: project });
  return (
    <Card isFlush title={<>Events <LivePill live={live} /></>} actions={<a href={`${base}/events`}>Stored events</a>}>
      {live.objects.events.length === 0 ? (
        <p class="empty quiet">Events appear here as they happen.</p>
      ) : (
        <ol class="plain feed" aria-label="Events, newest first" tabIndex={0}>
          {live.objects.events.slice(0, FEED_ROWS).map((event) => (
            <li key={event.id}>
              <Pill tone={event.type.endsWith("deleted") ? "bad" : event.type.endsWith("created") ? "good" : "plain"}>{words(event.type)}</Pill>
              <span class="cut">{event.subject}</span>
              <span class="quiet small">
                <Time at={event.at} />
              </span>
            </li>
          ))}
        </ol>
      )}
    </Card>
  );
}

/** Rows of the list of events; more are on the page of stored events. */
const FEED_ROWS = 50;

function About({ project }: { project: Project }) {
  return (
    <Card title="About this project">
      <Facts
        rows={[
          ["Engine", <Code key="engine" text={project.url} label="Copy the address of the engine" />],
          ["Plan", project.plan],
          ["Region", `${project.region} (${project.provider})`],
          ["Status", <Status key="status" of={project.status} />],
          ["TURN", `turn:${project.turnDomain}:${project.turnPort}`],
          ["Id", <code key="id">{project.id}</code>],
        ]}
      />
    </Card>
  );
}

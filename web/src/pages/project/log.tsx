// The request log: filters, live rows, and one visit with its timing, rule and next step.

import { useMemo, useState } from "preact/hooks";
import { bothZones, bytes, localSeconds, millis } from "../../format/text";
import { statusClass, type Visit } from "../../format/visit";
import { useLog } from "../../live/use-log";
import { useDialog, useFilter } from "../../router/location";
import { to } from "../../router/match";
import { Dialog } from "../../ui/dialog";
import { Search, Select } from "../../ui/fields";
import { Button, Card, Code, Empty, Facts, Failure, Page, Pill, Skeleton, Status, Time, type Tone } from "../../ui/parts";
import { Virtual } from "../../ui/virtual";

export function Requests({ project }: { project: string }) {
  return (
    <Page title="Requests" note="Every visit, also those that were refused. Engines report within ten seconds.">
      <RequestLog project={project} />
    </Page>
  );
}

export function RequestLog({ project, tunnel = "" }: { project: string; tunnel?: string }) {
  const [q, setQ] = useFilter("q");
  const [outcome, setOutcome] = useFilter("outcome");
  const [timeline, setTimeline] = useFilter("timeline", "24h");
  const [status, setStatus] = useFilter("status");
  const [from, setFrom] = useFilter("from");
  const [reference, setReference] = useFilter("reference");
  const [chosen, setChosen] = useDialog("visit");
  const [isFollowing, setFollowing] = useState(true);
  const log = useLog(project, { q, outcome, tunnel, reference: /^[0-9a-f]{24}$/.test(reference.trim()) ? reference.trim() : "", timeline }, isFollowing);
  const found = useMemo(
    () => (log.visits ?? []).filter((visit) => (status === "" || statusClass(visit.status) === status) && (from === "" || `${visit.from ?? ""} ${visit.user ?? ""}`.includes(from.trim()))),
    [log.visits, status, from],
  );
  const visit = chosen === "" ? undefined : log.visits?.find((one) => one.id === chosen);
  return (
    <>
      <div class="bar">
        <Search label="Search host, path and address" value={q} onValue={(value) => setQ(value, true)} />
        <Select label="Outcome" isLabelSeen={false} value={outcome} onValue={setOutcome} options={[{ value: "", text: "All outcomes" }, { value: "connected", text: "Served" }, { value: "failed", text: "Failed" }, { value: "denied", text: "Refused" }]} />
        <Select label="Status" isLabelSeen={false} value={status} onValue={setStatus} options={[{ value: "", text: "All statuses" }, ...["2xx", "3xx", "4xx", "5xx"].map((value) => ({ value, text: value })), { value: "none", text: "No status" }]} />
        <Select label="Time" isLabelSeen={false} value={timeline} onValue={setTimeline} options={[{ value: "30m", text: "30 minutes" }, { value: "1h", text: "1 hour" }, { value: "12h", text: "12 hours" }, { value: "24h", text: "24 hours" }, { value: "3d", text: "3 days" }, { value: "1w", text: "1 week" }, { value: "30d", text: "30 days" }]} />
        <input class="input" aria-label="Address or user of the visitor" placeholder="Visitor" value={from} autocomplete="off" spellcheck={false} onInput={(event) => setFrom(event.currentTarget.value, true)} />
        <input class="input" aria-label="Reference on a refusal page" placeholder="Reference" value={reference} autocomplete="off" spellcheck={false} onInput={(event) => setReference(event.currentTarget.value, true)} />
        <Button aria-pressed={isFollowing} onClick={() => setFollowing(!isFollowing)}>
          {isFollowing ? "Following" : "Paused"}
        </Button>
      </div>
      {log.error !== undefined && <Failure error={log.error} />}
      {chosen !== "" && visit === undefined && log.visits !== undefined && (
        <div class="note is-warn" role="status">
          <strong>The request of this address is not among those below</strong>
          <span>Choose a longer time, load older requests, or search its reference. Logs are kept as long as the plan states.</span>
          <span>
            <Button onClick={() => setChosen("", true)}>Show the log</Button>
          </span>
        </div>
      )}
      <Card isFlush>
        {log.visits === undefined ? (
          log.error === undefined && <div class="rows"><div><Skeleton rows={6} /></div></div>
        ) : found.length === 0 ? (
          <Empty icon="log" title={log.visits.length === 0 ? "No requests" : "Nothing matches"}>
            <p class="quiet">{log.visits.length === 0 ? "Open an address of a tunnel; the request appears here within ten seconds." : "Change the filters, or choose a longer time."}</p>
          </Empty>
        ) : (
          <>
            <div class="vhead columns-log" aria-hidden="true">
              <span>Time</span>
              <span>Status</span>
              <span>Method</span>
              <span>Address</span>
              <span>Visitor</span>
              <span>Duration</span>
            </div>
            <Virtual label={`${found.length} requests`} rows={found} height={40} row={(one, style) => <Row key={one.id} visit={one} style={style} onOpen={() => setChosen(one.id)} />} />
            {log.hasOlder && (
              <div class="paging">
                <Button onClick={log.loadOlder}>Load older requests</Button>
              </div>
            )}
          </>
        )}
      </Card>
      {visit !== undefined && <Detail project={project} visit={visit} onClose={() => setChosen("", true)} />}
    </>
  );
}

function Row({ visit, style, onOpen }: { visit: Visit; style: { top: string; height: string }; onOpen: () => void }) {
  const time = new Date(visit.at);
  return (
    <button type="button" class="vrow columns-log" style={{ ...style }} onClick={onOpen}>
      <time class="number cut" dateTime={time.toISOString()} title={bothZones(time)}>
        {localSeconds(time)}
      </time>
      <Pill tone={toneOfVisit(visit)}>{visit.status ?? (visit.outcome === "connected" ? "open" : visit.outcome)}</Pill>
      <span class="cut">{visit.method ?? "stream"}</span>
      <span class="cut">
        <span class="quiet host">{visit.host}</span>
        {visit.path}
      </span>
      <span class="cut quiet">{visit.from}</span>
      <span class="number cut">{millis(visit.durationMs)}</span>
    </button>
  );
}

export function toneOfVisit(visit: Visit): Tone {
  if (visit.outcome === "denied") return "warn";
  if (visit.outcome === "failed" || (visit.status ?? 0) >= 500) return "bad";
  return (visit.status ?? 200) >= 400 ? "warn" : "good";
}

function Detail({ project, visit, onClose }: { project: string; visit: Visit; onClose: () => void }) {
  const base = to("/projects/:id", { id: project });
  const total = visit.durationMs;
  const established = visit.establishMs;
  return (
    <Dialog title={`${visit.method ?? "Connection"} ${visit.path ?? ""}`} isWide onClose={onClose}>
      {visit.outcome !== "connected" || visit.rule !== undefined ? (
        <div class={visit.outcome === "denied" ? "note is-warn" : "note is-bad"}>
          <strong>{visit.sentence ?? (visit.outcome === "denied" ? "The edge refused the visitor." : "The visit failed.")}</strong>
          {visit.reason !== undefined && <span>{visit.reason}</span>}
          {visit.detail !== undefined && <span class="small">The visitor reads: {visit.detail}</span>}
          {visit.step !== undefined && (
            <span>
              Next step: {visit.step}
            </span>
          )}
        </div>
      ) : null}
      <Facts
        rows={[
          ["Time", <Time key="time" at={visit.at} isRelative={false} />],
          ["Outcome", <Status key="outcome" of={visit.outcome} />],
          ["Status", visit.status === undefined ? undefined : String(visit.status)],
          ["Host", visit.host],
          ["Visitor", [visit.from, visit.country, visit.user].filter((part) => part !== undefined).join(" · ")],
          ["Proof", visit.proof === "none" ? "none" : visit.proof],
          ["Rule", visit.rule === undefined ? undefined : <code key="rule">{visit.rule}</code>],
          ["Problem", visit.problem === undefined ? undefined : <code key="problem">{visit.problem}</code>],
          ["Until the service", established === undefined ? undefined : millis(established)],
          ["In the service", established === undefined || total === undefined ? undefined : millis(Math.max(0, total - established))],
          ["In all", total === undefined ? undefined : millis(total)],
          ["To the visitor", visit.downstreamBytes === undefined ? undefined : bytes(visit.downstreamBytes)],
          ["From the visitor", visit.upstreamBytes === undefined ? undefined : bytes(visit.upstreamBytes)],
          ["Tunnel", visit.tunnel === undefined ? undefined : <a key="tunnel" href={`${base}/tunnels/${encodeURIComponent(visit.tunnel)}`}>{visit.tunnel}</a>],
          ["Reference", <Code key="reference" text={visit.reference} label="Copy the reference" />],
        ]}
      />
      <Code text={`svc explain ${visit.reference}`} label="Copy the command" />
    </Dialog>
  );
}

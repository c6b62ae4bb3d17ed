// Sessions of terminals: active and past ones, and the search in their recordings. The terminal itself
// and the player are documents of the platform.

import { useMemo, useState } from "preact/hooks";
import { call, callEngine } from "../../api/client";
import { FULL_PAGE, useProject } from "../../api/data";
import { useResource } from "../../api/resource";
import { commandOf, durationOf, endOf, type Session, sessionParams } from "../../format/session";
import { useDialog, useFilter } from "../../router/location";
import { to as path } from "../../router/match";
import { useNow } from "../../ui/clock";
import { Day, Select } from "../../ui/fields";
import { Button, ButtonLink, Card, Empty, Loaded, Page, Status, Tabs, Time } from "../../ui/parts";
import { Table } from "../../ui/table";
import { useMemberNames } from "../names";
import { RecordingSearch } from "./recording-search";
import { useProjectRights } from "./rights";
import { SessionDialog } from "./session";

/** Sessions that are shown first. */
const FIRST = 50;
/** Pages of servers whose names are loaded: 500 servers, the limit of a project. */
const MAX_SERVER_PAGES = 5;
/** Most sessions in a response of the engine. */
const MOST = 1000;

export function Sessions({ project }: { project: string }) {
  const [tab] = useFilter("tab", "sessions");
  const [chosen, setChosen] = useDialog("session");
  const mayRead = useProjectRights(project).may("webtty.logs.read-only");
  const here = `${path("/projects/:id", { id: project })}/recordings`;
  const names = useSessionNames(project);
  return (
    <Page
      title="Terminal sessions"
      note="Uses of the terminals of the project, live and recorded."
      actions={<ButtonLink href={`${path("/projects/:id", { id: project })}/terminals`}>Open a terminal</ButtonLink>}
    >
      {mayRead && (
        <Tabs
          label="Views of the sessions"
          items={[
            { href: here, text: "Sessions", isChosen: tab !== "search" },
            { href: `${here}?tab=search`, text: "Search recordings", isChosen: tab === "search" },
          ]}
        />
      )}
      {tab === "search" && mayRead ? <RecordingSearch project={project} onOpen={setChosen} /> : <List project={project} names={names} mayRead={mayRead} onOpen={setChosen} />}
      {chosen !== "" && <SessionDialog key={chosen} project={project} id={chosen} names={names} onClose={() => setChosen("", true)} />}
    </Page>
  );
}

export interface SessionNames {
  readonly people: ReadonlyMap<string, string>;
  readonly servers: ReadonlyMap<string, string>;
}

function useSessionNames(project: string): SessionNames {
  const people = useMemberNames(useProject(project).data?.workspaceId);
  const servers = useResource(`project/${project}/servers/names`, async (signal) => {
    const all: { id: string; name: string }[] = [];
    for (let page = 1; page <= MAX_SERVER_PAGES; page += 1) {
      const list = await call("get", "/api/projects/tunnels/{project_id}/webtty/servers", { path: { project_id: project }, query: { page, pageSize: FULL_PAGE }, signal });
      all.push(...list.servers);
      if (page >= list.totalPages) break;
    }
    return all;
  }).data;
  return useMemo(() => ({ people, servers: new Map((servers ?? []).map((one) => [one.id, one.name])) }), [people, servers]);
}

export function personOf(session: Session, names: SessionNames): string {
  const id = session.initiator_user_id;
  return id === undefined ? "an agent" : (names.people.get(id) ?? id);
}

export function serverOf(session: Session, names: SessionNames): string {
  const id = session.server_id ?? session.tunnel_id;
  return names.servers.get(id) ?? id;
}

interface ListProps {
  project: string;
  names: SessionNames;
  mayRead: boolean;
  onOpen: (id: string) => void;
}

function List({ project, names, mayRead, onOpen }: ListProps) {
  const [status, setStatus] = useFilter("status");
  const [user, setUser] = useFilter("user");
  const [server, setServer] = useFilter("server");
  const [from, setFrom] = useFilter("from");
  const [to, setTo] = useFilter("to");
  const [limit, setLimit] = useState(FIRST);
  const params = sessionParams({ status, user, server, from, to }, limit);
  const sessions = useResource(`project/${project}/sessions/${params}`, (signal) => callEngine("get", project, "/api/webtty/sessions", { query: { params }, signal }), { every: 5_000 });
  // The rows of a smaller limit stay while more load.
  const [last, setLast] = useState<readonly Session[] | undefined>(undefined);
  if (sessions.data !== undefined && sessions.data !== last) setLast(sessions.data);
  const data = sessions.data ?? last;
  const isFiltered = [status, user, server, from, to].some((value) => value !== "");
  return (
    <>
      <div class="bar" role="search" aria-label="Filters">
        <Select
          label="Status"
          isLabelSeen={false}
          value={status}
          onValue={setStatus}
          options={[
            { value: "", text: "Active and past" },
            { value: "active", text: "Active" },
            { value: "closed", text: "Ended" },
            { value: "errored", text: "Ended with an error" },
          ]}
        />
        <Select label="User" isLabelSeen={false} value={user} onValue={setUser} options={choices("All users", names.people, user)} />
        <Select label="Server" isLabelSeen={false} value={server} onValue={setServer} options={choices("All servers", names.servers, server)} />
        <Day label="From" value={from} onValue={setFrom} />
        <Day label="To" value={to} onValue={setTo} />
      </div>
      <Card isFlush>
        <Loaded of={{ ...sessions, data }}>
          {(list) =>
            list.length === 0 ? (
              <Empty icon="terminal" title={isFiltered ? "Nothing matches" : "No session yet"}>
                {!isFiltered && (
                  <p class="quiet">
                    <code>svc webtty server</code> offers a terminal; each use of it appears here.
                  </p>
                )}
              </Empty>
            ) : (
              <>
                <Rows project={project} sessions={list} names={names} mayRead={mayRead} onOpen={onOpen} />
                {list.length >= limit && limit < MOST && (
                  <div class="paging">
                    <Button isBusy={sessions.isLoading && sessions.data === undefined} onClick={() => setLimit(Math.min(limit * 2, MOST))}>
                      Show more
                    </Button>
                  </div>
                )}
              </>
            )
          }
        </Loaded>
      </Card>
    </>
  );
}

function choices(all: string, names: ReadonlyMap<string, string>, chosen: string): { value: string; text: string }[] {
  const known = [...names].map(([value, text]) => ({ value, text }));
  // The address may contain the id of a removed user or server, which has no name.
  const unknown = chosen === "" || names.has(chosen) ? [] : [{ value: chosen, text: chosen }];
  return [{ value: "", text: all }, ...known, ...unknown];
}

function Rows({ project, sessions, names, mayRead, onOpen }: ListProps & { sessions: readonly Session[] }) {
  const now = useNow();
  return (
    <Table label="Sessions" columns={["Started", "Server", "User", "Command", "Duration", "State"]} hasActions>
      {sessions.map((one) => (
        <tr key={one.id}>
          <td>
            <Time at={one.started_at} />
          </td>
          <td>{serverOf(one, names)}</td>
          <td>{personOf(one, names)}</td>
          <td>{commandOf(one) === undefined ? <span class="quiet">not readable</span> : <code>{commandOf(one)}</code>}</td>
          <td class="number">{durationOf(one, now) ?? "–"}</td>
          <td>
            <Status of={one.status} />
            <div class="small quiet">{endOf(one)}</div>
          </td>
          <td class="end">
            <span class="buttons">
              <SessionLink project={project} session={one} mayRead={mayRead} />
              <Button look="bare" aria-label={`Details of the session of ${personOf(one, names)} on ${serverOf(one, names)}`} onClick={() => onOpen(one.id)}>
                Details
              </Button>
            </span>
          </td>
        </tr>
      ))}
    </Table>
  );
}

/** The page of the platform that shows the session: live, or its recording. */
export function SessionLink({ project, session, mayRead }: { project: string; session: Session; mayRead: boolean }) {
  const at = path("/projects/:project/sessions/:session", { project, session: session.id });
  if (session.live.attachable) return <ButtonLink href={at}>Watch</ButtonLink>;
  if (mayRead && session.recording_mode === "recorded") return <ButtonLink href={`${at}/replay`}>Replay</ButtonLink>;
  return null;
}

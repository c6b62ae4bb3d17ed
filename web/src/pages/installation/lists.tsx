// Lists of the installation for its operators: users, workspaces, projects.

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { call } from "../../api/client";
import { useUser } from "../../api/data";
import { invalidate, useResource } from "../../api/resource";
import { useDialog, useFilter, usePage } from "../../router/location";
import { Confirm, Dialog } from "../../ui/dialog";
import { Field, Search } from "../../ui/fields";
import { Form } from "../../ui/form";
import { Button, Card, Empty, Facts, Page, Pill, Status, Time } from "../../ui/parts";
import { DetailsCell, PagedList, Table } from "../../ui/table";
import { toast } from "../../ui/toasts";
import { UserSessions } from "./sessions";

/** One row of any of the lists. */
interface Row {
  readonly id: string;
  readonly name: string;
  readonly status: string;
  readonly cells: readonly ComponentChildren[];
  readonly facts: readonly (readonly [string, ComponentChildren])[];
  readonly isSelf: boolean;
  /** True for an operator of the installation; undefined if the row is no user. */
  readonly isOperator?: boolean;
}

interface Paged {
  readonly rows: readonly Row[];
  readonly page: number;
  readonly totalPages: number;
  readonly total: number;
}

interface Query {
  readonly page: number;
  readonly pageSize: number;
  readonly q: string;
}

interface ListProps {
  title: string;
  kind: "users" | "workspaces" | "projects";
  columns: readonly string[];
  load: (query: Query, signal: AbortSignal) => Promise<Paged>;
  suspend: (id: string, reason: string) => Promise<unknown>;
  resume: (id: string) => Promise<unknown>;
  /** Makes a user an operator, or ends that. */
  setOperator?: (id: string, isOperator: boolean) => Promise<unknown>;
  /** More about the chosen row, below its facts. */
  more?: (id: string) => ComponentChildren;
}

function List({ title, kind, columns, load, suspend, resume, setOperator, more }: ListProps) {
  const [q, setQ] = useFilter("q");
  const [page, setPage] = usePage();
  const [chosen, setChosen] = useDialog("chosen");
  const [suspended, setSuspended] = useState<Row | undefined>(undefined);
  const [resumed, setResumed] = useState<Row | undefined>(undefined);
  const [appointed, setAppointed] = useState<Row | undefined>(undefined);
  const list = useResource(`installation/${kind}/${q}/${page}`, (signal) => load({ page, pageSize: 50, q }, signal), { every: 30_000 });
  const one = list.data?.rows.find((row) => row.id === chosen);
  return (
    <Page title={title} note="Of the whole installation.">
      <div class="bar">
        <Search label={`Search ${kind}`} value={q} onValue={(value) => setQ(value, true)} />
      </div>
      <Card isFlush>
        <PagedList of={list} items={(data) => data.rows} empty={<Empty icon="search" title="Nothing matches" />} onPage={setPage}>
          {(rows) => (
            <Table columns={[...columns, "Status"]} hasActions>
              {rows.map((row) => (
                <tr key={row.id}>
                  {row.cells.map((cell, index) => (
                    <td key={columns[index]}>{cell}</td>
                  ))}
                  <td>
                    <Status of={row.status} />
                  </td>
                  <DetailsCell onOpen={() => setChosen(row.id)} />
                </tr>
              ))}
            </Table>
          )}
        </PagedList>
      </Card>
      {one !== undefined && suspended === undefined && resumed === undefined && appointed === undefined && (
        <Dialog title={one.name} isWide={more !== undefined} onClose={() => setChosen("", true)}>
          <Facts rows={[...one.facts, ["Status", <Status key="status" of={one.status} />], ["Id", <code key="id">{one.id}</code>]]} />
          {more?.(one.id)}
          <div class="buttons">
            {setOperator !== undefined && !one.isSelf && (one.isOperator === true || one.status === "active") && (
              <Button onClick={() => setAppointed(one)}>{one.isOperator === true ? "End the role of an operator" : "Make an operator"}</Button>
            )}
            {one.status === "suspended" ? (
              <Button onClick={() => setResumed(one)}>Resume</Button>
            ) : (
              !one.isSelf && (
                <Button look="grave" onClick={() => setSuspended(one)}>
                  Suspend
                </Button>
              )
            )}
          </div>
        </Dialog>
      )}
      {resumed !== undefined && (
        <Confirm title={`Resume ${resumed.name}`} verb="Resume" done={`${resumed.name} is active again.`} onClose={() => setResumed(undefined)} action={async () => { await resume(resumed.id); invalidate(`installation/${kind}`); }}>
          Its use is allowed again immediately.
        </Confirm>
      )}
      {appointed !== undefined && setOperator !== undefined && <Appoint row={appointed} setOperator={setOperator} onClose={() => setAppointed(undefined)} />}
      {suspended !== undefined && <Suspend row={suspended} kind={kind} suspend={suspend} onClose={() => setSuspended(undefined)} />}
    </Page>
  );
}

/** Makes the user of a row an operator, or ends that. */
function Appoint({ row, setOperator, onClose }: { row: Row; setOperator: (id: string, isOperator: boolean) => Promise<unknown>; onClose: () => void }) {
  const isOperator = row.isOperator === true;
  return (
    <Confirm
      title={isOperator ? `End the role of ${row.name}` : `Make ${row.name} an operator`}
      verb={isOperator ? "End the role" : "Make an operator"}
      typed={isOperator ? undefined : row.name}
      done={isOperator ? `${row.name} is no operator any more.` : `${row.name} is an operator now.`}
      onClose={onClose}
      action={async () => {
        await setOperator(row.id, !isOperator);
        invalidate("installation/users");
      }}
    >
      {isOperator ? "The user keeps the account, and its workspaces and projects." : "Operators can suspend every user, workspace and project, and make other users operators. Credentials of this user that are not restricted get this right, too."}
    </Confirm>
  );
}

function Suspend({ row, kind, suspend, onClose }: { row: Row; kind: string; suspend: ListProps["suspend"]; onClose: () => void }) {
  const [reason, setReason] = useState("");
  return (
    <Dialog title={`Suspend ${row.name}`} onClose={onClose}>
      <Form
        verb="Suspend"
        look="grave"
        onClose={onClose}
        onSubmit={async () => {
          await suspend(row.id, reason.trim());
          invalidate(`installation/${kind}`);
          toast(`${row.name} is suspended.`);
          onClose();
        }}
      >
        <p>Its use stops immediately: tunnels close, and sessions and credentials are refused.</p>
        <Field label="Reason" name="reason" value={reason} onValue={setReason} isRequired maxLength={500} hint="It is in the audit log." />
      </Form>
    </Dialog>
  );
}

export function OperatorUsers() {
  const self = useUser().data?.id;
  return (
    <List
      title="Users"
      kind="users"
      columns={["User", "Role", "Second factor", "Last seen", "Created"]}
      load={async (query, signal) => {
        const { users, ...paging } = await call("get", "/api/operator/users", { query, signal });
        const rows = users.map((one) => ({
          id: one.id,
          name: one.name,
          status: one.status,
          isSelf: one.id === self,
          cells: [
            <div class="stack">
              <span>{one.name}</span>
              <span class="small quiet">{one.email}</span>
            </div>,
            one.role === "admin" ? <Pill tone="warn">operator</Pill> : one.role,
            one.secondFactor ? "yes" : <span class="quiet">no</span>,
            one.lastSeenAt === undefined ? <span class="quiet">–</span> : <Time at={one.lastSeenAt} />,
            <Time at={one.createdAt} />,
          ],
          facts: [["Mail", `${one.email}${one.emailVerified ? "" : " (not confirmed)"}`], ["Role", one.role], ["Second factor", one.secondFactor ? "yes" : "no"], ["Last seen", one.lastSeenAt === undefined ? undefined : <Time key="seen" at={one.lastSeenAt} />], ["Created", <Time key="created" at={one.createdAt} />], ["Changed", <Time key="changed" at={one.updatedAt} />]] as const,
          isOperator: one.role === "admin",
        }));
        return { ...paging, rows };
      }}
      suspend={(id, reason) => call("post", "/api/operator/users/{user_id}/suspend", { path: { user_id: id }, body: { reason } })}
      resume={(id) => call("post", "/api/operator/users/{user_id}/resume", { path: { user_id: id } })}
      setOperator={(id, isOperator) => call("patch", "/api/operator/users/{user_id}", { path: { user_id: id }, body: { role: isOperator ? "admin" : "user" } })}
      more={(id) => <UserSessions user={id} />}
    />
  );
}

export function OperatorWorkspaces() {
  return (
    <List
      title="Workspaces"
      kind="workspaces"
      columns={["Name", "Kind", "Subscription", "Created"]}
      load={async (query, signal) => {
        const { workspaces, ...paging } = await call("get", "/api/operator/workspaces", { query, signal });
        const rows = workspaces.map((one) => ({
          id: one.id,
          name: one.name,
          status: one.status,
          isSelf: false,
          cells: [one.name, one.type, one.subscriptionStatus ?? <span class="quiet">none</span>, <Time at={one.createdAt} />],
          facts: [["Kind", one.type], ["Subscription", one.subscriptionStatus], ["Created", <Time key="created" at={one.createdAt} />], ["Changed", <Time key="changed" at={one.updatedAt} />]] as const,
        }));
        return { ...paging, rows };
      }}
      suspend={(id, reason) => call("post", "/api/operator/workspaces/{workspace_id}/suspend", { path: { workspace_id: id }, body: { reason } })}
      resume={(id) => call("post", "/api/operator/workspaces/{workspace_id}/resume", { path: { workspace_id: id } })}
    />
  );
}

export function OperatorProjects() {
  return (
    <List
      title="Projects"
      kind="projects"
      columns={["Name", "Endpoint", "Plan", "Created"]}
      load={async (query, signal) => {
        const { projects, ...paging } = await call("get", "/api/operator/projects", { query, signal });
        const rows = projects.map((one) => ({
          id: one.id,
          name: one.name,
          status: one.suspendedAt === undefined ? one.status : "suspended",
          isSelf: false,
          cells: [one.name, <code>{one.endpoint}</code>, one.plan, <Time at={one.createdAt} />],
          facts: [
            ["Endpoint", <code key="endpoint">{one.endpoint}</code>],
            ["Workspace", <code key="workspace">{one.workspaceId}</code>],
            ["Plan", one.plan],
            ["Region", [one.region, one.provider].filter((part) => part !== undefined).join(" · ")],
            ["Created", <Time key="created" at={one.createdAt} />],
            ["Suspended", one.suspendedAt === undefined ? undefined : <Time key="suspended" at={one.suspendedAt} />],
          ] as const,
        }));
        return { ...paging, rows };
      }}
      suspend={(id, reason) => call("post", "/api/operator/projects/{project_id}/suspend", { path: { project_id: id }, body: { reason } })}
      resume={(id) => call("post", "/api/operator/projects/{project_id}/resume", { path: { project_id: id } })}
    />
  );
}

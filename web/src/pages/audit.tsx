// Audit logs: of a workspace, of the person, of the installation.

import type { ComponentChildren } from "preact";
import { useMemo, useState } from "preact/hooks";
import type { Control } from "../api/client";
import { type Resource, useResource } from "../api/resource";
import { csv, words } from "../format/text";
import { useFilter } from "../router/location";
import { useAction } from "../ui/dialog";
import { Search, Select } from "../ui/fields";
import { Button, Card, Empty, Failure, Json, Loaded, Page, Paging, Time } from "../ui/parts";
import { toast } from "../ui/toasts";

type Entry = Control<"AuditEntry">;
type Fetch = (page: number, signal: AbortSignal | undefined) => Promise<Control<"AuditList">>;

const PAGE_SIZE = 100;
/** Most pages of an export, so that a long log loads in limited time: 10,000 entries. */
const MAX_EXPORT_PAGES = 100;

export { PAGE_SIZE as AUDIT_PAGE_SIZE };

export function Audit({ title, note, cacheKey, fetch, names, tabs }: { title: string; note: string; cacheKey: string; fetch: Fetch; names: ReadonlyMap<string, string>; tabs?: ComponentChildren }) {
  const [page, setPage] = useFilter("page", "1");
  const [action, setAction] = useFilter("action");
  const [q, setQ] = useFilter("q");
  const list: Resource<Control<"AuditList">> = useResource(`${cacheKey}/${page}`, (signal) => fetch(Number(page) || 1, signal), { every: 30_000 });
  const { isBusy, error, run } = useAction();
  const entries = list.data?.entries;
  const actions = useMemo(() => [...new Set((entries ?? []).map((one) => one.action))].sort(), [entries]);
  const found = useMemo(() => filterEntries(entries ?? [], action, q, names), [entries, action, q, names]);
  const download = () =>
    run(async () => {
      const all: Entry[] = [];
      for (let next = 1; next <= MAX_EXPORT_PAGES; next += 1) {
        const part = await fetch(next, undefined);
        all.push(...part.entries);
        if (next >= part.totalPages) break;
      }
      save("audit.csv", csv([["time", "action", "actor", "actor id", "credential", "address", "target kind", "target", "details"], ...filterEntries(all, action, q, names).map((one) => row(one, names))]));
      toast("The log is saved as audit.csv.");
    });
  return (
    <Page
      title={title}
      note={note}
      actions={
        <Button isBusy={isBusy} onClick={download}>
          Export as CSV
        </Button>
      }
    >
      {tabs}
      {error !== undefined && <Failure error={error} onRetry={download} />}
      <div class="bar">
        <Search label="Search names, targets and addresses" value={q} onValue={(value) => setQ(value, true)} />
        <Select label="Action" isLabelSeen={false} value={action} onValue={setAction} options={[{ value: "", text: "All actions" }, ...[...new Set([...actions, ...(action === "" ? [] : [action])])].map((value) => ({ value, text: words(value) }))]} />
      </div>
      <Card isFlush>
        <Loaded of={list}>
          {(data) =>
            found.length === 0 ? (
              <Empty icon="audit" title={data.entries.length === 0 ? "Nothing was done yet" : "Nothing matches on this page"} />
            ) : (
              <Entries entries={found} names={names} />
            )
          }
        </Loaded>
        {list.data !== undefined && <Paging page={list.data.page} totalPages={list.data.totalPages} total={list.data.total} onPage={(next) => setPage(String(next))} />}
      </Card>
    </Page>
  );
}

function Entries({ entries, names }: { entries: readonly Entry[]; names: ReadonlyMap<string, string> }) {
  const [open, setOpen] = useState("");
  return (
    <ul class="plain rows">
      {entries.map((one) => (
        <li key={one.id}>
          <div class="row">
            <span class="stack">
              <span>
                <strong>{words(one.action)}</strong> <span class="quiet">by</span> {actor(one, names)}
              </span>
              <span class="small quiet">
                {one.targetKind} {names.get(one.targetId) ?? one.targetId}
                {one.ip !== undefined && ` · from ${one.ip}`}
                {one.actorCredentialId !== undefined && ` · with ${one.actorCredentialId}`}
              </span>
            </span>
            <span class="small quiet">
              <Time at={one.createdAt} />{" "}
              {Object.keys(one.details).length > 0 && (
                <Button look="bare" aria-expanded={open === one.id} onClick={() => setOpen(open === one.id ? "" : one.id)}>
                  Details
                </Button>
              )}
            </span>
          </div>
          {open === one.id && <Json value={one.details} />}
        </li>
      ))}
    </ul>
  );
}

export function filterEntries(entries: readonly Entry[], action: string, q: string, names: ReadonlyMap<string, string>): Entry[] {
  const text = q.trim().toLowerCase();
  return entries.filter((one) => (action === "" || one.action === action) && (text === "" || row(one, names).join(" ").toLowerCase().includes(text)));
}

function row(one: Entry, names: ReadonlyMap<string, string>): string[] {
  return [one.createdAt, one.action, actor(one, names), one.actorUserId ?? "", one.actorCredentialId ?? "", one.ip ?? "", one.targetKind, names.get(one.targetId) ?? one.targetId, JSON.stringify(one.details)];
}

function actor(one: Entry, names: ReadonlyMap<string, string>): string {
  return one.actorUserId === undefined ? "the platform" : (names.get(one.actorUserId) ?? one.actorUserId);
}

function save(name: string, text: string): void {
  const url = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  URL.revokeObjectURL(url);
}

// Audit logs: of a workspace, of the person, of the installation.

import type { ComponentChildren } from "preact";
import { useMemo, useState } from "preact/hooks";
import type { Control } from "../api/client";
import { type Resource, useResource } from "../api/resource";
import { count, words } from "../format/text";
import { navigate, useAddress, useFilter, usePage } from "../router/location";
import { withQuery } from "../router/match";
import { useAction } from "../ui/action";
import { Day, Search, Select } from "../ui/fields";
import { Button, Card, Empty, Failure, Json, Loaded, Page, Time } from "../ui/parts";
import { save } from "../ui/save";
import { PagedList, Paging } from "../ui/table";
import { toast } from "../ui/toasts";
import { actorOf, asCsv, asJson, type AuditFilter, type AuditQuery, AUDIT_PAGE_SIZE, auditQuery, type Entry, isFiltered, type Loaded as Newest, loadNewest, type Names, NO_FILTER, PLATFORM, searchEntries, targetOf } from "./audit-search";

type Fetch = (query: AuditQuery, signal: AbortSignal | undefined) => Promise<Control<"AuditList">>;

/** Most pages of an export, so that a long log loads in limited time: 10,000 entries. */
const MAX_EXPORT_PAGES = 100;
/** Pages in which a text is searched first, and with each "Search older entries": 1,000 entries. */
const SEARCH_PAGES = 10;

interface AuditProps {
  title: string;
  note: string;
  cacheKey: string;
  fetch: Fetch;
  names: Names;
  /** True for the log of one person, which has no filter by actor. */
  isOwn?: boolean;
  tabs?: ComponentChildren;
}

export function Audit({ title, note, cacheKey, fetch, names, isOwn = false, tabs }: AuditProps) {
  const filter = useAuditFilter(isOwn);
  const { isBusy, error, run } = useAction();
  const download = (kind: "csv" | "json") =>
    run(async () => {
      const { entries, isComplete } = await loadNewest((page) => fetch(auditQuery(filter, page), undefined), MAX_EXPORT_PAGES);
      const found = searchEntries(entries, filter.q, names);
      if (kind === "csv") save("audit.csv", "text/csv", asCsv(found, names));
      else save("audit.json", "application/json", asJson(found, names));
      toast(`${count(found.length)} entries are saved as audit.${kind}.${isComplete ? "" : ` Only the newest ${count(entries.length)} entries were searched.`}`);
    });
  return (
    <Page
      title={title}
      note={note}
      actions={
        <>
          <Button isBusy={isBusy} onClick={() => download("csv")}>
            Export as CSV
          </Button>
          <Button isBusy={isBusy} onClick={() => download("json")}>
            Export as JSON
          </Button>
        </>
      }
    >
      {tabs}
      {error !== undefined && <Failure error={error} />}
      <Filters cacheKey={cacheKey} fetch={fetch} filter={filter} names={names} isOwn={isOwn} />
      {filter.q.trim() === "" ? <Matching cacheKey={cacheKey} fetch={fetch} filter={filter} names={names} /> : <Found cacheKey={cacheKey} fetch={fetch} filter={filter} names={names} />}
    </Page>
  );
}

interface ListProps {
  cacheKey: string;
  fetch: Fetch;
  filter: AuditFilter;
  names: Names;
}

/** Pages of the entries that the platform finds. */
function Matching({ cacheKey, fetch, filter, names }: ListProps) {
  const [page, setPage] = usePage();
  const query = auditQuery(filter, page);
  const list: Resource<Control<"AuditList">> = useResource(`${cacheKey}/${JSON.stringify(query)}`, (signal) => fetch(query, signal), { every: 30_000 });
  const empty = isFiltered(filter) ? <Empty icon="search" title="Nothing matches" /> : <Empty icon="audit" title="Nothing was done yet" />;
  return (
    <Card isFlush>
      <PagedList of={list} items={(data) => data.entries} empty={empty} onPage={setPage}>
        {(entries) => <Entries entries={entries} names={names} />}
      </PagedList>
      {isFiltered(filter) && list.data !== undefined && (
        <div class="paging">
          <span class="small quiet" role="status">
            {count(list.data.total)} entries match.
          </span>
        </div>
      )}
    </Card>
  );
}

/** The entries with a text, in the newest part of those that the platform finds. */
function Found({ cacheKey, fetch, filter, names }: ListProps) {
  const [page, setPage] = usePage();
  const [depth, setDepth] = useState(SEARCH_PAGES);
  const key = `${cacheKey}/newest/${depth}/${JSON.stringify(auditQuery(filter, 1))}`;
  const newest: Resource<Newest> = useResource(key, (signal) => loadNewest((next) => fetch(auditQuery(filter, next), signal), depth));
  // The entries of a smaller search stay while a deeper one loads.
  const [last, setLast] = useState<Newest | undefined>(undefined);
  if (newest.data !== undefined && newest.data !== last) setLast(newest.data);
  const data = newest.data ?? last;
  const found = useMemo(() => searchEntries(data?.entries ?? [], filter.q, names), [data, filter.q, names]);
  const totalPages = Math.ceil(found.length / AUDIT_PAGE_SIZE);
  const shown = Math.min(Math.max(1, page), Math.max(1, totalPages));
  return (
    <>
      <Card isFlush>
        <Loaded of={{ ...newest, data }}>
          {(all) => (
            <>
              {found.length === 0 ? <Empty icon="search" title="Nothing matches" /> : <Entries entries={found.slice((shown - 1) * AUDIT_PAGE_SIZE, shown * AUDIT_PAGE_SIZE)} names={names} />}
              <Paging of={{ page: shown, totalPages, total: found.length }} onPage={setPage} />
              <div class="paging">
                <span class="small quiet" role="status">
                  {all.isComplete ? `${count(found.length)} entries match.` : `${count(found.length)} of the newest ${count(all.entries.length)} entries match the text, of ${count(all.total)}.`}
                </span>
                <span class="buttons">
                  {!all.isComplete && (
                    <Button isBusy={newest.isLoading} onClick={() => setDepth(depth + SEARCH_PAGES)}>
                      Search older entries
                    </Button>
                  )}
                  <Button isBusy={newest.isLoading} onClick={newest.reload}>
                    Search again
                  </Button>
                </span>
              </div>
            </>
          )}
        </Loaded>
      </Card>
    </>
  );
}

function useAuditFilter(isOwn: boolean): AuditFilter {
  const { query } = useAddress();
  const [action, given, from, to, q] = ["action", "actor", "from", "to", "q"].map((name) => query[name] ?? "") as [string, string, string, string, string];
  const actor = isOwn ? "" : given;
  return useMemo(() => ({ action, actor, from, to, q }), [action, actor, from, to, q]);
}

/** The fields of the filter. They offer the actions and actors of the newest entries. */
function Filters({ cacheKey, fetch, filter, names, isOwn }: ListProps & { isOwn: boolean }) {
  const { path, query } = useAddress();
  const newest = auditQuery(NO_FILTER, 1);
  const entries = useResource(`${cacheKey}/${JSON.stringify(newest)}`, (signal) => fetch(newest, signal)).data?.entries ?? NO_ENTRIES;
  const [, setAction] = useFilter("action");
  const [, setActor] = useFilter("actor");
  const [, setFrom] = useFilter("from");
  const [, setTo] = useFilter("to");
  const [, setQ] = useFilter("q");
  const actions = useMemo(() => sorted([...entries.map((one) => one.action), filter.action]), [entries, filter.action]);
  const actors = useMemo(() => sorted([...entries.map((one) => one.actorUserId ?? PLATFORM), filter.actor]), [entries, filter.actor]);
  return (
    <div class="bar" role="search" aria-label="Filters">
      <Search label="Search names, targets and addresses" value={filter.q} onValue={(value) => setQ(value, true)} />
      <Select label="Action" isLabelSeen={false} value={filter.action} onValue={setAction} options={[{ value: "", text: "All actions" }, ...actions.map((value) => ({ value, text: words(value) }))]} />
      {!isOwn && (
        <Select
          label="Actor"
          isLabelSeen={false}
          value={filter.actor}
          onValue={setActor}
          options={[{ value: "", text: "Everyone" }, ...actors.map((value) => ({ value, text: value === PLATFORM ? "The platform" : (names.get(value) ?? value) }))]}
        />
      )}
      <Day label="From" value={filter.from} onValue={setFrom} />
      <Day label="To" value={filter.to} onValue={setTo} />
      {isFiltered(filter) && (
        <Button look="bare" icon="close" onClick={() => navigate(withQuery(path, { of: query["of"] ?? "" }))}>
          Show all
        </Button>
      )}
    </div>
  );
}

const NO_ENTRIES: readonly Entry[] = [];

function sorted(values: readonly string[]): string[] {
  return [...new Set(values.filter((value) => value !== ""))].sort();
}

function Entries({ entries, names }: { entries: readonly Entry[]; names: Names }) {
  const [open, setOpen] = useState("");
  return (
    <ul class="plain rows">
      {entries.map((one) => (
        <li key={one.id}>
          <div class="row">
            <span class="stack">
              <span>
                <strong>{words(one.action)}</strong> <span class="quiet">by</span> <Named id={one.actorUserId} name={actorOf(one, names)} />
              </span>
              <span class="small quiet">
                {words(one.targetKind)} <Named id={one.targetId} name={targetOf(one, names)} />
                {one.ip !== undefined && ` · from ${one.ip}`}
                {one.actorCredentialId !== undefined && (
                  <>
                    {" · with "}
                    <Named id={one.actorCredentialId} name={names.get(one.actorCredentialId) ?? one.actorCredentialId} />
                  </>
                )}
              </span>
            </span>
            <span class="small quiet">
              <Time at={one.createdAt} />{" "}
              <Button look="bare" aria-expanded={open === one.id} onClick={() => setOpen(open === one.id ? "" : one.id)}>
                Details
              </Button>
            </span>
          </div>
          {open === one.id && <Json value={one} />}
        </li>
      ))}
    </ul>
  );
}

/** A name, with its id on hover. */
function Named({ id, name }: { id: string | undefined; name: string }) {
  return <span title={id === name ? undefined : id}>{name}</span>;
}

// The audit log of the whole installation.

import { useMemo } from "preact/hooks";
import { call } from "../../api/client";
import { FULL_PAGE } from "../../api/data";
import { useResource } from "../../api/resource";
import { Audit } from "../audit";

/** Pages of each list whose names are loaded: 1,000 users, workspaces and projects. Others appear with their id. */
const MAX_NAME_PAGES = 10;

export function OperatorAudit() {
  const names = useNames();
  return (
    <Audit
      title="Audit log"
      note="Actions in this installation."
      cacheKey="installation/audit"
      names={names}
      fetch={(query, signal) => call("get", "/api/operator/audit", { query, signal })}
    />
  );
}

interface Named {
  readonly id: string;
  readonly name: string;
}

function useNames(): ReadonlyMap<string, string> {
  const users = useAll("users", async (page, signal) => {
    const list = await call("get", "/api/operator/users", { query: { page, pageSize: FULL_PAGE }, signal });
    return [list.users, list.totalPages];
  });
  const workspaces = useAll("workspaces", async (page, signal) => {
    const list = await call("get", "/api/operator/workspaces", { query: { page, pageSize: FULL_PAGE }, signal });
    return [list.workspaces, list.totalPages];
  });
  const projects = useAll("projects", async (page, signal) => {
    const list = await call("get", "/api/operator/projects", { query: { page, pageSize: FULL_PAGE }, signal });
    return [list.projects, list.totalPages];
  });
  return useMemo(() => new Map([...(users ?? []), ...(workspaces ?? []), ...(projects ?? [])].map((one) => [one.id, one.name])), [users, workspaces, projects]);
}

function useAll(kind: string, read: (page: number, signal: AbortSignal) => Promise<[readonly Named[], number]>): readonly Named[] | undefined {
  return useResource(`installation/names/${kind}`, async (signal) => {
    const all: Named[] = [];
    for (let page = 1; page <= MAX_NAME_PAGES; page += 1) {
      const [items, totalPages] = await read(page, signal);
      all.push(...items);
      if (page >= totalPages) break;
    }
    return all;
  }).data;
}

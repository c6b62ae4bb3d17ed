// The audit log of a workspace, and the person's own.

import { useMemo } from "preact/hooks";
import { call } from "../../api/client";
import { FULL_PAGE, useProjects, useRights, useWorkspaces } from "../../api/data";
import { useResource } from "../../api/resource";
import { useFilter } from "../../router/location";
import { to } from "../../router/match";
import { Skeleton, Tabs } from "../../ui/parts";
import { Audit } from "../audit";
import { useMemberNames } from "../names";

/** The log of the workspace is for those who manage it. Other members see their own actions. */
export function WorkspaceAudit({ workspace }: { workspace: string }) {
  const rights = useRights(workspace);
  const roles = useWorkspaces();
  const [of] = useFilter("of");
  if (roles.data === undefined && roles.error === undefined) return <Skeleton rows={6} />;
  const mayReadAll = rights.role === undefined || rights.may("account.workspace-protection.read-write");
  return <Log workspace={workspace} isOwn={of === "me" || !mayReadAll} mayReadAll={mayReadAll} />;
}

function Log({ workspace, isOwn, mayReadAll }: { workspace: string; isOwn: boolean; mayReadAll: boolean }) {
  const names = useNames(workspace);
  const here = `${to("/workspaces/:id", { id: workspace })}/audit`;
  return (
    <Audit
      key={isOwn ? "me" : ""}
      title="Audit log"
      note={isOwn ? "Actions by you or in your name." : "Actions in this workspace."}
      cacheKey={isOwn ? "user/audit" : `workspace/${workspace}/audit`}
      names={names}
      isOwn={isOwn}
      tabs={mayReadAll && <Tabs label="Logs" items={[{ href: here, text: "Workspace", isChosen: !isOwn }, { href: `${here}?of=me`, text: "You", isChosen: isOwn }]} />}
      fetch={(query, signal) => (isOwn ? call("get", "/api/user/audit", { query, signal }) : call("get", "/api/workspaces/{workspace_id}/audit", { path: { workspace_id: workspace }, query, signal }))}
    />
  );
}

/** Names of the people, projects, workspaces and own credentials in the log. */
function useNames(workspace: string): ReadonlyMap<string, string> {
  const people = useMemberNames(workspace);
  const projects = useProjects().data;
  const workspaces = useWorkspaces().data;
  const credentials = useResource("credentials/names", (signal) => call("get", "/api/credentials", { query: { order: "desc", pageSize: FULL_PAGE }, signal })).data;
  return useMemo(() => {
    const names = new Map(people);
    for (const one of [...(projects ?? []), ...(workspaces ?? []), ...(credentials?.credentials ?? [])]) names.set(one.id, one.name);
    return names;
  }, [people, projects, workspaces, credentials]);
}

// Names of the people and objects that lists show instead of ids.

import { call } from "../api/client";
import { FULL_PAGE, useUser } from "../api/data";
import { type Resource, useResource } from "../api/resource";
import { useMemo } from "preact/hooks";

/** Pages of members whose names are loaded: 500 members. Others appear with their id. */
const MAX_MEMBER_PAGES = 5;

/** Names of the members of a workspace, and of the person, by id. */
export function useMemberNames(workspace: string | undefined): ReadonlyMap<string, string> {
  const user = useUser().data;
  const members: Resource<readonly { id: string; name: string }[]> = useResource(workspace === undefined ? undefined : `workspace/${workspace}/members/names`, async (signal) => {
    const all: { id: string; name: string }[] = [];
    for (let page = 1; page <= MAX_MEMBER_PAGES; page += 1) {
      const list = await call("get", "/api/workspaces/{workspace_id}/members", { path: { workspace_id: workspace ?? "" }, query: { page, pageSize: FULL_PAGE }, signal });
      all.push(...list.members);
      if (page >= list.totalPages) break;
    }
    return all;
  });
  return useMemo(() => new Map([...(user === undefined ? [] : [user]), ...(members.data ?? [])].map((one) => [one.id, one.name])), [user, members.data]);
}

// The overview of a workspace: its projects and the person's role.

import { call } from "../../api/client";
import { useProjects, useRights } from "../../api/data";
import { useResource, type Resource } from "../../api/resource";
import type { Control } from "../../api/client";
import { ROLE_TEXT } from "../../api/roles";
import { to } from "../../router/match";
import { ButtonLink, Card, Empty, Facts, Loaded, Page, Status, Time } from "../../ui/parts";

export function useWorkspace(id: string): Resource<Control<"Workspace">> {
  return useResource(`workspace/${id}`, (signal) => call("get", "/api/workspaces/{workspace_id}", { path: { workspace_id: id }, signal }));
}

export function WorkspacePage({ workspace }: { workspace: string }) {
  const resource = useWorkspace(workspace);
  const rights = useRights(workspace);
  const projects = useProjects();
  return (
    <Page
      title={resource.data?.name ?? "Workspace"}
      note={resource.data !== undefined && <Status of={resource.data.status} />}
      actions={rights.may("account.projects.read-write") && <ButtonLink href={`/projects?new=1&workspace=${encodeURIComponent(workspace)}`} look="main" icon="plus">New project</ButtonLink>}
    >
      <Loaded of={resource}>
        {(data) => (
          <Card>
            <Facts
              rows={[
                ["Your role", rights.role === undefined ? data.membership.role : `${rights.role}: ${ROLE_TEXT[rights.role]}`],
                ["Kind", data.type],
                ["Created", <Time key="created" at={data.createdAt} />],
                ["Subscription", data.subscriptionStatus],
                ["Id", <code key="id">{data.id}</code>],
              ]}
            />
          </Card>
        )}
      </Loaded>
      <Card isFlush title="Projects">
        <Loaded of={projects}>
          {(list) => {
            const own = list.filter((one) => one.workspaceId === workspace);
            if (own.length === 0) return <Empty icon="projects" title="No project in this workspace" />;
            return (
              <ul class="plain rows">
                {own.map((one) => (
                  <li key={one.id} class="row">
                    <span class="stack">
                      <a href={to("/projects/:id", { id: one.id })}>{one.name}</a>
                      <code class="quiet">{one.url}</code>
                    </span>
                    <span>
                      {one.plan} <Status of={one.status} />
                    </span>
                  </li>
                ))}
              </ul>
            );
          }}
        </Loaded>
      </Card>
    </Page>
  );
}

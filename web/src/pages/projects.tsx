// The list of projects.

import { useMemo } from "preact/hooks";
import { type Project, useProjects, useWorkspaces } from "../api/data";
import { navigate, useDialog, useFilter } from "../router/location";
import { to } from "../router/match";
import { Dialog } from "../ui/dialog";
import { Search, Select } from "../ui/fields";
import { Button, ButtonLink, Card, Empty, Loaded, Page, Status } from "../ui/parts";
import { Table } from "../ui/table";
import { mayCreateIn, NewProject } from "./new-project";
import { Overview } from "./project/overview";
import { Welcome } from "./publish";

/** The start page: the welcome page without a project, the overview of the only project, else the list of projects. */
export function Home() {
  const { data } = useProjects();
  if (data?.length === 0) return <Welcome />;
  const only = data?.length === 1 ? data[0] : undefined;
  return only === undefined ? <Projects /> : <Overview project={only.id} />;
}

export function Projects() {
  const projects = useProjects();
  const workspaces = useWorkspaces();
  const [search, setSearch] = useFilter("q");
  const [workspace, setWorkspace] = useFilter("workspace");
  const [isNew, setNew] = useDialog("new");
  return (
    <Page
      title="Projects"
      note="Each project has its own addresses, tunnels, logs and settings."
      actions={
        (workspaces.data ?? []).some(mayCreateIn) && (
          <Button look="main" icon="plus" onClick={() => setNew("1")}>
            New project
          </Button>
        )
      }
    >
      <div class="bar">
        <Search label="Search projects" value={search} onValue={(value) => setSearch(value, true)} />
        {(workspaces.data?.length ?? 0) > 1 && (
          <Select
            label="Workspace"
            isLabelSeen={false}
            value={workspace}
            onValue={setWorkspace}
            options={[{ value: "", text: "All workspaces" }, ...(workspaces.data ?? []).map((one) => ({ value: one.id, text: one.name }))]}
          />
        )}
      </div>
      <Card isFlush>
        <Loaded of={projects}>{(list) => <List all={list} search={search} workspace={workspace} names={new Map((workspaces.data ?? []).map((one) => [one.id, one.name]))} />}</Loaded>
      </Card>
      {isNew !== "" && (
        <Dialog title="New project" onClose={() => setNew("", true)}>
          <Loaded of={workspaces}>{(list) => <NewProject workspaces={list} />}</Loaded>
        </Dialog>
      )}
    </Page>
  );
}

function List({ all, search, workspace, names }: { all: readonly Project[]; search: string; workspace: string; names: ReadonlyMap<string, string> }) {
  const found = useMemo(() => {
    const text = search.trim().toLowerCase();
    return all.filter((one) => (workspace === "" || one.workspaceId === workspace) && (text === "" || `${one.name} ${one.endpoint} ${one.id}`.toLowerCase().includes(text)));
  }, [all, search, workspace]);
  if (all.length === 0) {
    return (
      <Empty icon="projects" title="No project yet">
        <p class="quiet">Create one and publish your first service in it.</p>
        <ButtonLink href="/welcome" look="main">
          Publish something
        </ButtonLink>
      </Empty>
    );
  }
  if (found.length === 0) {
    return (
      <Empty icon="search" title="Nothing matches">
        <Button onClick={() => navigate("/projects")}>Show all projects</Button>
      </Empty>
    );
  }
  return (
    <Table columns={["Name", "Workspace", "Engine", "Plan", "Region", "Status"]}>
      {found.map((one) => (
        <tr key={one.id}>
          <td>
            <a href={to("/projects/:id", { id: one.id })}>{one.name}</a>
          </td>
          <td>{names.get(one.workspaceId) ?? <span class="quiet">–</span>}</td>
          <td>
            <code>{one.url}</code>
          </td>
          <td>{one.plan}</td>
          <td>{one.region}</td>
          <td>
            <Status of={one.status} />
          </td>
        </tr>
      ))}
    </Table>
  );
}

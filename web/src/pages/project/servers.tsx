// Terminal servers that are registered in the project. Sessions are on the pages of terminals.

import { useState } from "preact/hooks";
import { call, type Control } from "../../api/client";
import { invalidate, useResource } from "../../api/resource";
import { useDialog, usePage } from "../../router/location";
import { to } from "../../router/match";
import { Confirm, Dialog } from "../../ui/dialog";
import { Field, Select } from "../../ui/fields";
import { Form } from "../../ui/form";
import { Button, ButtonLink, Card, Empty, Labels, Page, Status, Time } from "../../ui/parts";
import { PagedList, Table } from "../../ui/table";
import { toast } from "../../ui/toasts";
import { formatLabels, parseLabels } from "./labels";
import { useProjectRights } from "./rights";

type Server = Control<"WebttyServer">;

export function Servers({ project }: { project: string }) {
  const mayWrite = useProjectRights(project).may("network.webtty-servers.read-write");
  const [show, setShow] = useDialog("show");
  const [id, setId] = useDialog("server");
  const [page, setPage] = usePage();
  const servers = useResource(
    `project/${project}/servers/${page}`,
    (signal) => call("get", "/api/projects/tunnels/{project_id}/webtty/servers", { path: { project_id: project }, query: { page, pageSize: 50 }, signal }),
    { every: 15_000 },
  );
  const chosen = servers.data?.servers.find((one) => one.id === id);
  const close = () => {
    setId("", true);
    setShow("", true);
  };
  const changed = () => invalidate(`project/${project}/servers`);
  return (
    <Page
      title="Terminal servers"
      note="Machines whose terminals the project offers, with their policies."
      actions={
        <>
          <ButtonLink href={`${to("/projects/:id", { id: project })}/terminals`}>Terminals and sessions</ButtonLink>
          {mayWrite && (
            <Button look="main" icon="plus" onClick={() => setShow("new")}>
              Register a server
            </Button>
          )}
        </>
      }
    >
      <Card isFlush>
        <PagedList
          of={servers}
          items={(list) => list.servers}
          onPage={setPage}
          empty={
            <Empty icon="terminal" title="No registered server">
              <p class="quiet">
                <code>svc webtty server</code> also works without registration; a registered server has policies and labels here.
              </p>
            </Empty>
          }
        >
          {(list) => (
            <Table columns={["Name", "Status", "Access", "Sessions", "Labels", "Enrolled"]} hasActions>
              {list.map((one) => (
                <tr key={one.id}>
                  <td>
                    <div class="stack">
                      <span>{one.name}</span>
                      <span class="small quiet">{one.description}</span>
                    </div>
                  </td>
                  <td>
                    <Status of={one.status} />
                  </td>
                  <td>{one.accessPolicy === "restricted" ? "restricted" : "members"}</td>
                  <td>{one.recordingPolicy}</td>
                  <td>
                    <Labels of={one.labels} />
                  </td>
                  <td>
                    <Time at={one.enrolledAt} />
                  </td>
                  <td class="end">
                    {mayWrite && (
                      <span class="buttons">
                        <Button look="bare" onClick={() => { setId(one.id, true); setShow("edit"); }}>
                          Edit
                        </Button>
                        <Button look="bare" onClick={() => { setId(one.id, true); setShow("delete"); }}>
                          Delete
                        </Button>
                      </span>
                    )}
                  </td>
                </tr>
              ))}
            </Table>
          )}
        </PagedList>
      </Card>
      {show === "new" && mayWrite && (
        <Dialog title="Register a server" onClose={close}>
          <ServerForm
            onClose={close}
            onSave={async (values) => {
              await call("post", "/api/projects/tunnels/{project_id}/webtty/servers", { path: { project_id: project }, body: values });
              changed();
              toast("The server is registered. Enroll it on its machine.");
              close();
            }}
          />
        </Dialog>
      )}
      {show === "edit" && chosen !== undefined && mayWrite && (
        <Dialog title={`Edit ${chosen.name}`} onClose={close}>
          <ServerForm
            initial={chosen}
            onClose={close}
            onSave={async (values) => {
              await call("patch", "/api/projects/tunnels/{project_id}/webtty/servers/{server_id}", { path: { project_id: project, server_id: chosen.id }, body: values });
              changed();
              toast("The server is changed.");
              close();
            }}
          />
        </Dialog>
      )}
      {show === "delete" && chosen !== undefined && mayWrite && (
        <Confirm
          title={`Delete ${chosen.name}`}
          verb="Delete"
          typed={chosen.name}
          done="The server is deleted."
          onClose={close}
          action={async () => {
            await call("delete", "/api/projects/tunnels/{project_id}/webtty/servers/{server_id}", { path: { project_id: project, server_id: chosen.id } });
            changed();
          }}
        >
          Its terminals are no longer offered. Recordings stay.
        </Confirm>
      )}
    </Page>
  );
}

interface ServerValues {
  name: string;
  description: string | null;
  labels: Record<string, string>;
  accessPolicy: Server["accessPolicy"];
  recordingPolicy: Server["recordingPolicy"];
  status?: Control<"WebttyServerChange">;
}

function ServerForm({ initial, onSave, onClose }: { initial?: Server; onSave: (values: ServerValues) => Promise<void>; onClose: () => void }) {
  const [name, setName] = useState(initial?.name ?? "");
  const [description, setDescription] = useState(initial?.description ?? "");
  const [labels, setLabels] = useState(formatLabels(initial?.labels ?? {}));
  const [access, setAccess] = useState<string>(initial?.accessPolicy ?? "project_members");
  const [recording, setRecording] = useState<string>(initial?.recordingPolicy ?? "recorded");
  const [status, setStatus] = useState<string>(initial?.status ?? "");
  return (
    <Form
      verb="Save"
      look="main"
      onClose={onClose}
      onSubmit={() =>
        onSave({
          name: name.trim(),
          description: description.trim() === "" ? null : description.trim(),
          labels: parseLabels(labels),
          accessPolicy: access as Server["accessPolicy"],
          recordingPolicy: recording as Server["recordingPolicy"],
          ...((status === "active" || status === "suspended") && status !== initial?.status ? { status } : {}),
        })
      }
    >
      <Field label="Name" name="name" value={name} onValue={setName} isRequired maxLength={100} />
      <Field label="Description" name="description" value={description} onValue={setDescription} maxLength={1000} />
      <Field label="Labels" name="labels" value={labels} onValue={setLabels} rows={3} hint="One name=value in each line." />
      <Select label="Access" value={access} onValue={setAccess} options={[{ value: "project_members", text: "Members of the workspace" }, { value: "restricted", text: "Restricted" }]} />
      <Select label="Sessions" value={recording} onValue={setRecording} options={[{ value: "recorded", text: "Recorded" }, { value: "private", text: "Private, not recorded" }]} hint="Takes effect with the next session." />
      {initial !== undefined && initial.status !== "pending_enrollment" && <Select label="Status" value={status} onValue={setStatus} options={[{ value: "active", text: "Active" }, { value: "suspended", text: "Suspended" }]} />}
    </Form>
  );
}

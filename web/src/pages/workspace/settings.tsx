// Settings of a workspace: its name and its end.

import { useState } from "preact/hooks";
import { call } from "../../api/client";
import { useRights } from "../../api/data";
import { invalidate } from "../../api/resource";
import { navigate } from "../../router/location";
import { Confirm } from "../../ui/dialog";
import { Field } from "../../ui/fields";
import { Form } from "../../ui/form";
import { Button, Card, Loaded, Page } from "../../ui/parts";
import { toast } from "../../ui/toasts";
import { useWorkspace } from "./overview";

export function WorkspaceSettings({ workspace }: { workspace: string }) {
  const resource = useWorkspace(workspace);
  const rights = useRights(workspace);
  const [isDeleting, setDeleting] = useState(false);
  const mayManage = rights.may("account.workspace-protection.read-write");
  return (
    <Page title="Settings" note={resource.data?.name} isNarrow>
      {rights.role !== undefined && !mayManage && <div class="note">Your role here is {rights.role}. An owner or admin can change these settings.</div>}
      <Loaded of={resource}>
        {(data) => (
          <>
            {mayManage && <Rename key={data.name} workspace={workspace} name={data.name} />}
            <div class="note">
              Trusted addresses, countries and the minimum TLS version are settings of each project.
            </div>
            {rights.role === "owner" && data.type !== "personal" && (
              <Card title="Delete">
                <p>The workspace must not have projects any more.</p>
                <div class="buttons">
                  <Button look="grave" onClick={() => setDeleting(true)}>
                    Delete the workspace
                  </Button>
                </div>
              </Card>
            )}
            {isDeleting && (
              <Confirm
                title={`Delete ${data.name}`}
                verb="Delete"
                typed={data.name}
                done="The workspace is deleted."
                onClose={() => setDeleting(false)}
                action={async () => {
                  await call("delete", "/api/workspaces/{workspace_id}", { path: { workspace_id: workspace } });
                  navigate("/workspaces");
                  invalidate("workspace");
                }}
              >
                All members lose it, and its audit log is deleted. This cannot be undone.
              </Confirm>
            )}
          </>
        )}
      </Loaded>
    </Page>
  );
}

function Rename({ workspace, name: old }: { workspace: string; name: string }) {
  const [name, setName] = useState(old);
  return (
    <Card title="Name">
      <Form
        verb="Rename"
        isReady={name.trim() !== old}
        onSubmit={async () => {
          await call("patch", "/api/workspaces/{workspace_id}", { path: { workspace_id: workspace }, body: { name: name.trim() } });
          invalidate("workspace");
          toast("The workspace is renamed.");
        }}
      >
        <Field label="Name of the workspace" name="name" value={name} onValue={setName} isRequired />
      </Form>
    </Card>
  );
}

// The workspaces of the person.

import { useState } from "preact/hooks";
import { call } from "../../api/client";
import { useWorkspaces } from "../../api/data";
import { invalidate } from "../../api/resource";
import { navigate, useDialog } from "../../router/location";
import { to } from "../../router/match";
import { Dialog } from "../../ui/dialog";
import { Field } from "../../ui/fields";
import { Form } from "../../ui/form";
import { Button, Card, Empty, Page, Status, Time } from "../../ui/parts";
import { ItemList, Table } from "../../ui/table";

export function Workspaces() {
  const workspaces = useWorkspaces();
  const [isNew, setNew] = useDialog("new");
  return (
    <Page title="Workspaces" note="People who share projects." actions={<Button look="main" icon="plus" onClick={() => setNew("1")}>New workspace</Button>}>
      <Card isFlush>
        <ItemList of={workspaces} items={(list) => list} empty={<Empty icon="members" title="No workspace yet" />}>
          {(list) => (
            <Table columns={["Name", "Your role", "Kind", "Joined", "Status"]}>
              {list.map((one) => (
                <tr key={one.id}>
                  <td>
                    <a href={to("/workspaces/:id", { id: one.id })}>{one.name}</a>
                  </td>
                  <td>{one.membership.role}</td>
                  <td>{one.type}</td>
                  <td>
                    <Time at={one.membership.joinedAt} />
                  </td>
                  <td>
                    <Status of={one.status} />
                  </td>
                </tr>
              ))}
            </Table>
          )}
        </ItemList>
      </Card>
      {isNew !== "" && <NewWorkspace onClose={() => setNew("", true)} />}
    </Page>
  );
}

function NewWorkspace({ onClose }: { onClose: () => void }) {
  const [name, setName] = useState("");
  return (
    <Dialog title="New workspace" onClose={onClose}>
      <Form
        verb="Create"
        look="main"
        onClose={onClose}
        onSubmit={async () => {
          const created = await call("post", "/api/workspaces", { body: { name: name.trim() } });
          invalidate("workspaces");
          navigate(to("/workspaces/:id", { id: created.id }));
        }}
      >
        <Field label="Name" name="name" value={name} onValue={setName} isRequired />
      </Form>
    </Dialog>
  );
}

// Webhooks of a project.

import { useState } from "preact/hooks";
import { call, type Control } from "../../api/client";
import { invalidate, useResource } from "../../api/resource";
import { words } from "../../format/text";
import { useDialog } from "../../router/location";
import { to } from "../../router/match";
import { Dialog, SecretDialog } from "../../ui/dialog";
import { Check, Field } from "../../ui/fields";
import { Form } from "../../ui/form";
import { Button, Card, Empty, Page, Status, Time } from "../../ui/parts";
import { ItemList, Table } from "../../ui/table";
import { useProjectRights } from "./rights";

export type EventType = Control<"WebhookEventType">;

export const EVENT_TYPES: readonly EventType[] = [
  "client.created",
  "client.deleted",
  "tunnel.created",
  "tunnel.deleted",
  "domain.created",
  "domain.verified",
  "domain.warned",
  "domain.suspended",
  "domain.released",
  "domain.deleted",
];

export function Webhooks({ project }: { project: string }) {
  const mayWrite = useProjectRights(project).may("network.webhooks.read-write");
  const [isNew, setNew] = useDialog("new");
  const [secret, setSecret] = useState<string | undefined>(undefined);
  const webhooks = useResource(
    `project/${project}/webhooks`,
    (signal) => call("get", "/api/projects/tunnels/{project_id}/webhooks", { path: { project_id: project }, query: { pageSize: 100 }, signal }),
    { every: 30_000 },
  );
  const base = `${to("/projects/:id", { id: project })}/webhooks`;
  return (
    <Page title="Webhooks" note="Signed requests to your own addresses when clients, tunnels and domains change." actions={mayWrite && <Button look="main" icon="plus" onClick={() => setNew("1")}>New webhook</Button>}>
      <Card isFlush>
        <ItemList
          of={webhooks}
          items={(list) => list.webhooks}
          empty={
            <Empty icon="webhooks" title="No webhook yet">
              <p class="quiet">A webhook notifies a chat or a script of yours when a tunnel appears or disappears.</p>
            </Empty>
          }
        >
          {(list) => (
            <Table columns={["Name", "Target", "Events", "Status", "Changed"]}>
              {list.map((one) => (
                <tr key={one.id}>
                  <td>
                    <a href={`${base}/${encodeURIComponent(one.id)}`}>{one.name}</a>
                  </td>
                  <td>
                    <code>{one.config.url}</code>
                  </td>
                  <td>{one.events.length === EVENT_TYPES.length ? "all" : one.events.map(words).join(", ")}</td>
                  <td>
                    <Status of={one.failingSince === null ? one.status : "failed"} />
                  </td>
                  <td>
                    <Time at={one.updatedAt} />
                  </td>
                </tr>
              ))}
            </Table>
          )}
        </ItemList>
      </Card>
      {isNew !== "" && mayWrite && (
        <Dialog title="New webhook" onClose={() => setNew("", true)}>
          <WebhookForm
            verb="Create"
            onClose={() => setNew("", true)}
            onSave={async (values) => {
              const created = await call("post", "/api/projects/tunnels/{project_id}/webhooks", { path: { project_id: project }, body: values });
              invalidate(`project/${project}/webhooks`);
              setNew("", true);
              setSecret(created.signingSecret);
            }}
          />
        </Dialog>
      )}
      {secret !== undefined && (
        <SecretDialog title="Signing secret" secret={secret} note="The receiver checks signatures with this secret. It is shown only now; it can be rotated later." onClose={() => setSecret(undefined)} />
      )}
    </Page>
  );
}

export interface WebhookValues {
  name: string;
  description: string | null;
  config: { url: string };
  events: EventType[];
}

export function WebhookForm({ verb, initial, onSave, onClose }: { verb: string; initial?: Control<"Webhook">; onSave: (values: WebhookValues) => Promise<void>; onClose: () => void }) {
  const [name, setName] = useState(initial?.name ?? "");
  const [url, setUrl] = useState(initial?.config.url ?? "");
  const [description, setDescription] = useState(initial?.description ?? "");
  const [events, setEvents] = useState<readonly EventType[]>(initial?.events ?? ["tunnel.created", "tunnel.deleted"]);
  return (
    <Form
      verb={verb}
      look="main"
      isReady={events.length > 0}
      onClose={onClose}
      onSubmit={() => onSave({ name: name.trim(), description: description.trim() === "" ? null : description.trim(), config: { url: url.trim() }, events: [...events] })}
    >
      <Field label="Name" name="name" value={name} onValue={setName} isRequired maxLength={100} />
      <Field label="Target" name="url" type="url" value={url} onValue={setUrl} isRequired placeholder="https://chat.example.com/in" hint="An https address on the public internet." />
      <Field label="Description" name="description" value={description} onValue={setDescription} maxLength={1000} />
      <fieldset>
        <legend>Events</legend>
        {EVENT_TYPES.map((type) => (
          <Check key={type} label={words(type)} isChecked={events.includes(type)} onChange={(isChecked) => setEvents(EVENT_TYPES.filter((one) => (one === type ? isChecked : events.includes(one))))} />
        ))}
      </fieldset>
    </Form>
  );
}

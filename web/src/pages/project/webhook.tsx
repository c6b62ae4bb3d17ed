// One webhook with its deliveries.

import { useState } from "preact/hooks";
import { call, type Control } from "../../api/client";
import { invalidate, useResource } from "../../api/resource";
import { millis, words } from "../../format/text";
import { navigate, useDialog, useFilter, usePage } from "../../router/location";
import { to } from "../../router/match";
import { useAction } from "../../ui/action";
import { Confirm, Dialog, SecretDialog } from "../../ui/dialog";
import { Select } from "../../ui/fields";
import { Button, Card, Empty, Facts, Failure, Json, Loaded, Page, Status, Time } from "../../ui/parts";
import { DetailsCell, PagedList, Table } from "../../ui/table";
import { toast } from "../../ui/toasts";
import { useProjectRights } from "./rights";
import { EVENT_TYPES, type EventType, WebhookForm } from "./webhooks";

type DeliveryStatus = Control<"WebhookDeliveryStatus">;
const STATUSES: readonly DeliveryStatus[] = ["pending", "delivering", "retrying", "succeeded", "failed", "canceled"];
/** Time in which both secrets sign, so that the receiver can be changed in between. */
const OVERLAP_SECONDS = 86_400;

export function WebhookPage({ project, id }: { project: string; id: string }) {
  const mayWrite = useProjectRights(project).may("network.webhooks.read-write");
  const [show, setShow] = useDialog("show");
  const [secret, setSecret] = useState<string | undefined>(undefined);
  const { isBusy, error, run } = useAction(`project/${project}/webhooks`);
  const path = { project_id: project, webhook_id: id };
  const base = `${to("/projects/:id", { id: project })}/webhooks`;
  const webhook = useResource(`project/${project}/webhooks/${id}`, (signal) => call("get", "/api/projects/tunnels/{project_id}/webhooks/{webhook_id}", { path, signal }));
  const data = webhook.data;
  const update = (body: Control<"UpdateWebhook">) => call("patch", "/api/projects/tunnels/{project_id}/webhooks/{webhook_id}", { path, body });
  const changed = () => invalidate(`project/${project}/webhooks`);
  return (
    <Page
      title={data?.name ?? "Webhook"}
      note={<><a href={base}>Webhooks</a> {data !== undefined && <Status of={data.status} />}</>}
      actions={
        mayWrite &&
        data !== undefined && (
          <>
            <Button onClick={() => setShow("edit")}>Edit</Button>
            <Button isBusy={isBusy} onClick={() => run(async () => void (await update({ status: data.status === "enabled" ? "disabled" : "enabled" })))}>
              {data.status === "enabled" ? "Disable" : "Enable"}
            </Button>
            <Button onClick={() => setShow("rotate")}>Rotate the secret</Button>
            <Button look="grave" onClick={() => setShow("delete")}>
              Delete
            </Button>
          </>
        )
      }
    >
      {error !== undefined && <Failure error={error} />}
      <Loaded of={webhook}>
        {(one) => (
          <Card>
            <Facts
              rows={[
                ["Target", <code key="url">{one.config.url}</code>],
                ["Events", one.events.map(words).join(", ")],
                ["Description", one.description],
                ["Failing since", one.failingSince === null ? undefined : <Time key="failing" at={one.failingSince} />],
                ["Secret rotated", one.secretLastRotatedAt === null ? undefined : <Time key="rotated" at={one.secretLastRotatedAt} />],
                ["Old secret ends", one.previousSecretExpiresAt === null ? undefined : <Time key="previous" at={one.previousSecretExpiresAt} />],
                ["Created", <Time key="created" at={one.createdAt} />],
              ]}
            />
          </Card>
        )}
      </Loaded>
      <Deliveries project={project} webhook={id} mayWrite={mayWrite} />
      {show === "edit" && data !== undefined && mayWrite && (
        <Dialog title={`Edit ${data.name}`} onClose={() => setShow("", true)}>
          <WebhookForm verb="Save" initial={data} onClose={() => setShow("", true)} onSave={async (values) => { await update(values); changed(); toast("The webhook is changed."); setShow("", true); }} />
        </Dialog>
      )}
      {show === "rotate" && data !== undefined && mayWrite && (
        <Confirm
          title="Rotate the signing secret"
          verb="Rotate"
          done="The secret is rotated."
          onClose={() => setShow("", true)}
          action={async () => {
            const rotated = await call("post", "/api/projects/tunnels/{project_id}/webhooks/{webhook_id}/secret/rotate", { path, body: { overlapSeconds: OVERLAP_SECONDS } });
            changed();
            setSecret(rotated.signingSecret);
          }}
        >
          A new secret is created. Both sign for a day, so that you can change the receiver without a gap.
        </Confirm>
      )}
      {show === "delete" && data !== undefined && mayWrite && (
        <Confirm
          title={`Delete ${data.name}`}
          verb="Delete"
          done="The webhook is deleted."
          onClose={() => setShow("", true)}
          action={async () => {
            await call("delete", "/api/projects/tunnels/{project_id}/webhooks/{webhook_id}", { path });
            changed();
            navigate(base);
          }}
        >
          Deliveries that wait are canceled.
        </Confirm>
      )}
      {secret !== undefined && <SecretDialog title="New signing secret" secret={secret} note="It is shown only now." onClose={() => setSecret(undefined)} />}
    </Page>
  );
}

function Deliveries({ project, webhook, mayWrite }: { project: string; webhook: string; mayWrite: boolean }) {
  const [status, setStatus] = useFilter("status");
  const [type, setType] = useFilter("type");
  const [page, setPage] = usePage();
  const [chosen, setChosen] = useDialog("delivery");
  const deliveries = useResource(
    `project/${project}/webhooks/${webhook}/deliveries/${status}/${type}/${page}`,
    (signal) =>
      call("get", "/api/projects/tunnels/{project_id}/webhooks/{webhook_id}/deliveries", {
        path: { project_id: project, webhook_id: webhook },
        query: { page, pageSize: 50, status: status as DeliveryStatus, eventType: type as EventType },
        signal,
      }),
    { every: 5_000 },
  );
  return (
    <Card
      isFlush
      title="Deliveries"
      actions={
        <span class="bar">
          <Select label="Status" isLabelSeen={false} value={status} onValue={setStatus} options={[{ value: "", text: "All statuses" }, ...STATUSES.map((value) => ({ value, text: value }))]} />
          <Select label="Event" isLabelSeen={false} value={type} onValue={setType} options={[{ value: "", text: "All events" }, ...EVENT_TYPES.map((value) => ({ value, text: words(value) }))]} />
        </span>
      }
    >
      <PagedList
        of={deliveries}
        items={(list) => list.deliveries}
        empty={
          <Empty icon="webhooks" title="No deliveries">
            <p class="quiet">They appear with the next event.</p>
          </Empty>
        }
        onPage={setPage}
      >
        {(list) => (
          <Table columns={["Created", "Event", "Status", "Last response", "Attempts"]} hasActions>
            {list.map((one) => (
              <tr key={one.id}>
                <td>
                  <Time at={one.createdAt} />
                </td>
                <td>{words(one.eventType)}</td>
                <td>
                  <Status of={one.status} />
                  {one.nextAttemptAt !== null && one.status === "retrying" && (
                    <div class="small quiet">
                      again <Time at={one.nextAttemptAt} />
                    </div>
                  )}
                </td>
                <td>
                  {one.lastHttpStatus ?? one.lastError ?? "–"} <span class="quiet small">{millis(one.lastResponseTimeMs ?? undefined)}</span>
                </td>
                <td class="number">{one.attemptCount}</td>
                <DetailsCell onOpen={() => setChosen(one.id)} />
              </tr>
            ))}
          </Table>
        )}
      </PagedList>
      {chosen !== "" && <Delivery project={project} webhook={webhook} id={chosen} mayWrite={mayWrite} onClose={() => setChosen("", true)} />}
    </Card>
  );
}

function Delivery({ project, webhook, id, mayWrite, onClose }: { project: string; webhook: string; id: string; mayWrite: boolean; onClose: () => void }) {
  const path = { project_id: project, webhook_id: webhook, delivery_id: id };
  const { isBusy, error, run } = useAction(`project/${project}/webhooks/${webhook}`);
  const delivery = useResource(`project/${project}/webhooks/${webhook}/delivery/${id}`, (signal) => call("get", "/api/projects/tunnels/{project_id}/webhooks/{webhook_id}/deliveries/{delivery_id}", { path, signal }), {
    every: 5_000,
  });
  const retry = () =>
    run(async () => {
      await call("post", "/api/projects/tunnels/{project_id}/webhooks/{webhook_id}/deliveries/{delivery_id}/retry", { path });
      toast("The delivery is repeated.");
    });
  return (
    <Dialog title="Delivery" isWide onClose={onClose}>
      <Loaded of={delivery}>
        {(one) => (
          <>
            <Facts
              rows={[
                ["Event", words(one.eventType)],
                ["Status", <Status key="status" of={one.status} />],
                ["Event id", <code key="event">{one.eventId}</code>],
                ["Next attempt", one.nextAttemptAt === null ? undefined : <Time key="next" at={one.nextAttemptAt} />],
              ]}
            />
            {mayWrite && (one.status === "failed" || one.status === "canceled") && (
              <div class="buttons">
                <Button look="main" isBusy={isBusy} onClick={retry}>
                  Deliver again
                </Button>
              </div>
            )}
            {error !== undefined && <Failure error={error} onRetry={retry} />}
            <h3>Attempts</h3>
            {(one.attempts ?? []).length === 0 && <p class="quiet">None yet.</p>}
            <ol class="plain rows">
              {(one.attempts ?? []).map((attempt) => (
                <li key={attempt.id} class="stack">
                  <span class="row">
                    <span>
                      {attempt.attemptNumber}. <Status of={attempt.status} /> {attempt.httpStatus ?? attempt.errorCode ?? ""}
                    </span>
                    <span class="quiet small">
                      <Time at={attempt.startedAt} /> · {millis(attempt.responseTimeMs ?? undefined)}
                    </span>
                  </span>
                  {attempt.errorMessage !== null && <span class="small">{attempt.errorMessage}</span>}
                  {attempt.responseBody !== null && attempt.responseBody !== "" && <pre class="json">{attempt.responseBody}</pre>}
                </li>
              ))}
            </ol>
            <h3>Payload</h3>
            <Json value={one.requestBody} />
          </>
        )}
      </Loaded>
    </Dialog>
  );
}

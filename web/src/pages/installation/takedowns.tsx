// Host names of tunnels that operators have taken down.

import { useState } from "preact/hooks";
import { call, type Control } from "../../api/client";
import { invalidate, useResource } from "../../api/resource";
import { usePage } from "../../router/location";
import { Confirm, Dialog } from "../../ui/dialog";
import { Field } from "../../ui/fields";
import { Form } from "../../ui/form";
import { Button, Card, Empty, Page, Time } from "../../ui/parts";
import { PagedList, Table } from "../../ui/table";
import { toast } from "../../ui/toasts";

const KEY = "installation/takedowns";

export function OperatorTakedowns() {
  const [page, setPage] = usePage();
  const [isOpen, setOpen] = useState(false);
  const [restored, setRestored] = useState<Control<"Takedown"> | undefined>(undefined);
  const list = useResource(`${KEY}/${page}`, (signal) => call("get", "/api/operator/takedowns", { query: { page, pageSize: 50 }, signal }), { every: 30_000 });
  return (
    <Page
      title="Takedowns"
      note="Addresses whose visitors are refused."
      actions={
        <Button look="grave" onClick={() => setOpen(true)}>
          Take down an address
        </Button>
      }
    >
      <Card isFlush>
        <PagedList
          of={list}
          items={(list) => list.takedowns}
          empty={
            <Empty icon="tunnels" title="No address is taken down">
              <p class="quiet">A takedown affects one host name. To stop all tunnels of a project, suspend the project.</p>
            </Empty>
          }
          onPage={setPage}
        >
          {(list) => (
            <Table columns={["Host name", "Reason", "Project", "Since"]} hasActions>
              {list.map((one) => (
                <tr key={one.hostname}>
                  <td>
                    <code>{one.hostname}</code>
                  </td>
                  <td>{one.reason}</td>
                  <td>
                    <code>{one.projectId}</code>
                  </td>
                  <td>
                    <Time at={one.createdAt} />
                  </td>
                  <td class="end">
                    <Button look="bare" onClick={() => setRestored(one)}>
                      Restore
                    </Button>
                  </td>
                </tr>
              ))}
            </Table>
          )}
        </PagedList>
      </Card>
      {isOpen && <TakeDown onClose={() => setOpen(false)} />}
      {restored !== undefined && (
        <Confirm
          title={`Restore ${restored.hostname}`}
          verb="Restore"
          done={`${restored.hostname} is restored.`}
          onClose={() => setRestored(undefined)}
          action={async () => {
            await call("delete", "/api/operator/takedowns/{hostname}", { path: { hostname: restored.hostname } });
            invalidate(KEY);
          }}
        >
          Visitors reach the tunnel again immediately.
        </Confirm>
      )}
    </Page>
  );
}

function TakeDown({ onClose }: { onClose: () => void }) {
  const [hostname, setHostname] = useState("");
  const [reason, setReason] = useState("");
  return (
    <Dialog title="Take down an address" onClose={onClose}>
      <Form
        verb="Take down"
        look="grave"
        onClose={onClose}
        onSubmit={async () => {
          const down = await call("post", "/api/operator/takedowns", { body: { hostname: hostname.trim(), reason: reason.trim() } });
          invalidate(KEY);
          toast(`${down.hostname} is taken down.`);
          onClose();
        }}
      >
        <p>Its visitors are refused immediately, also those that are connected. Other addresses of the project are not affected.</p>
        <Field label="Host name" name="hostname" value={hostname} onValue={setHostname} isRequired maxLength={253} placeholder="shop-0a1b2c3d.t.example.com" />
        <Field label="Reason" name="reason" value={reason} onValue={setReason} isRequired maxLength={500} hint="The owners of the project get it by mail, and its members see it." />
      </Form>
    </Dialog>
  );
}

// Custom domains: the records to enter, the result of each check, and the next change of the state.

import { useState } from "preact/hooks";
import { call, type Control } from "../../api/client";
import { invalidate, useResource } from "../../api/resource";
import { words } from "../../format/text";
import { useDialog } from "../../router/location";
import { useAction } from "../../ui/action";
import { Confirm, Dialog } from "../../ui/dialog";
import { Field, Select } from "../../ui/fields";
import { Form } from "../../ui/form";
import { Button, Card, Code, CopyButton, Empty, Facts, Failure, Loaded, Page, Status, Time } from "../../ui/parts";
import { Table } from "../../ui/table";
import { toast } from "../../ui/toasts";
import { Certificate } from "./certificate";
import { useProjectRights } from "./rights";

type Domain = Control<"Domain">;

export function Domains({ project }: { project: string }) {
  const rights = useProjectRights(project);
  const mayWrite = rights.may("account.projects.read-write");
  const [isNew, setNew] = useDialog("new");
  const domains = useResource(`project/${project}/domains`, async (signal) => (await call("get", "/api/projects/tunnels/{project_id}/domains", { path: { project_id: project }, signal })).domains, { every: 10_000 });
  return (
    <Page
      title="Domains"
      note="Publish under your own names. The engine obtains their certificates once the records are found."
      actions={mayWrite && <Button look="main" icon="plus" onClick={() => setNew("1")}>Add a domain</Button>}
    >
      <Loaded of={domains}>
        {(list) =>
          list.length === 0 ? (
            <Card>
              <Empty icon="domains" title="No domain yet">
                <p class="quiet">Add one, enter two DNS records, and publish under it with <code>svc forward 3000 --hostname app.example.com</code>.</p>
              </Empty>
            </Card>
          ) : (
            <>{list.map((domain) => <One key={domain.id} project={project} domain={domain} mayWrite={mayWrite} />)}</>
          )
        }
      </Loaded>
      {isNew !== "" && mayWrite && <NewDomain project={project} onClose={() => setNew("", true)} />}
    </Page>
  );
}

const STATE_TEXT: Record<Domain["status"], string> = {
  pending: "The records are not found yet. They are checked automatically, at first every five minutes.",
  verified: "The records are right. Tunnels of this project can use the name.",
  warned: "A record is missing or wrong. The domain still works, but will be suspended.",
  suspended: "A record was missing for too long. Tunnels cannot use the name until the records are right.",
  quarantined: "The name was released, and is kept from others for a while.",
};

function One({ project, domain, mayWrite }: { project: string; domain: Domain; mayWrite: boolean }) {
  const [isRemoving, setRemoving] = useState(false);
  const [isAutomatic, setAutomatic] = useState(false);
  const { isBusy, error, run } = useAction(`project/${project}/domains`);
  const path = { project_id: project, domain_id: domain.id };
  const verify = () =>
    run(async () => {
      const checked = await call("post", "/api/projects/tunnels/{project_id}/domains/{domain_id}/verify", { path });
      toast(checked.status === "verified" ? `${domain.hostname} is verified.` : "The records are not all found yet.", checked.status === "verified" ? "good" : "bad");
    });
  return (
    <Card title={<>{domain.hostname} <Status of={domain.status} /></>} actions={<span class="small quiet">checked <Time at={domain.lastCheckedAt} /></span>}>
      <p>{STATE_TEXT[domain.status]}</p>
      <Table columns={["For", "Type", "Name", "Value", "Found"]}>
        {domain.records.map((record) => {
          const check = domain.checks.find((one) => one.purpose === record.purpose);
          return (
            <tr key={record.purpose + record.name}>
              <td>{words(record.purpose)}</td>
              <td>{record.type}</td>
              <td>
                <code>{record.name}</code> <CopyButton text={record.name} label={`Copy the name of the ${record.purpose} record`} />
              </td>
              <td>
                <code>{record.value}</code> <CopyButton text={record.value} label={`Copy the value of the ${record.purpose} record`} />
              </td>
              <td>
                {check === undefined ? <Status of="pending" /> : <Status of={check.result} />}
                {check !== undefined && check.result !== "found" && <div class="small">{check.detail}</div>}
                {check !== undefined && check.result !== "found" && check.seen.length > 0 && <div class="small quiet">Seen: {check.seen.join(", ")}</div>}
              </td>
            </tr>
          );
        })}
      </Table>
      <Facts
        rows={[
          ["Certificate", domain.certificate?.source === "uploaded" ? "uploaded" : domain.certificateValidation === "dns_01" ? "validated by DNS" : "validated by TLS (ALPN)"],
          ["Expires", domain.certificate?.expiresAt === undefined ? undefined : <Time key="expires" at={domain.certificate.expiresAt} />],
          ["Last order", domain.certificate?.problem],
          ["Next attempt", domain.certificate?.nextAttemptAt === undefined ? undefined : <Time key="attempt" at={domain.certificate.nextAttemptAt} />],
          ["Verified", domain.verifiedAt === undefined ? undefined : <Time key="verified" at={domain.verifiedAt} />],
          ["Failing since", domain.failingSince === undefined ? undefined : <Time key="failing" at={domain.failingSince} />],
          ["Suspended", domain.suspendsAt === undefined ? undefined : <Time key="suspends" at={domain.suspendsAt} />],
          ["Released", domain.releasesAt === undefined ? undefined : <Time key="releases" at={domain.releasesAt} />],
          ["Kept until", domain.quarantineUntil === undefined ? undefined : <Time key="quarantine" at={domain.quarantineUntil} />],
        ]}
      />
      {domain.status === "verified" && <Code text={`svc forward 3000 --hostname ${domain.hostname.replace(/^\*\./, "name.")}`} label="Copy the command" />}
      {error !== undefined && <Failure error={error} onRetry={verify} />}
      {mayWrite && (
        <div class="buttons">
          {domain.status !== "verified" && (
            <Button isBusy={isBusy} onClick={verify}>
              Check the records now
            </Button>
          )}
          {(domain.status === "verified" || domain.certificate?.source === "uploaded") && <Certificate project={project} domain={domain} />}
          <Button onClick={() => setAutomatic(true)}>Can my provider enter them?</Button>
          <Button look="grave" onClick={() => setRemoving(true)}>
            Remove
          </Button>
        </div>
      )}
      {isAutomatic && <Provider project={project} domain={domain} onClose={() => setAutomatic(false)} />}
      {isRemoving && (
        <Confirm
          title={`Remove ${domain.hostname}`}
          verb="Remove"
          typed={domain.hostname}
          done={`${domain.hostname} is removed.`}
          onClose={() => setRemoving(false)}
          action={async () => {
            await call("delete", "/api/projects/tunnels/{project_id}/domains/{domain_id}", { path });
            invalidate(`project/${project}/domains`);
          }}
        >
          Its tunnels lose the name immediately. Another project can take it after a while.
        </Confirm>
      )}
    </Card>
  );
}

function Provider({ project, domain, onClose }: { project: string; domain: Domain; onClose: () => void }) {
  const support = useResource(`project/${project}/domain-connect/${domain.id}`, (signal) =>
    call("get", "/api/projects/tunnels/{project_id}/domains/{domain_id}/domain-connect", { path: { project_id: project, domain_id: domain.id }, signal }),
  );
  return (
    <Dialog title={`DNS provider of ${domain.hostname}`} onClose={onClose}>
      <Loaded of={support}>{(found) => <p>{found.detail}</p>}</Loaded>
    </Dialog>
  );
}

function NewDomain({ project, onClose }: { project: string; onClose: () => void }) {
  const [hostname, setHostname] = useState("");
  const [validation, setValidation] = useState("");
  return (
    <Dialog title="Add a domain" onClose={onClose}>
      <Form
        verb="Add"
        look="main"
        onClose={onClose}
        onSubmit={async () => {
          const domain = await call("post", "/api/projects/tunnels/{project_id}/domains", {
            path: { project_id: project },
            body: { hostname: hostname.trim(), ...(validation === "" ? {} : { certificateValidation: validation as Domain["certificateValidation"] }) },
          });
          invalidate(`project/${project}/domains`);
          toast(`${domain.hostname} is added. Enter its records at your DNS provider.`);
          onClose();
        }}
      >
        <Field label="Host name" name="hostname" value={hostname} onValue={setHostname} isRequired placeholder="app.example.com" hint="Or *.app.example.com for all names directly below it." />
        <Select
          label="Certificate"
          value={validation}
          onValue={setValidation}
          options={[
            { value: "", text: "Choose by the name" },
            { value: "tls_alpn_01", text: "Validated by TLS (ALPN)" },
            { value: "dns_01", text: "Validated by DNS" },
          ]}
        />
      </Form>
    </Dialog>
  );
}

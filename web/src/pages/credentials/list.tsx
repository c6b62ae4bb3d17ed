// The person's own credentials: tokens, applications with a key, certificates, connected applications.

import { useState } from "preact/hooks";
import { call, type Control } from "../../api/client";
import { invalidate, useResource } from "../../api/resource";
import { useDialog, useFilter, usePage } from "../../router/location";
import { to } from "../../router/match";
import { Check, Search, Select } from "../../ui/fields";
import { Confirm, Dialog, SecretDialog } from "../../ui/dialog";
import { Button, Card, Empty, Facts, Json, Loaded, Page, Pill, Status, Time } from "../../ui/parts";
import { DetailsCell, PagedList, Table } from "../../ui/table";
import { NewCredential } from "./new";
import { Rotate } from "./rotate";

type Credential = Control<"Credential">;

export const KIND_TEXT: Record<Credential["type"], string> = { pat: "Token", app: "Application", mtls: "Client certificate" };

export function Credentials() {
  const [q, setQ] = useFilter("q");
  const [type, setType] = useFilter("type");
  const [status, setStatus] = useFilter("status");
  const [page, setPage] = usePage();
  const [isNew, setNew] = useDialog("new");
  const [chosen, setChosen] = useDialog("credential");
  const [secret, setSecret] = useState<string | undefined>(undefined);
  const list = useResource(`credentials/${q}/${type}/${status}/${page}`, (signal) =>
    call("get", "/api/credentials", {
      query: { order: "desc", page, pageSize: 50, q, type: type as Credential["type"], status: status as Credential["status"] },
      signal,
    }),
  );
  return (
    <Page
      title="Credentials"
      note="Tokens, keys, certificates and connected applications that act for you."
      actions={
        <Button look="main" icon="plus" onClick={() => setNew("1")}>
          New credential
        </Button>
      }
    >
      <div class="bar">
        <Search label="Search names" value={q} onValue={(value) => setQ(value, true)} />
        <Select label="Kind" isLabelSeen={false} value={type} onValue={setType} options={[{ value: "", text: "All kinds" }, ...Object.entries(KIND_TEXT).map(([value, text]) => ({ value, text }))]} />
        <Select label="Status" isLabelSeen={false} value={status} onValue={setStatus} options={[{ value: "", text: "Active and expired" }, { value: "active", text: "Active" }, { value: "expired", text: "Expired" }]} />
      </div>
      <Card isFlush>
        <PagedList
          of={list}
          items={(list) => list.credentials}
          empty={
            <Empty icon="keys" title={q === "" && type === "" && status === "" ? "No credential yet" : "Nothing matches"}>
              <p class="quiet">A token lets an agent or a script act for you, within limits that you choose.</p>
            </Empty>
          }
          onPage={setPage}
        >
          {(list) => (
            <Table columns={["Name", "Kind", "Allows", "Last used", "Ends", "Status"]} hasActions>
              {list.map((one) => (
                <tr key={one.id}>
                  <td>
                    <div class="stack">
                      <span>{one.name}</span>
                      {one.oauthClientId !== undefined && <span class="small quiet">connected application {one.oauthClientId}</span>}
                    </div>
                  </td>
                  <td>{one.oauthClientId === undefined ? KIND_TEXT[one.type] : "Connected application"}</td>
                  <td>
                    {one.permissions == null ? <Pill tone="warn">everything you may do</Pill> : `${one.permissions.length} permissions`}
                    {one.resources !== undefined && <span class="small quiet"> · bounded</span>}
                  </td>
                  <td>
                    {one.lastUsedAt === undefined ? <span class="quiet">never</span> : <Time at={one.lastUsedAt} />}
                    {one.lastUsedIp !== undefined && <div class="small quiet">{one.lastUsedIp}</div>}
                  </td>
                  <td>{one.expiresAt === undefined ? <Pill tone="warn">never</Pill> : <Time at={one.expiresAt} />}</td>
                  <td>
                    <Status of={one.status} />
                  </td>
                  <DetailsCell onOpen={() => setChosen(one.id)} />
                </tr>
              ))}
            </Table>
          )}
        </PagedList>
      </Card>
      {isNew !== "" && (
        <Dialog title="New credential" isWide onClose={() => setNew("", true)}>
          <NewCredential
            onClose={() => setNew("", true)}
            onIssued={(issued) => {
              setNew("", true);
              if (issued.token !== undefined) setSecret(issued.token);
              else setChosen(issued.credential.id, true);
            }}
          />
        </Dialog>
      )}
      {chosen !== "" && <Detail key={chosen} id={chosen} onClose={() => setChosen("", true)} onSecret={setSecret} />}
      {secret !== undefined && <SecretDialog title="Your token" secret={secret} note="Copy it now: it is shown only once. A lost token can be rotated." onClose={() => setSecret(undefined)} />}
    </Page>
  );
}

function Detail({ id, onClose, onSecret }: { id: string; onClose: () => void; onSecret: (secret: string) => void }) {
  const [show, setShow] = useState<"" | "revoke" | "rotate">("");
  const [withIssued, setWithIssued] = useState(false);
  const credential = useResource(`credentials/one/${id}`, (signal) => call("get", "/api/credentials/{credential_id}", { path: { credential_id: id }, signal }));
  const one = credential.data;
  if (show === "revoke" && one !== undefined) {
    return (
      <Confirm
        title={`Revoke ${one.name}`}
        verb={withIssued ? "Revoke all" : "Revoke"}
        done={`${one.name} is revoked.`}
        onClose={onClose}
        action={async () => {
          await call("delete", "/api/credentials/{credential_id}", { path: { credential_id: id }, query: withIssued ? { issued: "true" } : {} });
          invalidate("credentials");
        }}
      >
        <p>It stops working immediately, with every token that was minted from it, and what it opened ends.</p>
        <Check label="Also revoke every credential that it issued" hint="Directly or indirectly." isChecked={withIssued} onChange={setWithIssued} />
      </Confirm>
    );
  }
  if (show === "rotate" && one !== undefined) {
    return (
      <Rotate
        credential={one}
        onClose={onClose}
        onRotated={(issued) => {
          onClose();
          if (issued.token !== undefined) onSecret(issued.token);
        }}
      />
    );
  }
  return (
    <Dialog title={one?.name ?? "Credential"} isWide onClose={onClose}>
      <Loaded of={credential}>
        {(data) => (
          <>
            <Facts
              rows={[
                ["Kind", KIND_TEXT[data.type]],
                ["Status", <Status key="status" of={data.status} />],
                ["Connected application", data.oauthClientId],
                ["Created", <Time key="created" at={data.createdAt} />],
                ["Ends", data.expiresAt === undefined ? "never" : <Time key="ends" at={data.expiresAt} />],
                ["Last used", data.lastUsedAt === undefined ? "never" : <Time key="used" at={data.lastUsedAt} />],
                ["Last address", data.lastUsedIp],
                ["Issued by", data.issuedBy === undefined ? "you, in a browser" : <CredentialLink key="by" id={data.issuedBy} />],
                ["Rotated to", data.rotatedTo === undefined ? undefined : <CredentialLink key="to" id={data.rotatedTo} />],
                ["Fingerprint", data.fingerprint ?? data.issuerFingerprint],
                ["Public id", data.tokenEndpoint],
                ["Id", <code key="id">{data.id}</code>],
              ]}
            />
            <h3>Permissions</h3>
            {data.permissions == null ? <p>Everything that you may do, also what you may do later.</p> : <span class="tags">{data.permissions.map((permission) => <Pill key={permission}>{permission}</Pill>)}</span>}
            {data.resources !== undefined && (
              <>
                <h3>Boundary</h3>
                <Json value={data.resources} />
              </>
            )}
            <div class="buttons">
              {data.oauthClientId === undefined && data.rotatedTo === undefined && <Button onClick={() => setShow("rotate")}>Rotate</Button>}
              <Button look="grave" onClick={() => setShow("revoke")}>
                Revoke
              </Button>
            </div>
          </>
        )}
      </Loaded>
    </Dialog>
  );
}

/** Another credential of the person, which may be revoked meanwhile. */
function CredentialLink({ id }: { id: string }) {
  return (
    <a href={to("/credentials", {}, { credential: id })}>
      <code>{id}</code>
    </a>
  );
}

// Members and invitations of a workspace, with what each role may do.

import { useState } from "preact/hooks";
import { call, type Control } from "../../api/client";
import { useRights, useUser } from "../../api/data";
import { invalidate, useResource } from "../../api/resource";
import { givable, isRole, may, type Permission, type Role, ROLE_TEXT, ROLES } from "../../api/roles";
import { PERMISSIONS } from "../../generated/permissions";
import { navigate, useDialog, useFilter, usePage } from "../../router/location";
import { useAction } from "../../ui/action";
import { Confirm, Dialog, SecretDialog } from "../../ui/dialog";
import { Field, Search, Select } from "../../ui/fields";
import { Form } from "../../ui/form";
import { Button, Card, Empty, Failure, Page, Status, Time } from "../../ui/parts";
import { PagedList, Table } from "../../ui/table";
import { toast } from "../../ui/toasts";

type Member = Control<"Member">;

export function Members({ workspace }: { workspace: string }) {
  const rights = useRights(workspace);
  const mayManage = rights.may("account.workspace-protection.read-write");
  const [isNew, setNew] = useDialog("new");
  const [show, setShow] = useDialog("show");
  const [url, setUrl] = useState<string | undefined>(undefined);
  return (
    <Page
      title="Members"
      note="A role holds for all projects of the workspace."
      actions={
        <>
          <Button onClick={() => setShow("roles")}>Permissions of the roles</Button>
          {mayManage && (
            <Button look="main" icon="plus" onClick={() => setNew("1")}>
              Invite
            </Button>
          )}
        </>
      }
    >
      <MemberList workspace={workspace} role={rights.role} mayManage={mayManage} />
      {mayManage && <Invitations workspace={workspace} />}
      {show === "roles" && (
        <Dialog title="Permissions of the roles" isWide onClose={() => setShow("", true)}>
          <RoleTable />
        </Dialog>
      )}
      {isNew !== "" && mayManage && <Invite workspace={workspace} role={rights.role} onClose={() => setNew("", true)} onSent={setUrl} />}
      {url !== undefined && <SecretDialog title="The invitation is sent" secret={url} note="The platform mailed this link to the address. Any user who has the link can accept the invitation. It is not shown again." onClose={() => setUrl(undefined)} />}
    </Page>
  );
}

function MemberList({ workspace, role, mayManage }: { workspace: string; role: Role | undefined; mayManage: boolean }) {
  const [q, setQ] = useFilter("q");
  const [page, setPage] = usePage();
  const [removed, setRemoved] = useState<Member | undefined>(undefined);
  const user = useUser().data;
  const members = useResource(
    `workspace/${workspace}/members/${q}/${page}`,
    (signal) => call("get", "/api/workspaces/{workspace_id}/members", { path: { workspace_id: workspace }, query: { page, pageSize: 50, q }, signal }),
    { every: 15_000 },
  );
  return (
    <>
      <div class="bar">
        <Search label="Search members" value={q} onValue={(value) => setQ(value, true)} />
      </div>
      <Card isFlush>
        <PagedList of={members} items={(list) => list.members} empty={<Empty icon="search" title="Nothing matches" />} onPage={setPage}>
          {(list) => (
            <Table columns={["Person", "Role", "Status", "Joined"]} hasActions>
              {list.map((one) => (
                <MemberRow key={one.id} workspace={workspace} member={one} isSelf={one.id === user?.id} role={role} mayManage={mayManage} onRemove={() => setRemoved(one)} />
              ))}
            </Table>
          )}
        </PagedList>
      </Card>
      {removed !== undefined && (
        <Confirm
          title={removed.id === user?.id ? "Leave the workspace" : `Remove ${removed.name}`}
          verb={removed.id === user?.id ? "Leave" : "Remove"}
          done={removed.id === user?.id ? "You left the workspace." : `${removed.name} is removed.`}
          onClose={() => setRemoved(undefined)}
          action={async () => {
            await call("delete", "/api/workspaces/{workspace_id}/members/{user_id}", { path: { workspace_id: workspace, user_id: removed.id } });
            if (removed.id === user?.id) {
              navigate("/workspaces");
              invalidate("project");
            }
            invalidate("workspace");
          }}
        >
          Access to all projects of the workspace ends immediately, also that of credentials and open streams.
        </Confirm>
      )}
    </>
  );
}

function MemberRow({ workspace, member, isSelf, role, mayManage, onRemove }: { workspace: string; member: Member; isSelf: boolean; role: Role | undefined; mayManage: boolean; onRemove: () => void }) {
  const { isBusy, error, run } = useAction("workspace");
  const options = givable(role);
  const isManaged = mayManage && isRole(member.role) && options.includes(member.role);
  const change = (body: Control<"ChangeMember">, text: string) =>
    run(async () => {
      await call("patch", "/api/workspaces/{workspace_id}/members/{user_id}", { path: { workspace_id: workspace, user_id: member.id }, body });
      toast(text);
    });
  return (
    <tr>
      <td>
        <div class="stack">
          <span>
            {member.name} {isSelf && <span class="quiet">(you)</span>}
          </span>
          <span class="small quiet">{member.email}</span>
        </div>
        {error !== undefined && <Failure error={error} />}
      </td>
      <td>
        {isManaged && !isSelf ? (
          <Select label={`Role of ${member.name}`} isLabelSeen={false} value={member.role} onValue={(value) => change({ role: value as Role }, `${member.name} is ${value} now.`)} options={options.map((value) => ({ value, text: value }))} />
        ) : (
          member.role
        )}
      </td>
      <td>
        <Status of={member.status} />
      </td>
      <td>
        <Time at={member.joinedAt} />
      </td>
      <td class="end">
        <span class="buttons">
          {isManaged && !isSelf && (
            <Button look="bare" isBusy={isBusy} onClick={() => change({ status: member.status === "active" ? "suspended" : "active" }, member.status === "active" ? `${member.name} is suspended.` : `${member.name} is active again.`)}>
              {member.status === "active" ? "Suspend" : "Resume"}
            </Button>
          )}
          {(isManaged || isSelf) && (
            <Button look="bare" onClick={onRemove}>
              {isSelf ? "Leave" : "Remove"}
            </Button>
          )}
        </span>
      </td>
    </tr>
  );
}

function Invitations({ workspace }: { workspace: string }) {
  const [revoked, setRevoked] = useState<Control<"Invitation"> | undefined>(undefined);
  const [page, setPage] = usePage("invitations");
  const invitations = useResource(
    `workspace/${workspace}/invitations/${page}`,
    (signal) => call("get", "/api/workspaces/{workspace_id}/invitations", { path: { workspace_id: workspace }, query: { page, pageSize: 50 }, signal }),
    { every: 30_000 },
  );
  return (
    <Card isFlush title="Invitations">
      <PagedList of={invitations} items={(list) => list.invitations} empty={<Empty icon="members" title="No invitation" />} onPage={setPage} name="the invitations">
        {(list) => (
          <ul class="plain rows">
            {list.map((one) => (
              <li key={one.id} class="row">
                <span class="stack">
                  <span>{one.email}</span>
                  <span class="small quiet">
                    {one.role} · sent <Time at={one.createdAt} /> · ends <Time at={one.expiresAt} />
                  </span>
                </span>
                <span>
                  <Status of={one.status} />
                  {one.status === "pending" && (
                    <Button look="bare" onClick={() => setRevoked(one)}>
                      Revoke
                    </Button>
                  )}
                </span>
              </li>
            ))}
          </ul>
        )}
      </PagedList>
      {revoked !== undefined && (
        <Confirm
          title={`Revoke the invitation of ${revoked.email}`}
          verb="Revoke"
          done="The invitation is revoked."
          onClose={() => setRevoked(undefined)}
          action={async () => {
            await call("delete", "/api/workspaces/{workspace_id}/invitations/{invitation_id}", { path: { workspace_id: workspace, invitation_id: revoked.id } });
            invalidate(`workspace/${workspace}/invitations`);
          }}
        >
          Its link stops working.
        </Confirm>
      )}
    </Card>
  );
}

function Invite({ workspace, role, onSent, onClose }: { workspace: string; role: Role | undefined; onSent: (url: string) => void; onClose: () => void }) {
  const [email, setEmail] = useState("");
  const [given, setGiven] = useState<Role>("member");
  return (
    <Dialog title="Invite a member" onClose={onClose}>
      <Form
        verb="Invite"
        look="main"
        onClose={onClose}
        onSubmit={async () => {
          const sent = await call("post", "/api/workspaces/{workspace_id}/invitations", { path: { workspace_id: workspace }, body: { email: email.trim(), role: given } });
          invalidate(`workspace/${workspace}/invitations`);
          onClose();
          onSent(sent.url);
        }}
      >
        <Field label="Mail address" name="email" type="email" value={email} onValue={setEmail} isRequired />
        <Select label="Role" value={given} onValue={(value) => isRole(value) && setGiven(value)} options={givable(role).map((value) => ({ value, text: value }))} hint={ROLE_TEXT[given]} />
      </Form>
    </Dialog>
  );
}

function RoleTable() {
  return (
    <Table label="Permissions by role" columns={["Permission", ...ROLES]}>
      {PERMISSIONS.map((one) => (
        <tr key={one.name}>
          <th scope="row">
            <div class="stack">
              <code>{one.name}</code>
              <span class="small quiet">{one.description}</span>
            </div>
          </th>
          {ROLES.map((role) => (
            <td key={role}>{may(role, one.name as Permission) ? "yes" : "–"}</td>
          ))}
        </tr>
      ))}
    </Table>
  );
}

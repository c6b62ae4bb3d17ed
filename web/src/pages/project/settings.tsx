// Settings of a project: its name, the rules for all its visitors, reserved ports, and its end.

import { useState } from "preact/hooks";
import { call, type Control } from "../../api/client";
import { type Project, useProject, useSettings, useWorkspaces } from "../../api/data";
import { invalidate, useResource } from "../../api/resource";
import { isRole, may } from "../../api/roles";
import { navigate } from "../../router/location";
import { useAction } from "../../ui/action";
import { Confirm, Dialog, mask } from "../../ui/dialog";
import { Check, Field, Select } from "../../ui/fields";
import { Form, FormError } from "../../ui/form";
import { Button, Card, Code, CopyButton, Empty, Facts, Failure, Loaded, Page, Time } from "../../ui/parts";
import { ItemList } from "../../ui/table";
import { toast } from "../../ui/toasts";
import { parseList } from "./labels";
import { useProjectRights } from "./rights";

export function Settings({ project }: { project: string }) {
  const rights = useProjectRights(project);
  const mayWrite = rights.may("account.projects.read-write");
  const resource = useProject(project);
  return (
    <Page title="Settings" note={resource.data?.name} isNarrow>
      {rights.role !== undefined && !mayWrite && <div class="note">Your role here is {rights.role}. An owner or admin can see and change the rules for visitors, and reserve ports.</div>}
      <Loaded of={resource}>
        {(data) => (
          <>
            <Name key={data.name} project={data} mayWrite={mayWrite} />
            {mayWrite && <Rules project={project} />}
            <Addresses project={project} mayWrite={mayWrite} />
            {rights.may("turn.credentials.create") && <Turn project={project} />}
            {mayWrite && <End project={data} />}
          </>
        )}
      </Loaded>
    </Page>
  );
}

function Name({ project, mayWrite }: { project: Project; mayWrite: boolean }) {
  const [name, setName] = useState(project.name);
  if (!mayWrite) return null;
  return (
    <Card title="Name">
      <Form
        verb="Rename"
        isReady={name.trim() !== project.name}
        onSubmit={async () => {
          await call("patch", "/api/projects/tunnels/{project_id}", { path: { project_id: project.id }, body: { name: name.trim() } });
          invalidate("project");
          toast("The project is renamed.");
        }}
      >
        <Field label="Name of the project" name="name" value={name} onValue={setName} isRequired maxLength={64} />
      </Form>
    </Card>
  );
}

function Rules({ project }: { project: string }) {
  const settings = useSettings(project);
  return (
    <Card title="Visitors" actions={<span class="small quiet">For all tunnels of the project</span>}>
      <Loaded of={settings}>{(data) => <RulesForm key={JSON.stringify(data)} project={project} settings={data} />}</Loaded>
    </Card>
  );
}

type Geo = "" | "allow" | "deny";

function RulesForm({ project, settings }: { project: string; settings: Control<"ProjectSettings"> }) {
  const [policy, setPolicy] = useState<string>(settings.publicAccessPolicy);
  const [isTcp, setTcp] = useState(settings.publishedTcpEnabled);
  const [trusted, setTrusted] = useState((settings.trustedIps ?? []).join("\n"));
  const [geo, setGeo] = useState<Geo>(settings.geoIp?.allow !== undefined ? "allow" : settings.geoIp?.deny !== undefined ? "deny" : "");
  const [countries, setCountries] = useState((settings.geoIp?.allow ?? settings.geoIp?.deny ?? []).join(", "));
  const [tls, setTls] = useState<string>(settings.minTlsVersion ?? "");
  const [isResetting, setResetting] = useState(false);
  const { isBusy, error, run } = useAction();
  const path = { project_id: project };
  const save = () =>
    run(async () => {
      const codes = parseList(countries).map((code) => code.toUpperCase());
      const networks = parseList(trusted);
      await call("patch", "/api/projects/tunnels/{project_id}/settings", {
        path,
        body: {
          publicAccessPolicy: policy as Control<"PublicAccessPolicy">,
          publishedTcpEnabled: isTcp,
          trustedIps: networks.length === 0 ? null : networks,
          geoIp: geo === "" || codes.length === 0 ? null : geo === "allow" ? { allow: codes } : { deny: codes },
          minTlsVersion: tls === "" ? null : (tls as Control<"MinTlsVersion">),
        },
      });
      invalidate(`project/${project}/settings`);
      toast("The settings are saved. They apply to new connections immediately.");
    });
  return (
    <>
      <form
        class="form"
        onSubmit={(event) => {
          event.preventDefault();
          save();
        }}
      >
        <FormError.Provider value={error}>
          <Select
            label="Public access"
            value={policy}
            onValue={setPolicy}
            options={[
              { value: "allowed", text: "Allowed: the tunnel decides" },
              { value: "auth-required", text: "Only with a proof: sign-in, token, certificate or password" },
              { value: "forbidden", text: "Forbidden: only private tunnels" },
            ]}
          />
          <Check label="TCP tunnels may be published" isChecked={isTcp} onChange={setTcp} />
          <Field label="Trusted addresses" name="trustedIps" value={trusted} onValue={setTrusted} rows={3} hint="Addresses and networks, such as 192.0.2.0/24. Empty: all." />
          <Select label="Countries" value={geo} onValue={(value) => setGeo(value as Geo)} options={[{ value: "", text: "All" }, { value: "allow", text: "Only these" }, { value: "deny", text: "All but these" }]} />
          {geo !== "" && <Field label="Codes of countries" name="geoIp" value={countries} onValue={setCountries} hint="Two letters each, such as DE, FR." />}
          <Select label="Minimum TLS version" value={tls} onValue={setTls} options={[{ value: "", text: "As the engine" }, { value: "tls1.2", text: "TLS 1.2" }, { value: "tls1.3", text: "TLS 1.3" }]} />
        </FormError.Provider>
        {error !== undefined && <Failure error={error} />}
        <div class="buttons">
          <Button type="submit" look="main" isBusy={isBusy}>
            Save
          </Button>
          <Button onClick={() => setResetting(true)}>Reset all</Button>
        </div>
      </form>
      {/* Outside the form: a submit event in it would also save. */}
      {isResetting && (
        <Confirm
          title="Reset the settings"
          verb="Reset"
          done="The settings are reset."
          onClose={() => setResetting(false)}
          action={async () => {
            await call("delete", "/api/projects/tunnels/{project_id}/settings", { path });
            invalidate(`project/${project}/settings`);
          }}
        >
          All rules for visitors return to their defaults: public access is allowed from everywhere.
        </Confirm>
      )}
    </>
  );
}

function Addresses({ project, mayWrite }: { project: string; mayWrite: boolean }) {
  const path = { project_id: project };
  const [released, setReleased] = useState<Control<"TcpAddress"> | undefined>(undefined);
  const { isBusy, error, run, clear } = useAction(`project/${project}/addresses`);
  const addresses = useResource(`project/${project}/addresses`, (signal) => call("get", "/api/projects/tunnels/{project_id}/addresses", { path, signal }));
  const reserve = () =>
    run(async () => {
      const address = await call("post", "/api/projects/tunnels/{project_id}/addresses", { path, body: {} });
      toast(`${address.domain}:${address.port} is reserved.`);
    });
  return (
    <Card
      isFlush
      title="Reserved TCP ports"
      actions={
        mayWrite && (
          <Button isBusy={isBusy} onClick={reserve}>
            Reserve a port
          </Button>
        )
      }
    >
      {error !== undefined && <Failure error={error} />}
      <ItemList
        of={addresses}
        items={(list) => list.addresses}
        empty={
          <Empty icon="tunnels" title="No reserved port">
            <p class="quiet">
              A TCP tunnel with a reserved port always has the same address: <code>port</code> in the definition of the tunnel. Other tunnels get a free port at each start.
            </p>
          </Empty>
        }
      >
        {(list) => (
          <ul class="plain rows">
            {list.map((one) => (
              <li key={one.id} class="row">
                <code>
                  {one.domain}:{one.port}
                </code>
                <span class="quiet small">
                  <Time at={one.createdAt} />
                </span>
                <span class="buttons">
                  <CopyButton text={`${one.domain}:${one.port}`} label={`Copy ${one.domain}:${one.port}`} />
                  {mayWrite && (
                    <Button look="bare" aria-label={`Release port ${one.port}`} onClick={() => setReleased(one)}>
                      Release
                    </Button>
                  )}
                </span>
              </li>
            ))}
          </ul>
        )}
      </ItemList>
      {released !== undefined && (
        <Confirm
          title={`Release port ${released.port}`}
          verb="Release"
          done="The port is released."
          onClose={() => setReleased(undefined)}
          action={async () => {
            await call("delete", "/api/projects/tunnels/{project_id}/addresses/{address_id}", { path: { project_id: project, address_id: released.id } });
            clear();
            invalidate(`project/${project}/addresses`);
          }}
        >
          This project can reserve it again. Other projects can only after a while, by default a day.
        </Confirm>
      )}
    </Card>
  );
}

function Turn({ project }: { project: string }) {
  const [credential, setCredential] = useState<Control<"TurnCredential"> | undefined>(undefined);
  const [isMasked, setMasked] = useState(false);
  const { isBusy, error, run } = useAction();
  const create = () =>
    run(async () => {
      const issued = await call("post", "/api/projects/tunnels/{project_id}/turn-server/credentials", { path: { project_id: project }, body: {} });
      setMasked(false);
      setCredential(issued);
    });
  return (
    <Card title="TURN">
      <p class="quiet">Short-lived credentials of the project&apos;s TURN relay, for a test of WebRTC.</p>
      {error !== undefined && <Failure error={error} />}
      <div class="buttons">
        <Button isBusy={isBusy} onClick={create}>
          Create a credential
        </Button>
      </div>
      {credential !== undefined && (
        <Dialog title="TURN credential" onClose={() => setCredential(undefined)}>
          <p class="quiet">It is valid for {credential.ttl} seconds and is shown only now.</p>
          <Facts rows={[["Addresses", credential.urls.map((url) => <div key={url}><code>{url}</code></div>)]]} />
          <Code text={credential.username} label="Copy the user name" />
          <Code text={credential.credential} label="Copy the password" shown={isMasked ? mask(credential.credential) : credential.credential} onCopied={() => setMasked(true)} />
        </Dialog>
      )}
    </Card>
  );
}

function End({ project }: { project: Project }) {
  const [show, setShow] = useState<"" | "transfer" | "delete">("");
  const workspaces = useWorkspaces().data ?? [];
  const targets = workspaces.filter((one) => one.id !== project.workspaceId && isRole(one.membership.role) && may(one.membership.role, "account.projects.read-write"));
  const [target, setTarget] = useState("");
  const to = targets.find((one) => one.id === target) ?? targets[0];
  return (
    <Card title="Transfer or delete">
      <div class="buttons">
        {targets.length > 0 && <Button onClick={() => setShow("transfer")}>Transfer to another workspace</Button>}
        <Button look="grave" onClick={() => setShow("delete")}>
          Delete the project
        </Button>
      </div>
      {show === "transfer" && to !== undefined && (
        <Confirm
          title={`Transfer ${project.name}`}
          verb="Transfer"
          done="The project is transferred."
          onClose={() => setShow("")}
          action={async () => {
            await call("post", "/api/projects/tunnels/{project_id}/transfer", { path: { project_id: project.id }, body: { workspaceId: to.id } });
            invalidate("project");
          }}
        >
          <div class="form">
            <Select label="To the workspace" value={to.id} onValue={setTarget} options={targets.map((one) => ({ value: one.id, text: one.name }))} />
            <p>Its members get access, and those of the current workspace lose it. The price of the plan moves, too.</p>
          </div>
        </Confirm>
      )}
      {show === "delete" && (
        <Confirm
          title={`Delete ${project.name}`}
          verb="Delete"
          typed={project.name}
          done="The project is deleted."
          onClose={() => setShow("")}
          action={async () => {
            await call("delete", "/api/projects/tunnels/{project_id}", { path: { project_id: project.id } });
            navigate("/projects");
            invalidate("project");
          }}
        >
          Its tunnels close, and its addresses, domains, webhooks and logs are deleted. This cannot be undone.
        </Confirm>
      )}
    </Card>
  );
}

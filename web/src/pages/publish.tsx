// The welcome page: the command that publishes a service, and the wait until its tunnel is online.

import { useEffect, useRef, useState } from "preact/hooks";
import { call } from "../api/client";
import { type Project, useProjects, useRights, useWorkspaces } from "../api/data";
import { invalidate } from "../api/resource";
import type { Tunnel } from "../live/objects";
import { useLive } from "../live/project";
import { useFilter } from "../router/location";
import { to } from "../router/match";
import { useAction } from "../ui/action";
import { Field, Select } from "../ui/fields";
import { Button, ButtonLink, Card, Code, CopyButton, Failure, Loaded, Page, Pill } from "../ui/parts";
import { QrCode } from "../ui/qr";
import { toast } from "../ui/toasts";
import { browserLink, dialAddress, nameOf, visitAddress } from "./address";
import { NewProject } from "./new-project";

/** Lifetime of the token in the command. */
const TOKEN_DAYS = 30;

export function Welcome() {
  const projects = useProjects();
  const [chosen, choose] = useFilter("project");
  return (
    <Page title="Publish something" note="A service on your machine gets an address on the internet." isNarrow>
      <Loaded of={projects}>
        {(list) => {
          const project = list.find((one) => one.id === chosen) ?? list[0];
          if (project === undefined) return <FirstProject />;
          return (
            <>
              {list.length > 1 && <Select label="Project" value={project.id} options={list.map((one) => ({ value: one.id, text: one.name }))} onValue={(value) => choose(value)} />}
              <Publish key={project.id} project={project} isNew />
            </>
          );
        }}
      </Loaded>
    </Page>
  );
}

function FirstProject() {
  const workspaces = useWorkspaces();
  return (
    <Loaded of={workspaces}>
      {(list) =>
        list.length === 0 ? (
          <Card title="No workspace yet">
            <p>You are not a member of a workspace. Ask a colleague for an invitation, or create one.</p>
            <ButtonLink href="/workspaces">Workspaces</ButtonLink>
          </Card>
        ) : (
          <Card title="First, a project">
            <p class="quiet">A project holds tunnels, their logs and their settings.</p>
            <NewProject workspaces={list} />
          </Card>
        )
      }
    </Loaded>
  );
}

/** The command and the wait. With `isNew`, only a tunnel that appears from now on counts. */
export function Publish({ project, isNew = false }: { project: Project; isNew?: boolean }) {
  const live = useLive(project.id);
  const known = useRef<ReadonlySet<string> | undefined>(undefined);
  if (known.current === undefined && live.objects.hasSnapshot) known.current = new Set(isNew ? live.objects.tunnels.keys() : []);
  const before = known.current;
  const tunnel = before === undefined ? undefined : [...live.objects.tunnels.values()].find((one) => one.id !== undefined && !before.has(one.id));
  return tunnel === undefined ? <Instructions project={project} isLive={live.state === "live"} /> : <Online project={project} tunnel={tunnel} />;
}

function Instructions({ project, isLive }: { project: Project; isLive: boolean }) {
  const rights = useRights(project.workspaceId);
  const [port, setPort] = useState("3000");
  const [token, setToken] = useState<string | undefined>(undefined);
  const [isSeen, setSeen] = useState(false);
  const { isBusy, error, run } = useAction();
  const target = /^[0-9]{1,5}$/.test(port) ? port : "3000";
  const command = (secret: string) => `svc forward ${target} --engine ${project.url} --token ${secret}`;
  const isPrivate = project.domain.endsWith("localhost");
  const mayPublish = rights.may("tunnels.tunnels.create-delete") && rights.may("account.credentials.read-write");

  if (rights.role !== undefined && !mayPublish) {
    return (
      <Card title="Nothing is published yet">
        <p>Your role here is {rights.role}, which reads but does not publish. This page shows tunnels as soon as a colleague opens one.</p>
        <Waiting isLive={isLive} />
      </Card>
    );
  }
  const create = () =>
    run(async () => {
      const secret = token ?? (await createToken(project));
      setToken(secret);
      try {
        await navigator.clipboard.writeText(command(secret));
        toast("The command is in the clipboard. Run it in a terminal.");
      } catch {
        // The browser allows this only right after a click, which the request may have outlasted.
        setSeen(true);
      }
    });
  return (
    <Card title={`Publish a service in ${project.name}`}>
      <ol class="steps">
        <li>
          <Field label="Port of the service on your machine" value={port} onValue={setPort} hint={<>Without a service, a folder also works: <code>svc forward ./dist</code></>} />
        </li>
        <li>
          <span class="label">Run this in a terminal</span>
          <div class="code">
            <code>{token === undefined ? command("<your token>") : isSeen ? command(token) : command(`${token.slice(0, 6)}••••••••`)}</code>
            {token !== undefined && <CopyButton text={command(token)} label="Copy the command" onCopied={() => setSeen(false)} />}
          </div>
          {token === undefined && (
            <div class="buttons">
              <Button look="main" icon="copy" isBusy={isBusy} onClick={create}>
                Copy the command with a token
              </Button>
            </div>
          )}
          <p class="small quiet">
            {token === undefined
              ? `The token belongs to you, publishes only in this project, and ends after ${TOKEN_DAYS} days. You can revoke it under Credentials.`
              : "The token is in the command and is not shown again. You can revoke it under Credentials."}
          </p>
          {isPrivate && (
            <p class="small quiet">
              This engine has a certificate of a private authority: add <code>--ca-file FILE</code> with the file that <code>svc up</code> prints as <code>ca_file</code>. On
              the machine of <code>svc up</code>, <code>svc forward {target}</code> alone finds everything.
            </p>
          )}
          {error !== undefined && <Failure error={error} onRetry={create} />}
        </li>
        <li>
          <Waiting isLive={isLive} />
        </li>
      </ol>
    </Card>
  );
}

function Waiting({ isLive }: { isLive: boolean }) {
  return (
    <p role="status">
      <Pill tone={isLive ? "good" : "warn"} isLive>
        {isLive ? "Waiting for the tunnel" : "Connecting to the engine"}
      </Pill>{" "}
      <span class="quiet small">It appears here automatically.</span>
    </p>
  );
}

async function createToken(project: Project): Promise<string> {
  const expiresAt = new Date(Date.now() + TOKEN_DAYS * 86_400_000).toISOString();
  const issued = await call("post", "/api/credentials", {
    body: {
      type: "pat",
      name: `publish in ${project.name}`.slice(0, 100),
      permissions: ["account.projects.read-only", "tunnels.resources.read-only", "tunnels.tunnels.create-delete"],
      resources: { tunnels: { projects: [project.id] } },
      expiresAt,
    },
  });
  invalidate("credentials");
  return issued.token ?? "";
}

function Online({ project, tunnel }: { project: Project; tunnel: Tunnel }) {
  const link = browserLink(tunnel);
  const address = visitAddress(tunnel) ?? dialAddress(tunnel) ?? nameOf(tunnel);
  const title = useRef<HTMLParagraphElement>(null);
  useEffect(() => {
    // The control of the command no longer exists. A focus on another element stays there.
    if (document.activeElement === document.body) title.current?.focus();
  }, []);
  const page = `${to("/projects/:id", { id: project.id })}/tunnels/${encodeURIComponent(tunnel.id ?? "")}`;
  return (
    <Card title={<span role="status"><Pill tone="good" isLive>Online</Pill></span>}>
      <div class="online">
        <div>
          <p class="big" tabIndex={-1} ref={title}>
            {link === undefined ? address : <a href={link} target="_blank" rel="noreferrer">{address}</a>}
          </p>
          <Code text={address} label="Copy the address" />
          <p class="quiet small">Visitors with the address who satisfy its access rules reach your service while the command runs.</p>
        </div>
        {link !== undefined && <QrCode text={link} label={`QR code of ${link}`} />}
      </div>
      <h3>Next steps</h3>
      <div class="buttons">
        <ButtonLink href={page} look="main">
          See its requests
        </ButtonLink>
        <ButtonLink href={`${to("/projects/:id", { id: project.id })}/domains?new=1`}>Use your own domain</ButtonLink>
        <ButtonLink href={`${to("/workspaces/:id", { id: project.workspaceId })}/members?new=1`}>Invite a colleague</ButtonLink>
      </div>
      <p class="quiet small">
        <code>--name web</code> keeps the address at every start; <code>--svc-auth</code> admits only members of your workspace; <code>--inspect</code> shows every request on
        your machine.
      </p>
    </Card>
  );
}

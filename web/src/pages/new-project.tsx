// Creates a project: name, plan and region, with the price before it is confirmed.

import { useRef, useState } from "preact/hooks";
import { call, type Control } from "../api/client";
import { type Workspace } from "../api/data";
import { invalidate, useResource } from "../api/resource";
import { ApiError } from "../api/problem";
import { may, isRole } from "../api/roles";
import { price } from "../format/text";
import { navigate } from "../router/location";
import { to } from "../router/match";
import { Field, Select } from "../ui/fields";
import { Form } from "../ui/form";
import { Loaded } from "../ui/parts";
import { toast } from "../ui/toasts";

/** True if the user may create projects in a workspace. */
export function mayCreateIn(workspace: Workspace): boolean {
  const { role } = workspace.membership;
  return isRole(role) && may(role, "account.projects.read-write") && workspace.status === "active";
}

export function NewProject({ workspaces, onDone }: { workspaces: readonly Workspace[]; onDone?: () => void }) {
  const allowed = workspaces.filter(mayCreateIn);
  const [workspace, setWorkspace] = useState(allowed[0]?.id ?? "");
  if (allowed.length === 0) return <p>Your role in these workspaces does not allow creating projects. An owner or admin can create one, or change your role.</p>;
  return (
    <>
      {allowed.length > 1 && <Select label="Workspace" value={workspace} options={allowed.map((one) => ({ value: one.id, text: one.name }))} onValue={setWorkspace} />}
      <ProjectForm key={workspace} workspace={workspace} onDone={onDone} />
    </>
  );
}

function ProjectForm({ workspace, onDone }: { workspace: string; onDone: (() => void) | undefined }) {
  const plans = useResource(`workspace/${workspace}/plans`, (signal) =>
    call("get", "/api/workspaces/{workspace_id}/projects/tunnels/plan/config", { path: { workspace_id: workspace }, signal }),
  );
  return <Loaded of={plans}>{(config) => <Choice workspace={workspace} config={config} onChanged={plans.reload} onDone={onDone} />}</Loaded>;
}

function Choice({ workspace, config, onChanged, onDone }: { workspace: string; config: Control<"PlanConfiguration">; onChanged: () => void; onDone: (() => void) | undefined }) {
  const [name, setName] = useState("");
  const [planName, setPlan] = useState<string>(config.recommended?.plan ?? config.plans.find((one) => one.available)?.plan ?? "");
  const plan = config.plans.find((one) => one.plan === planName) ?? config.plans[0];
  const places = (plan?.providers ?? []).flatMap(({ provider, regions }) => regions.map(({ region, recommended }) => ({ provider, region, recommended })));
  const [placeIndex, setPlace] = useState(0);
  // One key for each form, so that a repeated click or a lost response creates one project.
  const key = useRef(crypto.getRandomValues(new Uint32Array(4)).join("-"));
  if (plan === undefined) return <p>No plan is available in this workspace.</p>;
  const place = places[placeIndex] ?? places.find((one) => one.recommended) ?? places[0];
  const { billingAction: action, billingImpact: impact } = plan;
  return (
    <Form
      verb={action.submitLabel}
      look="main"
      isReady={plan.available && place !== undefined}
      onRetry={onChanged}
      onSubmit={async () => {
        if (place === undefined) return;
        const project = await create(workspace, {
          name: name.trim(),
          plan: plan.plan,
          provider: place.provider,
          region: place.region,
          creationFingerprint: plan.creationFingerprint,
          idempotencyKey: key.current,
        });
        if (project === undefined) return;
        invalidate("projects");
        toast(`The project ${project.name} is created.`);
        onDone?.();
        navigate(to("/projects/:id", { id: project.id }));
      }}
    >
      <Field label="Name" name="name" value={name} onValue={setName} maxLength={64} isRequired placeholder="my project" />
      <Select
        label="Plan"
        value={plan.plan}
        onValue={(value) => { setPlan(value); setPlace(0); }}
        options={config.plans.map((one) => ({ value: one.plan, text: `${one.name}${one.billingImpact.recurring === undefined ? "" : ` · ${price(one.billingImpact.recurring.amountMinor, one.billingImpact.recurring.currency)} per month`}` }))}
        hint={plan.description}
      />
      {places.length > 1 && <Select label="Region" value={String(placeIndex)} onValue={(value) => setPlace(Number(value))} options={places.map((one, index) => ({ value: String(index), text: `${one.region} (${one.provider})` }))} />}
      {plan.available ? (
        <div class="note">
          <strong>{impact.label}</strong>
          <span>{impact.description}</span>
          <span class="small">{action.description}</span>
        </div>
      ) : (
        <div class="note is-warn">{plan.unavailableReason ?? "This plan is not available."}</div>
      )}
    </Form>
  );
}

/** The created project, or undefined if the platform's page for a payment opens. */
async function create(workspace: string, body: Control<"CreateProject">): Promise<Control<"Project"> | undefined> {
  try {
    return await call("post", "/api/workspaces/{workspace_id}/projects/tunnels", { path: { workspace_id: workspace }, body });
  } catch (thrown) {
    if (!(thrown instanceof ApiError) || thrown.status !== 402 || thrown.url === undefined) throw thrown;
    const url = new URL(thrown.url, location.href);
    if (url.origin !== location.origin) throw thrown;
    location.assign(url);
    return undefined;
  }
}

// Changes the plan of a project: the price and the limits are shown before they are confirmed.

import { useState } from "preact/hooks";
import { call, type Control } from "../../api/client";
import { invalidate, useResource } from "../../api/resource";
import { costText, isPossible, limitText } from "../../format/plan";
import { Dialog } from "../../ui/dialog";
import { Select } from "../../ui/fields";
import { Form } from "../../ui/form";
import { Facts, Loaded } from "../../ui/parts";
import { toast } from "../../ui/toasts";

type Plan = Control<"Plan">;

const PLANS: readonly { readonly value: Plan; readonly text: string }[] = [
  { value: "basic", text: "Basic" },
  { value: "pro", text: "Pro" },
  { value: "enterprise", text: "Enterprise" },
];

export function PlanChange({ project, current, onClose }: { project: string; current: Plan; onClose: () => void }) {
  const others = PLANS.filter((plan) => plan.value !== current);
  const [plan, setPlan] = useState<Plan>(others[0]?.value ?? current);
  const preview = useResource(`project/${project}/plan-change/${plan}`, (signal) =>
    call("get", "/api/projects/tunnels/{project_id}/plan-change", { path: { project_id: project }, query: { plan }, signal }),
  );
  return (
    <Dialog title="Change the plan" onClose={onClose}>
      <Select
        label="New plan"
        value={plan}
        options={others}
        onValue={(value) => setPlan(others.find((one) => one.value === value)?.value ?? plan)}
      />
      <Loaded of={preview}>{(data) => <Confirmation key={data.changeFingerprint} preview={data} onChanged={preview.reload} onClose={onClose} />}</Loaded>
    </Dialog>
  );
}

function Confirmation({ preview, onChanged, onClose }: { preview: Control<"PlanChange">; onChanged: () => void; onClose: () => void }) {
  const { billingImpact: impact } = preview;
  return (
    <Form
      verb="Change the plan"
      look="main"
      isReady={isPossible(preview)}
      onRetry={onChanged}
      onClose={onClose}
      onSubmit={async () => {
        await call("post", "/api/projects/tunnels/{project_id}/plan-change", {
          path: { project_id: preview.projectId },
          body: { plan: preview.to, changeFingerprint: preview.changeFingerprint },
        });
        invalidate("project");
        // The subscription of the workspace.
        invalidate("workspace/");
        toast("The plan is changed.");
        onClose();
      }}
    >
      {preview.available ? (
        <div class="note">
          <strong>{costText(impact)}</strong>
          <span>{impact.description}</span>
          <span class="small">The new plan applies immediately.{preview.renewsOn !== undefined && ` The next month starts on ${preview.renewsOn}.`}</span>
        </div>
      ) : (
        <div class="note is-warn">{preview.unavailableReason ?? "This plan is not available."}</div>
      )}
      {preview.available && preview.setupUrl !== undefined && <Setup url={preview.setupUrl} />}
      <Facts
        rows={preview.limits.map(limitText).map((limit) => [
          limit.name,
          <>
            {limit.from} → {limit.to}
            {limit.effect !== "" && <div class="small">{limit.isBlocking ? <strong>{limit.effect}</strong> : limit.effect}</div>}
          </>,
        ])}
      />
    </Form>
  );
}

/** The page that sets up billing. Only an address of this platform is a link. */
function Setup({ url }: { url: string }) {
  const page = new URL(url, location.href);
  return (
    <div class="note is-warn">
      The workspace has no subscription that can be charged. {page.origin === location.origin ? <a href={page.href}>Set up billing</a> : "Set up billing"} first, then change the plan.
    </div>
  );
}

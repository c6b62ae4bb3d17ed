// Usage of a project: tunnels and TURN, with its plan.

import { useState } from "preact/hooks";
import { call } from "../../api/client";
import { useResource } from "../../api/resource";
import { bytes, count, price } from "../../format/text";
import { useFilter } from "../../router/location";
import { Select } from "../../ui/fields";
import { Button, Card, Facts, Loaded, Page } from "../../ui/parts";
import { Spark } from "../../ui/spark";
import { PlanChange } from "./plan-change";
import { useProjectRights } from "./rights";

type Timeline = "24h" | "1w" | "30d";

export function Usage({ project }: { project: string }) {
  const [timeline, setTimeline] = useFilter("timeline", "1w");
  const path = { project_id: project };
  const query = { timeline: timeline as Timeline };
  const usage = useResource(`project/${project}/usage/${timeline}`, (signal) => call("get", "/api/projects/tunnels/{project_id}/usage", { path, query, signal }), { every: 60_000 });
  const turn = useResource(`project/${project}/turn/${timeline}`, (signal) => call("get", "/api/projects/tunnels/{project_id}/turn/usage", { path, query, signal }), { every: 60_000 });
  const mayChange = useProjectRights(project).may("account.projects.read-write");
  const [isChanging, setChanging] = useState(false);
  const domains = useResource(`project/${project}/domains`, async (signal) => (await call("get", "/api/projects/tunnels/{project_id}/domains", { path, signal })).domains).data;
  const addresses = useResource(`project/${project}/addresses`, (signal) => call("get", "/api/projects/tunnels/{project_id}/addresses", { path, signal })).data;
  const plan = useResource(`project/${project}/plan`, (signal) => call("get", "/api/projects/tunnels/{project_id}/plan", { path, signal }));
  return (
    <Page
      title="Usage"
      note="As it is counted for the plan."
      actions={<Select label="Time" isLabelSeen={false} value={timeline} onValue={setTimeline} options={[{ value: "24h", text: "24 hours" }, { value: "1w", text: "1 week" }, { value: "30d", text: "30 days" }]} />}
    >
      <Card title="Tunnels">
        <Loaded of={usage}>
          {(data) => (
            <>
              <div class="stats">
                <Figure name="Streams" value={count(data.total.streams)} values={data.hours.map((hour) => hour.streams)} />
                <Figure name="Failed" value={count(data.total.failedStreams)} values={data.hours.map((hour) => hour.failedStreams)} isBad />
                <Figure name="To visitors" value={bytes(data.total.downstreamBytes)} values={data.hours.map((hour) => hour.downstreamBytes)} />
                <Figure name="From visitors" value={bytes(data.total.upstreamBytes)} values={data.hours.map((hour) => hour.upstreamBytes)} />
              </div>
            </>
          )}
        </Loaded>
      </Card>
      <Card title="TURN relays">
        <Loaded of={turn}>
          {(data) => (
            <div class="stats">
              <Figure name="Allocations" value={count(data.total.allocations)} values={data.hours.map((hour) => hour.allocations)} />
              <Figure name="Credentials" value={count(data.total.credentials)} values={data.hours.map((hour) => hour.credentials)} />
              <Figure name="Relayed" value={bytes(data.total.relayedBytes)} values={data.hours.map((hour) => hour.relayedBytes)} />
            </div>
          )}
        </Loaded>
      </Card>
      <Card title="Plan">
        <Loaded of={plan}>
          {(data) => (
            <>
              <p>
                <strong>{data.name}</strong>: {data.description}
              </p>
              <Facts
                rows={[
                  ["Price", data.monthly === undefined ? "free of charge" : `${price(data.monthly.amountMinor, data.monthly.currency)} per month`],
                  ["Logs are kept", `${data.logRetentionDays} days`],
                  ["Custom domains", used(domains?.length, data.domains)],
                  ["Reserved TCP ports", used(addresses?.addresses.length, data.tcpAddresses)],
                  ["Webhooks", data.webhooks ? "included" : "not included"],
                ]}
              />
              {mayChange && (
                <div class="buttons">
                  <Button onClick={() => setChanging(true)}>Change the plan</Button>
                </div>
              )}
              {isChanging && <PlanChange project={project} current={data.plan} onClose={() => setChanging(false)} />}
            </>
          )}
        </Loaded>
      </Card>
    </Page>
  );
}

/** How much of a limit is used. */
function used(count: number | undefined, limit: number): string {
  return count === undefined ? String(limit) : `${count} of ${limit} used`;
}

function Figure({ name, value, values, isBad = false }: { name: string; value: string; values: readonly number[]; isBad?: boolean }) {
  return (
    <div class="stat">
      <span class="name">{name}</span>
      <span class="value">{value}</span>
      <Spark values={values} label={`${name} per hour`} isBad={isBad} />
    </div>
  );
}

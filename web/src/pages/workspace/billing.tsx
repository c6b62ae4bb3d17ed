// Billing of a workspace: subscription and invoices.

import { call } from "../../api/client";
import { useProjects } from "../../api/data";
import { useResource } from "../../api/resource";
import { price } from "../../format/text";
import { usePage } from "../../router/location";
import { to } from "../../router/match";
import { Card, Empty, Facts, Loaded, Page, Status, Time } from "../../ui/parts";
import { PagedList } from "../../ui/table";

export function Billing({ workspace }: { workspace: string }) {
  const path = { workspace_id: workspace };
  const [page, setPage] = usePage();
  const names = new Map((useProjects().data ?? []).map((one) => [one.id, one.name]));
  const billing = useResource(`workspace/${workspace}/billing`, (signal) => call("get", "/api/workspaces/{workspace_id}/billing", { path, signal }));
  const invoices = useResource(`workspace/${workspace}/invoices/${page}`, (signal) => call("get", "/api/workspaces/{workspace_id}/billing/invoices", { path, query: { page, pageSize: 20 }, signal }));
  return (
    <Page title="Billing">
      <Card title="Subscription">
        <Loaded of={billing}>
          {(data) =>
            data.subscription === undefined ? (
              <p>No subscription: all projects of this workspace are free of charge.</p>
            ) : (
              <>
                <Facts
                  rows={[
                    ["Status", <Status key="status" of={data.subscription.status} />],
                    ["Price", `${price(data.subscription.monthly.amountMinor, data.subscription.monthly.currency)} per month`],
                    ["Renewed", data.subscription.renewsAt === undefined ? undefined : <Time key="renews" at={data.subscription.renewsAt} />],
                    ["Payment method", data.hasPaymentMethod ? "set up" : <a key="setup" href={`/billing/setup?workspaceId=${encodeURIComponent(workspace)}`}>set one up</a>],
                  ]}
                />
                <ul class="plain rows">
                  {data.subscription.items.map((item) => (
                    <li key={item.projectId} class="row">
                      <span>
                        <a href={to("/projects/:id/usage", { id: item.projectId })}>{names.get(item.projectId) ?? item.projectId}</a> · {item.plan}
                      </span>
                      <span class="number">{price(item.monthly.amountMinor, item.monthly.currency)}</span>
                    </li>
                  ))}
                </ul>
                <p class="small quiet">
                  The page of a project's usage changes its plan; the price is shown before you confirm it.
                </p>
              </>
            )
          }
        </Loaded>
      </Card>
      <Card isFlush title="Invoices">
        <PagedList of={invoices} items={(list) => list.invoices} empty={<Empty icon="usage" title="No invoice yet" />} onPage={setPage}>
          {(list) => (
            <ul class="plain rows">
              {list.map((one) => (
                <li key={one.id}>
                  <div class="row">
                    <span class="stack">
                      <span>
                        <Time at={one.periodStart} isRelative={false} /> – <Time at={one.periodEnd} isRelative={false} />
                      </span>
                      <code class="quiet">{one.id}</code>
                    </span>
                    <span>
                      <strong class="number">{price(one.total.amountMinor, one.total.currency)}</strong> <Status of={one.status} />
                    </span>
                  </div>
                  {one.lines.map((line) => (
                    <div key={line.projectId} class="row small quiet">
                      <span>
                        {names.get(line.projectId) ?? line.projectId} · {line.plan}
                      </span>
                      <span class="number">{price(line.price.amountMinor, line.price.currency)}</span>
                    </div>
                  ))}
                </li>
              ))}
            </ul>
          )}
        </PagedList>
      </Card>
    </Page>
  );
}

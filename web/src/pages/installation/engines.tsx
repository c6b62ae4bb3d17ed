// The engines of the installation, with their links to the platform.

import { call } from "../../api/client";
import { useResource } from "../../api/resource";
import { linksByAddress } from "../../format/links";
import { count } from "../../format/text";
import { Card, Empty, Facts, Loaded, Page, Pill, Time } from "../../ui/parts";

export function OperatorEngines() {
  const engines = useResource("installation/engines", (signal) => call("get", "/api/operator/engines", { signal }), { every: 5_000 });
  return (
    <Page title="Engines" note={engines.data !== undefined && `State version ${engines.data.version}`}>
      <Loaded of={engines}>
        {(list) =>
          list.clusters.length === 0 ? (
            <Card>
              <Empty icon="engine" title="No engine is linked" />
            </Card>
          ) : (
            <div class="grid">
              {list.clusters.map((one) => (
                <Card
                  key={one.clusterDomain}
                  title={one.clusterDomain}
                  actions={one.links.length > 0 ? <Pill tone="good" isLive>linked</Pill> : <Pill tone="bad">{one.enrolled ? "not linked" : "not enrolled"}</Pill>}
                >
                  <Facts
                    rows={[
                      ["Tunnels", count(one.tunnels)],
                      ["Clients", count(one.clients)],
                      ["Reported", <Time key="reported" at={one.reportedAt} />],
                      ["Links", String(one.links.length)],
                    ]}
                  />
                  <ul class="plain">
                    {linksByAddress(one.links).map((link) => (
                      <li key={link.address} class="row small">
                        <code>{link.address}</code>
                        <span class="quiet">
                          {link.count > 1 && `${count(link.count)} links, `}linked <Time at={link.linkedAt} />, seen <Time at={link.seenAt} />
                        </span>
                        {link.version === list.version ? <Pill tone="good">up to date</Pill> : <Pill tone="warn">version {link.version}</Pill>}
                      </li>
                    ))}
                  </ul>
                  <p class="small quiet">The engine and the TURN relay of a machine have one link each, from the same address.</p>
                </Card>
              ))}
            </div>
          )
        }
      </Loaded>
    </Page>
  );
}

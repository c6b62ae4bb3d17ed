// The engines of the installation, with their links to the platform.

import { call, type Control } from "../../api/client";
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
                        {link.programs.length > 0 && <span>svc {link.programs.join(", ")}</span>}
                        <span class="quiet">
                          {link.count > 1 && `${count(link.count)} links, `}linked <Time at={link.linkedAt} />, seen <Time at={link.seenAt} />
                        </span>
                        {link.version === list.version ? <Pill tone="good">up to date</Pill> : <Pill tone="warn">version {link.version}</Pill>}
                      </li>
                    ))}
                  </ul>
                  <Certificates list={one.certificates} />
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

/** The certificates of the engines' own names. Those of custom domains are at their projects. */
function Certificates({ list }: { list: Control<"OperatorCertificate">[] }) {
  if (list.length === 0) return null;
  return (
    <ul class="plain" aria-label="Certificates">
      {list.map((one) => (
        <li key={`${one.source} ${one.names.join(" ")} ${one.expiresAt ?? ""}`} class="small">
          <div class="row">
            <code>{shortList(one.names)}</code>
            <span class="quiet">
              {one.source === "files" ? "from files" : "ordered by the engine"}
              {one.expiresAt !== undefined && <>, expires <Time at={one.expiresAt} /></>}
            </span>
            {one.expiresAt === undefined ? <Pill tone="bad">not issued</Pill> : one.problem === undefined ? <Pill tone="good">current</Pill> : <Pill tone="warn">not renewed</Pill>}
          </div>
          {one.problem !== undefined && (
            <p class="quiet">
              {one.problem}
              {one.nextAttemptAt !== undefined && <> Next attempt: <Time at={one.nextAttemptAt} />.</>}
            </p>
          )}
        </li>
      ))}
    </ul>
  );
}

/** A certificate may have a hundred names. */
function shortList(names: string[]): string {
  const shown = names.slice(0, SHOWN_NAMES).join(", ");
  return names.length > SHOWN_NAMES ? `${shown} and ${count(names.length - SHOWN_NAMES)} more` : shown;
}

/** An engine has four names itself: its host, the tunnels, and both again for its projects. */
const SHOWN_NAMES = 4;

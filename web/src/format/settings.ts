// The settings of a tunnel that its agent sets, with the options that change them. A test of svc checks
// that `svc forward` has every option of this file and of access.ts.

import type { Engine } from "../api/client";

export interface AgentSetting {
  readonly name: string;
  readonly value: string;
  /** The option of `svc forward`. */
  readonly option: string;
}

/** The settings that have a value. Access rules are in access.ts. */
export function agentSettings(tunnel: Engine<"TunnelListItem">): AgentSetting[] {
  const settings: AgentSetting[] = [];
  const add = (name: string, value: string | undefined, option: string) => {
    if (value !== undefined && value !== "") settings.push({ name, value, option });
  };
  const flag = (value: boolean | undefined) => (value === undefined ? undefined : value ? "yes" : "no");
  const labels = Object.entries(tunnel.labels ?? {}).map(([name, value]) => `${name}=${value}`);
  const wait = tunnel.time_to_first_byte_seconds;
  add("Name", tunnel.name, "--name");
  add("Host name", tunnel.hostname, "--hostname");
  add("Port", tunnel.port?.toString(), "--port");
  add("Protocol", tunnel.protocol ?? "http", "--protocol");
  add("Type", tunnel.type, "--type");
  add("Several agents", flag(tunnel.share), "--share");
  add("HTTP version", tunnel.http_version, "--http-version");
  add("TLS", tunnel.tls_mode, "--tls-mode");
  add("TLS protocols", tunnel.tls_alpns?.join(", "), "--tls-alpns");
  add("TLS to the service", flag(tunnel.upstream_tls), "--upstream-tls");
  add("Wait for the first byte", wait === undefined ? undefined : `${wait} s`, "--time-to-first-byte");
  add("Identity of visitors", tunnel.identity?.join(", "), "--identity");
  add("Headers of visitors", tunnel.pass_headers?.join(", "), "--pass-headers");
  add("Visitors of other regions", flag(tunnel.allow_cross_region_routing), "--allow-cross-region-routing");
  add("Labels", labels.join(", "), "--label");
  return settings;
}

// The access rules of a tunnel as a sentence and as rows.

import type { Control, Engine } from "../api/client";

type Tunnel = Engine<"TunnelListItem">;
type Settings = Control<"ProjectSettings">;

export interface AccessRule {
  readonly name: string;
  readonly value: string;
  /** The side that sets it. */
  readonly owner: "agent" | "project";
  /** The option of the agent, or the page of the project. */
  readonly change: string;
}

/** Proofs of which a visitor needs any one. */
export function proofs(tunnel: Tunnel): string[] {
  const kinds: string[] = [];
  if (tunnel.svc_auth === true) kinds.push("sign in as a member of the workspace");
  if (tunnel.token_auth === true) kinds.push("send a token");
  if (tunnel.mtls_auth === true) kinds.push("present a client certificate");
  if (tunnel.basic_auth === true) kinds.push("enter a link password");
  return kinds;
}

export function sentence(tunnel: Tunnel, settings: Settings | undefined): string {
  if (tunnel.publish !== true) return "Private: only `svc dial` of people and programs with permission reaches it.";
  if (settings?.publicAccessPolicy === "forbidden") return "The project forbids public access: no visitor is admitted.";
  const kinds = proofs(tunnel);
  const parts: string[] = [];
  if (kinds.length > 0) parts.push(`Visitors must ${either(kinds)}`);
  else if (settings?.publicAccessPolicy === "auth-required") parts.push("No visitor is admitted: the project requires a proof, and the tunnel accepts none");
  else if (tunnel.challenge_mode === true) parts.push("Any visitor is admitted after a challenge of the browser");
  else parts.push("Any visitor with the address is admitted");
  const nets = [...(tunnel.trusted_ips ?? [])];
  if (nets.length > 0) parts.push(`from ${either(nets)}`);
  else if (settings?.trustedIps !== undefined && settings.trustedIps.length > 0) parts.push("from the project's trusted addresses");
  if ((tunnel.geo_ip?.length ?? 0) > 0 || settings?.geoIp !== undefined) parts.push("from allowed countries");
  return `${parts.join(", ")}.`;
}

export function accessRules(tunnel: Tunnel, settings: Settings | undefined): AccessRule[] {
  const rules: AccessRule[] = [];
  const agent = (name: string, value: string | undefined, change: string) => {
    if (value !== undefined && value !== "") rules.push({ name, value, owner: "agent", change });
  };
  const flag = (value: boolean | undefined) => (value === undefined ? undefined : value ? "required" : "off");
  agent("Published", tunnel.publish === true ? "yes" : "no, private", "--no-publish");
  agent("Sign-in of the workspace", flag(tunnel.svc_auth), "--svc-auth");
  agent("Token", flag(tunnel.token_auth), "--token-auth");
  agent("Client certificate", flag(tunnel.mtls_auth), "--mtls-auth");
  agent("Link password", flag(tunnel.basic_auth), "--basic-auth");
  agent("Challenge", flag(tunnel.challenge_mode), "--challenge-mode");
  agent("Trusted addresses", tunnel.trusted_ips?.join(", "), "--trusted-ips");
  agent("Countries", tunnel.geo_ip?.join(", "), "--geoip");
  agent("Origins", tunnel.allowed_origins?.join(", "), "--allowed-origins");
  agent("Minimum TLS", tunnel.tls_min_version, "--tls-min-version");
  if (settings !== undefined) {
    const project = (name: string, value: string) => rules.push({ name, value, owner: "project", change: "Project settings" });
    project("Public access", POLICY[settings.publicAccessPolicy]);
    if (settings.trustedIps !== undefined && settings.trustedIps.length > 0) project("Trusted addresses", settings.trustedIps.join(", "));
    if (settings.geoIp?.allow !== undefined) project("Allowed countries", settings.geoIp.allow.join(", "));
    if (settings.geoIp?.deny !== undefined) project("Blocked countries", settings.geoIp.deny.join(", "));
    if (settings.minTlsVersion !== undefined) project("Minimum TLS", settings.minTlsVersion);
  }
  return rules;
}

export const POLICY: Record<Control<"PublicAccessPolicy">, string> = {
  allowed: "allowed without a proof",
  "auth-required": "only with a proof",
  forbidden: "forbidden",
};

function either(parts: readonly string[]): string {
  if (parts.length < 2) return parts[0] ?? "";
  return `${parts.slice(0, -1).join(", ")} or ${parts.at(-1)}`;
}

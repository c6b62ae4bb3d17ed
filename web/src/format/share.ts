// Ways to share a tunnel: who may open it, and the credential for visitors without an account.

import type { Control, Engine } from "../api/client";

type Tunnel = Engine<"TunnelListItem">;

/** A way in, for each proof that the tunnel accepts. */
export interface Way {
  readonly name: string;
  readonly text: string;
}

/** For each proof that the tunnel accepts, the way of a visitor to it. */
export function ways(tunnel: Tunnel): Way[] {
  const found: Way[] = [];
  if (tunnel.basic_auth === true) found.push({ name: "Link password", text: "It was chosen where the agent runs, and only its hash is known here. Send it by another way than the address." });
  if (tunnel.svc_auth === true) found.push({ name: "Sign-in", text: "Members of the workspace sign in with their account." });
  if (tunnel.mtls_auth === true) found.push({ name: "Client certificate", text: "Register the visitor's certificate, or its authority, as a credential." });
  return found;
}

/** True if a token opens the tunnel: one that accepts tokens, or a private one, which is dialled. */
export function opensWithToken(tunnel: Tunnel): boolean {
  if (filterOf(tunnel) === undefined) return false;
  return tunnel.publish === true ? tunnel.token_auth === true : tunnel.name !== undefined;
}

/** The filter for only this tunnel. A tunnel without a name has its host name, unless that is the engine's. */
function filterOf({ name, hostname, protocol }: Tunnel): Readonly<Record<string, string>> | undefined {
  if (name !== undefined) return { name };
  return hostname === undefined || protocol === "tcp" ? undefined : { hostname };
}

/** Lifetimes of a token for visitors, in hours. */
export const LIFETIMES = [
  { value: "1", text: "1 hour" },
  { value: "24", text: "1 day" },
  { value: "168", text: "7 days" },
  { value: "720", text: "30 days" },
] as const;

/** A credential that opens only this tunnel, and ends after `hours`. */
export function visitorCredential(project: string, tunnel: Tunnel, hours: number, now: number): Control<"CreateCredential"> {
  const filters = filterOf(tunnel);
  // Without a filter the credential would open every tunnel of the project.
  if (filters === undefined) throw new Error("the tunnel has no name");
  return {
    type: "pat",
    name: `visit ${tunnel.name ?? tunnel.hostname ?? "a tunnel"}`.slice(0, MAX_NAME),
    permissions: ["tunnels.streams.create-delete"],
    resources: { tunnels: { projects: [project], scopes: { tunnels: { connect: { filters } } } } },
    expiresAt: new Date(now + hours * 3_600_000).toISOString(),
  };
}

/** The address with a token, for one request. The edge removes it before the service. */
export function tokenLink(address: string, token: string): string {
  // A token has only characters that a query may have.
  return `${address}/?svc.token=${token}`;
}

/** The longest name of a credential. */
const MAX_NAME = 100;

// A change of the plan as text.

import type { Control } from "../api/client";
import { bytes, count, price } from "./text";

type LimitChange = Control<"LimitChange">;

const NAMES: Readonly<Record<Control<"PlanLimit">, string>> = {
  agents: "Connected agents",
  tunnels: "Online tunnels",
  requests_per_second: "Requests per second",
  tunnel_requests_per_second: "Requests per second of a tunnel",
  bytes_per_second: "Bandwidth",
  tunnel_bytes_per_second: "Bandwidth of a tunnel",
  log_retention_days: "Logs are kept",
  webhooks: "Webhooks",
  tcp_addresses: "Reserved TCP ports",
  domains: "Custom domains",
};

const EFFECTS: Readonly<Record<Control<"LimitEffect">, string>> = {
  none: "",
  refuses_more: "What exists keeps working; more is refused, also when it reconnects.",
  slows: "Traffic above it is slowed down or refused.",
  new_only: "New logs and events only; stored ones keep their period.",
  remove_first: "Remove the excess first.",
};

export interface LimitText {
  readonly name: string;
  readonly from: string;
  readonly to: string;
  /** Effect on resources in use; empty if there is none. */
  readonly effect: string;
  /** The change is refused because of it. */
  readonly isBlocking: boolean;
}

export function limitText(change: LimitChange): LimitText {
  const effect = EFFECTS[change.effect];
  const used = change.used ?? 0;
  return {
    name: NAMES[change.limit],
    from: value(change.limit, change.from),
    to: value(change.limit, change.to),
    effect: used > 0 && effect !== "" ? `${count(used)} in use. ${effect}` : effect,
    isBlocking: change.effect === "remove_first",
  };
}

function value(limit: LimitChange["limit"], number: number | undefined): string {
  if (limit === "webhooks") return number === 0 ? "not included" : "included";
  if (number === undefined) return "no limit";
  if (limit === "log_retention_days") return `${count(number)} days`;
  return limit.endsWith("bytes_per_second") ? `${bytes(number)}/s` : count(number);
}

/** The cost in one line: "€15.00 now, then €30.00 per month". */
export function costText({ price: now, recurring }: Control<"BillingImpact">): string {
  const parts = [];
  if (now !== undefined) parts.push(`${price(now.amountMinor, now.currency)} now`);
  if (recurring !== undefined) parts.push(`${price(recurring.amountMinor, recurring.currency)} per month`);
  return parts.length === 0 ? "free of charge" : parts.join(", then ");
}

/** True if the platform would accept the change. */
export function isPossible(preview: Control<"PlanChange">): boolean {
  return preview.available && preview.setupUrl === undefined && preview.limits.every((limit) => limit.effect !== "remove_first");
}

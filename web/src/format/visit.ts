// The stored record of a visit, whose payload is read with distrust: every member may be missing.

import type { Control } from "../api/client";
import { problemStep, ruleSentence, ruleStep } from "./advice";

export interface Visit {
  readonly id: string;
  readonly at: number;
  readonly reference: string;
  readonly tunnel: string | undefined;
  readonly client: string | undefined;
  readonly user: string | undefined;
  readonly method: string | undefined;
  readonly host: string | undefined;
  readonly path: string | undefined;
  readonly from: string | undefined;
  readonly country: string | undefined;
  readonly status: number | undefined;
  readonly outcome: "connected" | "failed" | "denied";
  readonly proof: string;
  readonly rule: string | undefined;
  readonly sentence: string | undefined;
  readonly reason: string | undefined;
  readonly detail: string | undefined;
  readonly problem: string | undefined;
  readonly step: string | undefined;
  readonly establishMs: number | undefined;
  readonly durationMs: number | undefined;
  readonly upstreamBytes: number | undefined;
  readonly downstreamBytes: number | undefined;
  readonly endedBy: string | undefined;
}

export function readVisit(event: Control<"StoredEvent">): Visit {
  const payload: unknown = event.payload;
  const text = (...path: string[]) => {
    const value = at(payload, path);
    return typeof value === "string" && value !== "" ? value : undefined;
  };
  const number = (...path: string[]) => {
    const value = at(payload, path);
    return typeof value === "number" ? value : undefined;
  };
  const explained = (name: string) =>
    text("firewall", "explanation", name) ?? text("routing", "explanation", name) ?? text("response", "explanation", name);
  const status =
    number("response", "http", "status") ??
    number("firewall", "explanation", "status") ??
    number("routing", "explanation", "status") ??
    number("response", "explanation", "status");
  const isDenied = text("firewall", "decision") === "denied";
  const outcome = isDenied ? "denied" : text("response", "outcome") === "connected" ? "connected" : "failed";
  const rule = explained("rule");
  const problem = explained("problem");
  const isServed = outcome === "connected" && rule === undefined;
  return {
    id: event.eventId,
    at: Date.parse(text("created_at") ?? event.createdAt),
    reference: text("stream_id") ?? "",
    tunnel: text("tunnel_id"),
    client: text("client_id"),
    user: text("user_id"),
    method: text("request", "http", "request", "method"),
    host: text("request", "http", "request", "host"),
    path: text("request", "http", "request", "path"),
    from: text("request", "downstream", "ip"),
    country: text("request", "downstream", "geolocation", "country") ?? text("request", "downstream", "geolocation", "country_code"),
    status,
    outcome,
    proof: text("firewall", "rule", "kind") ?? "none",
    rule,
    sentence: explained("sentence") ?? ruleSentence(rule),
    reason: explained("reason"),
    detail: explained("detail"),
    problem,
    step: isServed ? undefined : outcome === "denied" ? ruleStep(rule) ?? problemStep(problem) : problemStep(problem) ?? ruleStep(rule),
    establishMs: number("response", "metrics", "establish_ms"),
    durationMs: number("response", "metrics", "duration_ms"),
    upstreamBytes: number("response", "metrics", "upstream_bytes"),
    downstreamBytes: number("response", "metrics", "downstream_bytes"),
    endedBy: text("response", "termination", "by"),
  };
}

/** The class of a status for filters: "2xx", or "none" for a connection that is not HTTP. */
export function statusClass(status: number | undefined): string {
  return status === undefined ? "none" : `${Math.floor(status / 100)}xx`;
}

function at(value: unknown, path: readonly string[]): unknown {
  let inner = value;
  for (const name of path) {
    if (typeof inner !== "object" || inner === null) return undefined;
    inner = (inner as Record<string, unknown>)[name];
  }
  return inner;
}

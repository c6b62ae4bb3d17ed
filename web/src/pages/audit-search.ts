// Filters and exports of an audit log. The platform filters by action, actor and time. Names are known
// only here, so a text is searched in entries that the browser has loaded, the newest first.

import type { Control } from "../api/client";
import { csv, dayRange } from "../format/text";

export type Entry = Control<"AuditEntry">;
type List = Control<"AuditList">;
export type Names = ReadonlyMap<string, string>;

export interface AuditFilter {
  readonly action: string;
  /** Id of a user; `PLATFORM` for entries without one. */
  readonly actor: string;
  /** First and last day in the reader's zone, as `2026-01-31`. */
  readonly from: string;
  readonly to: string;
  readonly q: string;
}

/** The query of a page of entries. */
export interface AuditQuery {
  readonly page: number;
  readonly pageSize: number;
  readonly action?: string;
  readonly actor?: string;
  readonly start?: string;
  readonly end?: string;
}

/** Entries per request. */
export const AUDIT_PAGE_SIZE = 100;

/** The actor of entries without a user. */
export const PLATFORM = "platform";

export const NO_FILTER: AuditFilter = { action: "", actor: "", from: "", to: "", q: "" };

export function isFiltered(filter: AuditFilter): boolean {
  return Object.values(filter).some((value) => value.trim() !== "");
}

/** The part of a filter that the platform applies, for one page. */
export function auditQuery(filter: AuditFilter, page: number): AuditQuery {
  const { start, end } = dayRange(filter.from, filter.to);
  return {
    page,
    pageSize: AUDIT_PAGE_SIZE,
    ...(filter.action !== "" && { action: filter.action }),
    ...(filter.actor !== "" && { actor: filter.actor }),
    ...(start !== undefined && { start: new Date(start).toISOString() }),
    ...(end !== undefined && { end: new Date(end).toISOString() }),
  };
}

/** The entries with a text in their names, targets and addresses. */
export function searchEntries(entries: readonly Entry[], text: string, names: Names): readonly Entry[] {
  const sought = text.trim().toLowerCase();
  return sought === "" ? entries : entries.filter((one) => row(one, names).join(" ").toLowerCase().includes(sought));
}

export interface Loaded {
  readonly entries: readonly Entry[];
  /** All entries that the platform found. */
  readonly total: number;
  /** False if entries that might match were not loaded. */
  readonly isComplete: boolean;
}

/** The newest entries: at most `pages` pages. */
export async function loadNewest(fetch: (page: number) => Promise<List>, pages: number): Promise<Loaded> {
  // Entries that are added meanwhile move others to the next page, which then has them again.
  const found = new Map<string, Entry>();
  let total = 0;
  for (let page = 1; page <= pages; page += 1) {
    const list = await fetch(page);
    total = list.total;
    for (const one of list.entries) found.set(one.id, one);
    if (page >= list.totalPages) return { entries: [...found.values()], total, isComplete: true };
  }
  return { entries: [...found.values()], total, isComplete: false };
}

export function asCsv(entries: readonly Entry[], names: Names): string {
  return csv([["time", "action", "actor", "actor id", "credential", "address", "target kind", "target", "target id", "details"], ...entries.map((one) => row(one, names))]);
}

/** The entries as the API returns them, with the names that the page shows. */
export function asJson(entries: readonly Entry[], names: Names): string {
  const named = entries.map((one) => ({ ...one, actorName: actorOf(one, names), targetName: targetOf(one, names) }));
  return `${JSON.stringify(named, null, 2)}\n`;
}

export function actorOf(one: Entry, names: Names): string {
  return one.actorUserId === undefined ? "the platform" : (names.get(one.actorUserId) ?? one.actorUserId);
}

/** The name of the target; for an object that is gone or has no list, the name in the details. */
export function targetOf(one: Entry, names: Names): string {
  const details: Readonly<Record<string, unknown>> = one.details;
  const named = ["name", "email", "hostname"].map((key) => details[key]).find((value) => typeof value === "string" && value !== "");
  return names.get(one.targetId) ?? (typeof named === "string" ? named : one.targetId);
}

function row(one: Entry, names: Names): string[] {
  return [one.createdAt, one.action, actorOf(one, names), one.actorUserId ?? "", one.actorCredentialId ?? "", one.ip ?? "", one.targetKind, targetOf(one, names), one.targetId, JSON.stringify(one.details)];
}

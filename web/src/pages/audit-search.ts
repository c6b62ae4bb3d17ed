// Filters and exports of an audit log. The API returns pages of all entries, the newest first, so the
// filters work on entries that the browser has loaded.

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

/** The actor of entries without a user. */
export const PLATFORM = "platform";

export const NO_FILTER: AuditFilter = { action: "", actor: "", from: "", to: "", q: "" };

export function isFiltered(filter: AuditFilter): boolean {
  return Object.values(filter).some((value) => value.trim() !== "");
}

export function filterEntries(entries: readonly Entry[], filter: AuditFilter, names: Names): Entry[] {
  const text = filter.q.trim().toLowerCase();
  const { start, end } = dayRange(filter.from, filter.to);
  return entries.filter((one) => {
    const at = Date.parse(one.createdAt);
    return (
      (filter.action === "" || one.action === filter.action) &&
      (filter.actor === "" || (one.actorUserId ?? PLATFORM) === filter.actor) &&
      (start === undefined || at >= start) &&
      (end === undefined || at < end) &&
      (text === "" || row(one, names).join(" ").toLowerCase().includes(text))
    );
  });
}

export interface Loaded {
  readonly entries: readonly Entry[];
  /** Entries of the whole log. */
  readonly total: number;
  /** False if entries that might match were not loaded. */
  readonly isComplete: boolean;
}

/** The newest entries: at most `pages` pages, and none before the day `from`. */
export async function loadNewest(fetch: (page: number) => Promise<List>, pages: number, from: string): Promise<Loaded> {
  // Entries that are added meanwhile move others to the next page, which then has them again.
  const found = new Map<string, Entry>();
  const { start } = dayRange(from, "");
  let total = 0;
  for (let page = 1; page <= pages; page += 1) {
    const list = await fetch(page);
    total = list.total;
    for (const one of list.entries) found.set(one.id, one);
    const oldest = list.entries.at(-1);
    const isOldEnough = oldest !== undefined && start !== undefined && Date.parse(oldest.createdAt) < start;
    if (page >= list.totalPages || isOldEnough) return { entries: [...found.values()], total, isComplete: true };
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

// The request log of a project, followed: first a page, then the newer visits.

import { useEffect, useState } from "preact/hooks";
import { backoffMs } from "../api/backoff";
import { call, type Control } from "../api/client";
import { onRecovery } from "../api/connection";
import { ApiError, unreachable } from "../api/problem";
import { readVisit, type Visit } from "../format/visit";

/** Engines report within ten seconds, so that a shorter pause shows nothing earlier. */
const PAUSE_MS = 3_000;
const PAGE_SIZE = 100;
/** Visits that the view keeps; older ones are reached by the filters. */
const MAX_VISITS = 2_000;

export interface LogChoice {
  readonly q: string;
  readonly outcome: string;
  readonly tunnel: string;
  readonly reference: string;
  readonly timeline: string;
}

export interface Log {
  readonly visits: readonly Visit[] | undefined;
  readonly error: ApiError | undefined;
  readonly hasOlder: boolean;
  readonly loadOlder: () => void;
}

type Outcome = "connected" | "failed" | "denied";
type Timeline = "30m" | "1h" | "12h" | "24h" | "3d" | "1w" | "30d";

/** Follows the log while `isFollowing`; a paused list does not move under the reader. */
export function useLog(project: string, choice: LogChoice, isFollowing: boolean): Log {
  const [visits, setVisits] = useState<readonly Visit[] | undefined>(undefined);
  const [error, setError] = useState<ApiError | undefined>(undefined);
  const [page, setPage] = useState(1);
  const [totalPages, setTotalPages] = useState(1);
  const key = JSON.stringify([project, choice]);

  const load = (more: { page?: number }, signal?: AbortSignal): Promise<Control<"LogList">> =>
    call("get", "/api/projects/tunnels/{project_id}/logs", {
      path: { project_id: project },
      query: {
        pageSize: PAGE_SIZE,
        ...more,
        q: choice.q,
        outcome: choice.outcome as Outcome,
        tunnelId: choice.tunnel,
        ...(choice.reference === "" ? { timeline: (choice.timeline === "" ? "24h" : choice.timeline) as Timeline } : { streamId: choice.reference }),
      },
      signal,
    });

  useEffect(() => {
    setVisits(undefined);
    setError(undefined);
    setPage(1);
  }, [key]);

  useEffect(() => {
    const stop = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    let attempt = 0;
    let isRunning = false;
    const run = async () => {
      if (isRunning) return;
      isRunning = true;
      clearTimeout(timer);
      let wait: number | undefined = isFollowing ? PAUSE_MS : undefined;
      try {
        const list = await load({}, stop.signal);
        if (stop.signal.aborted) return;
        attempt = 0;
        setError(undefined);
        setTotalPages(list.totalPages);
        setVisits((old) => merge(list.logs.map(readVisit), old ?? []));
      } catch (thrown) {
        if (stop.signal.aborted) return;
        const failure = thrown instanceof ApiError ? thrown : unreachable();
        setError(failure);
        if (failure.isTemporary) wait = failure.retryAfterMs ?? backoffMs(attempt, Math.random());
        else if (wait !== undefined) wait = 30_000;
        attempt += 1;
      } finally {
        isRunning = false;
      }
      if (wait !== undefined) timer = setTimeout(() => (document.visibilityState === "visible" ? void run() : (timer = setTimeout(() => void run(), PAUSE_MS))), wait);
    };
    // Typing changes the filter with each letter; only the last one is requested.
    timer = setTimeout(() => void run(), 200);
    const stopRecovery = onRecovery(() => void run());
    return () => {
      stop.abort();
      clearTimeout(timer);
      stopRecovery();
    };
  }, [key, isFollowing]);

  const loadOlder = () => {
    const next = page + 1;
    load({ page: next })
      .then((list) => {
        setPage(next);
        setTotalPages(list.totalPages);
        setVisits((old) => merge(old ?? [], list.logs.map(readVisit)));
      })
      .catch((thrown: unknown) => setError(thrown instanceof ApiError ? thrown : unreachable()));
  };
  return { visits, error, hasOlder: page < totalPages && (visits?.length ?? 0) < MAX_VISITS, loadOlder };
}

/** Both lists without duplicates, the newest first. */
export function merge(one: readonly Visit[], other: readonly Visit[]): readonly Visit[] {
  const known = new Set(other.map((visit) => visit.id));
  const fresh = one.filter((visit) => !known.has(visit.id));
  if (fresh.length === 0) return other;
  return [...fresh, ...other].sort((first, second) => second.at - first.at).slice(0, MAX_VISITS);
}

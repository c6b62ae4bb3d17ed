// Loads what a view shows, keeps it for the next view, and recovers from failures automatically.

import { useEffect, useRef, useState } from "preact/hooks";
import { backoffMs } from "./backoff";
import { onRecovery } from "./connection";
import { ApiError, unreachable } from "./problem";
import { SerialWork } from "./serial";

export interface Resource<T> {
  /** The newest content, also while it loads again or after a failure. */
  readonly data: T | undefined;
  readonly error: ApiError | undefined;
  readonly isLoading: boolean;
  readonly reload: () => void;
}

interface Entry {
  data: unknown;
  error: ApiError | undefined;
  isLoading: boolean;
}

/** Contents of earlier views, so that Back shows them immediately. The oldest is dropped first. */
const cache = new Map<string, Entry>();
const MAX_ENTRIES = 100;
/** The key of the roles of the person, on which depends what the views offer. */
export const ROLES_KEY = "workspaces";
const reloads = new Map<string, Set<() => Promise<void>>>();

/**
 * Loads again everything whose key starts with `prefix`, after a change, and ends when the views
 * have the new content or the failure of its load. The views that the change closes are gone by
 * then, so that no view requests an object that was just removed.
 */
export async function invalidate(prefix: string): Promise<void> {
  await new Promise((resolve) => setTimeout(resolve));
  for (const key of [...cache.keys()]) if (key.startsWith(prefix) && !reloads.has(key)) cache.delete(key);
  const shown = [...reloads].filter(([key]) => key.startsWith(prefix)).flatMap(([, set]) => [...set]);
  await Promise.all(shown.map((reload) => reload()));
}

/**
 * The content of `load`. `key` identifies it; undefined loads nothing. With `every`, it is loaded
 * again after that time while the page is visible.
 */
export function useResource<T>(
  key: string | undefined,
  load: (signal: AbortSignal) => Promise<T>,
  options: { every?: number } = {},
): Resource<T> {
  const [, render] = useState(0);
  const latest = useRef(load);
  latest.current = load;
  const reload = useRef(() => {});
  const every = options.every;

  useEffect(() => {
    if (key === undefined) return;
    const stop = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    let attempt = 0;
    const update = (part: Partial<Entry>) => {
      const entry = cache.get(key) ?? { data: undefined, error: undefined, isLoading: false };
      remember(key, { ...entry, ...part });
      render((count) => count + 1);
    };
    const later = (wait: number) => {
      clearTimeout(timer);
      timer = setTimeout(() => {
        if (document.visibilityState === "visible") void runs.request();
        else later(wait);
      }, wait);
    };
    const run = async () => {
      if (stop.signal.aborted) return;
      clearTimeout(timer);
      update({ isLoading: true });
      try {
        const data = await latest.current(stop.signal);
        if (stop.signal.aborted) return;
        attempt = 0;
        update({ data, error: undefined, isLoading: false });
        if (every !== undefined) later(every);
      } catch (thrown) {
        if (stop.signal.aborted) return;
        const error = thrown instanceof ApiError ? thrown : unreachable();
        update({ error, isLoading: false });
        // A role may have been lost: the views load it immediately.
        if (error.status === 403 && key !== ROLES_KEY) void invalidate(ROLES_KEY);
        if (error.isTemporary) {
          later(error.retryAfterMs ?? backoffMs(attempt, Math.random()));
          attempt += 1;
        } else if (every !== undefined && error.status !== 404) {
          later(Math.max(every, 15_000));
        }
      }
    };
    const runs = new SerialWork(run);
    const again = () => runs.request();
    reload.current = () => void again();
    const set = reloads.get(key) ?? new Set();
    set.add(again);
    reloads.set(key, set);
    const stopRecovery = onRecovery(() => void again());
    void again();
    return () => {
      stop.abort();
      clearTimeout(timer);
      stopRecovery();
      set.delete(again);
      if (set.size === 0) reloads.delete(key);
    };
  }, [key, every]);

  const entry = key === undefined ? undefined : cache.get(key);
  return {
    data: entry?.data as T | undefined,
    error: entry?.error,
    isLoading: key !== undefined && (entry === undefined || entry.isLoading),
    reload: () => reload.current(),
  };
}

function remember(key: string, entry: Entry): void {
  cache.delete(key);
  cache.set(key, entry);
  if (cache.size <= MAX_ENTRIES) return;
  for (const old of cache.keys()) {
    if (reloads.has(old)) continue;
    cache.delete(old);
    return;
  }
}

// Actions of buttons and forms.

import { useState } from "preact/hooks";
import { ApiError, unreachable } from "../api/problem";
import { invalidate, ROLES_KEY } from "../api/resource";

/**
 * The state of an action: it runs once at a time, and its failure stays in place. With `changes`,
 * the views with this key load again after it, also after a refusal, whose reason may be that they
 * are out of date. The action lasts until they have, so that nobody repeats it in a view from before.
 * `clear` removes the failure, after another action that may have removed its reason.
 */
export function useAction(changes?: string): { isBusy: boolean; error: ApiError | undefined; run: (action: () => Promise<void>) => void; clear: () => void } {
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<ApiError | undefined>(undefined);
  const run = (action: () => Promise<void>) => {
    if (isBusy) return;
    setBusy(true);
    setError(undefined);
    action()
      .catch((thrown: unknown) => {
        const failure = thrown instanceof ApiError ? thrown : unreachable();
        if (failure.status === 403) void invalidate(ROLES_KEY);
        setError(failure);
      })
      .then(() => (changes === undefined ? undefined : invalidate(changes)))
      .finally(() => setBusy(false));
  };
  return { isBusy, error, run, clear: () => setError(undefined) };
}

// Actions of buttons and forms.

import { useState } from "preact/hooks";
import { ApiError, unreachable } from "../api/problem";
import { invalidate, ROLES_KEY } from "../api/resource";

/** The state of an action: it runs once at a time, and its failure stays in place. */
export function useAction(): { isBusy: boolean; error: ApiError | undefined; run: (action: () => Promise<void>) => void } {
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<ApiError | undefined>(undefined);
  const run = (action: () => Promise<void>) => {
    if (isBusy) return;
    setBusy(true);
    setError(undefined);
    action()
      .catch((thrown: unknown) => {
        const failure = thrown instanceof ApiError ? thrown : unreachable();
        if (failure.status === 403) invalidate(ROLES_KEY);
        setError(failure);
      })
      .finally(() => setBusy(false));
  };
  return { isBusy, error, run };
}

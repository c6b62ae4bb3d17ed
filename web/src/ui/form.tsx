// Forms that send their values with one action.

import { type ComponentChildren, createContext } from "preact";
import type { ApiError } from "../api/problem";
import { useAction } from "./action";
import { Button, Failure } from "./parts";

/** The failure of the form around a field, which may name the field. */
export const FormError = createContext<ApiError | undefined>(undefined);

interface FormProps {
  /** Label of the button that submits. */
  verb: string;
  look?: "main" | "grave";
  /** False while the values cannot be submitted. */
  isReady?: boolean;
  onSubmit: () => Promise<void>;
  /** Called by the button that cancels. A form without it has no such button. */
  onClose?: () => void;
  /** Called to try again after a failure. */
  onRetry?: () => void;
  children: ComponentChildren;
}

export function Form({ verb, look, isReady = true, onSubmit, onClose, onRetry, children }: FormProps) {
  const { isBusy, error, run } = useAction();
  return (
    <form
      class="form"
      onSubmit={(event) => {
        event.preventDefault();
        if (isReady) run(onSubmit);
      }}
    >
      <FormError.Provider value={error}>{children}</FormError.Provider>
      {error !== undefined && <Failure error={error} onRetry={onRetry} />}
      <div class="buttons">
        <Button type="submit" look={look} isBusy={isBusy || !isReady}>
          {verb}
        </Button>
        {onClose !== undefined && <Button onClick={onClose}>Cancel</Button>}
      </div>
    </form>
  );
}

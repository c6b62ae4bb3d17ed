// Short notices about the result of an action.

import { Store, useStore } from "../store";
import { Button } from "./parts";

interface Toast {
  readonly id: number;
  readonly text: string;
  readonly tone: "good" | "bad";
}

const toasts = new Store<readonly Toast[]>([]);
const SHOWN_MS = 6_000;
const MAX_TOASTS = 4;
let last = 0;

export function toast(text: string, tone: "good" | "bad" = "good"): void {
  last += 1;
  const one: Toast = { id: last, text, tone };
  toasts.set([...toasts.get(), one].slice(-MAX_TOASTS));
  setTimeout(() => close(one.id), SHOWN_MS);
}

export function Toasts() {
  const shown = useStore(toasts);
  return (
    <div class="toasts" role="status" aria-live="polite">
      {shown.map((one) => (
        <div key={one.id} class={one.tone === "bad" ? "toast is-bad" : "toast"}>
          <span>{one.text}</span>
          <Button look="bare" icon="close" aria-label="Close the notice" onClick={() => close(one.id)} />
        </div>
      ))}
    </div>
  );
}

function close(id: number): void {
  toasts.set(toasts.get().filter((one) => one.id !== id));
}

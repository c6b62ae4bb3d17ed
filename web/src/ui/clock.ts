// One clock for all relative times of the page.

import { Store, useStore } from "../store";

const RENEWED_MS = 10_000;
const clock = new Store(Date.now());
let isRunning = false;

/** The current time, which is renewed while the page is visible. */
export function useNow(): number {
  if (!isRunning) {
    isRunning = true;
    setInterval(() => document.visibilityState === "visible" && clock.set(Date.now()), RENEWED_MS);
  }
  useStore(clock);
  return Date.now();
}

// The state of the connection to the platform, as the requests find it. While it is not good, a probe
// looks for its return and then every view loads again.

import { Store } from "../store";
import { backoffMs } from "./backoff";
import type { ApiError } from "./problem";

export type Connection = "good" | "offline" | "unreachable" | "signed_out";

export const connection = new Store<Connection>("good");

const recoveries = new Set<() => void>();
let person: string | undefined;
let probe: ReturnType<typeof setTimeout> | undefined;
let attempt = 0;

/** Calls `reload` each time the platform is reachable again. */
export function onRecovery(reload: () => void): () => void {
  recoveries.add(reload);
  return () => recoveries.delete(reload);
}

/** Stores the id of the user whose content is on the page, and reloads the page for another user. */
export function rememberPerson(id: string): void {
  if (person !== undefined && person !== id) location.reload();
  person = id;
}

export function reportSuccess(): void {
  if (connection.get() !== "good") recover();
}

export function reportFailure(error: ApiError): void {
  if (error.status === 401) {
    connection.set("signed_out");
    return;
  }
  const isPlatform = error.status === 0 || (error.status >= 502 && error.code.startsWith("http_"));
  if (!isPlatform || connection.get() === "signed_out") return;
  connection.set(navigator.onLine ? "unreachable" : "offline");
  schedule();
}

/** Sends the probe immediately, for example because the user requested it. */
export function probeNow(): void {
  clearTimeout(probe);
  probe = undefined;
  void look();
}

export function startConnection(): void {
  addEventListener("online", probeNow);
  addEventListener("offline", () => {
    if (connection.get() !== "signed_out") connection.set("offline");
    schedule();
  });
  // The person may have signed in again in another tab.
  document.addEventListener("visibilitychange", () => {
    if (document.visibilityState === "visible" && connection.get() !== "good") probeNow();
  });
}

async function look(): Promise<void> {
  try {
    const response = await fetch("/api/user", { signal: AbortSignal.timeout(10_000) });
    if (response.ok) {
      // Another user signed in: nothing of the previous user may stay on the page.
      const body: unknown = await response.json();
      if (typeof body === "object" && body !== null && "id" in body) rememberPerson(String(body.id));
      recover();
      return;
    }
    if (response.status === 401) {
      connection.set("signed_out");
      return;
    }
  } catch {
    if (connection.get() !== "signed_out") connection.set(navigator.onLine ? "unreachable" : "offline");
  }
  if (connection.get() !== "good") schedule();
}

function schedule(): void {
  if (probe !== undefined) return;
  const wait = backoffMs(attempt, Math.random());
  attempt += 1;
  probe = setTimeout(() => {
    probe = undefined;
    void look();
  }, wait);
}

function recover(): void {
  clearTimeout(probe);
  probe = undefined;
  attempt = 0;
  connection.set("good");
  for (const reload of [...recoveries]) reload();
}

// The requests that close a tunnel with all agents behind its name.

import { ApiError } from "../../api/problem";
import type { Tunnel } from "../../live/objects";
import { hasSameName } from "../../live/successor";

/** The tunnels under the name of one: several agents may share it. */
export function underSameName(tunnel: Tunnel, tunnels: ReadonlyMap<string, Tunnel>): Tunnel[] {
  return [...tunnels.values()].filter((one) => one.id === tunnel.id || hasSameName(one, tunnel));
}

/**
 * Closes tunnels, one request after the other, because a session may have few at the same time. A tunnel that has
 * ended meanwhile is skipped. If all of them have, nothing was closed: an agent that reconnects has other ids.
 */
export async function closeEach(ids: readonly string[], close: (id: string) => Promise<unknown>): Promise<void> {
  let count = 0;
  let missing: ApiError | undefined;
  for (const id of ids) {
    try {
      await close(id);
      count += 1;
    } catch (thrown) {
      if (!(thrown instanceof ApiError && thrown.status === 404)) throw thrown;
      missing = thrown;
    }
  }
  if (count === 0 && missing !== undefined) throw missing;
}

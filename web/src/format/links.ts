// The links of a cluster. The relay of a machine has a link of its own beside that of the engine, with
// the same address, and the API does not tell them apart.

import type { Control } from "../api/client";

type Link = Control<"OperatorLink">;

export interface LinkedAddress {
  readonly address: string;
  readonly count: number;
  /** Time of the oldest link. */
  readonly linkedAt: string;
  /** Time of the link that was seen least recently. */
  readonly seenAt: string;
  /** Lowest version. */
  readonly version: number;
  /** Versions of the programs. Earlier programs do not report theirs. */
  readonly programs: readonly string[];
}

/** One entry for each address, with the values of its link that needs most attention. */
export function linksByAddress(links: readonly Link[]): LinkedAddress[] {
  const found = new Map<string, LinkedAddress>();
  for (const link of links) {
    const before = found.get(link.address);
    found.set(link.address, {
      address: link.address,
      count: (before?.count ?? 0) + 1,
      linkedAt: earlier(before?.linkedAt, link.linkedAt),
      seenAt: earlier(before?.seenAt, link.seenAt),
      version: Math.min(before?.version ?? link.version, link.version),
      programs: [...new Set([...(before?.programs ?? []), ...(link.programVersion === undefined ? [] : [link.programVersion])])],
    });
  }
  return [...found.values()];
}

function earlier(one: string | undefined, other: string): string {
  return one !== undefined && Date.parse(one) <= Date.parse(other) ? one : other;
}

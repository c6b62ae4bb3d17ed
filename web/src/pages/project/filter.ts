// Filters of the lists of live objects.

import { proofs } from "../../format/access";
import type { Client, Tunnel } from "../../live/objects";

export interface TunnelChoice {
  readonly search: string;
  readonly protocol: string;
  readonly visibility: string;
  readonly label: string;
}

/** The tunnels that match, in their order; without a choice, the same list. */
export function filterTunnels(tunnels: readonly Tunnel[], choice: TunnelChoice): readonly Tunnel[] {
  const text = choice.search.trim().toLowerCase();
  if (text === "" && choice.protocol === "" && choice.visibility === "" && choice.label.trim() === "") return tunnels;
  return tunnels.filter((tunnel) => {
    if (choice.protocol !== "" && (tunnel.protocol ?? "http") !== choice.protocol) return false;
    if (choice.visibility === "public" && tunnel.publish !== true) return false;
    if (choice.visibility === "private" && tunnel.publish === true) return false;
    if (choice.visibility === "protected" && proofs(tunnel).length === 0) return false;
    if (!hasLabel(tunnel.labels, choice.label)) return false;
    return text === "" || searched(tunnel, textOfTunnel).includes(text);
  });
}

/** The clients that match, in their order. */
export function filterClients(clients: readonly Client[], search: string): readonly Client[] {
  const text = search.trim().toLowerCase();
  if (text === "") return clients;
  return clients.filter((client) => searched(client, textOfClient).includes(text));
}

/** Matches `name` or `name=value`. */
export function hasLabel(labels: Readonly<Record<string, string>> | undefined, wanted: string): boolean {
  const text = wanted.trim();
  if (text === "") return true;
  const split = text.indexOf("=");
  const name = split < 0 ? text : text.slice(0, split);
  if (labels === undefined || !Object.hasOwn(labels, name)) return false;
  return split < 0 || labels[name] === text.slice(split + 1);
}

/** Texts of objects that were searched. An object does not change, and another one takes its place. */
const texts = new WeakMap<object, string>();

/** The searchable text of an object. A search has no line break, so that it matches within one part. */
function searched<T extends object>(object: T, textOf: (object: T) => string): string {
  let text = texts.get(object);
  if (text === undefined) {
    text = textOf(object).toLowerCase();
    texts.set(object, text);
  }
  return text;
}

function textOfTunnel({ name = "", host = "", hostname = "", id = "", client_id: client = "" }: Tunnel): string {
  return `${name}\n${host}\n${hostname}\n${id}\n${client}`;
}

function textOfClient({ id, agent = "", version = "", os = "", arch = "", user_id: user = "", labels = {} }: Client): string {
  return `${id}\n${agent}\n${version}\n${os}\n${arch}\n${user}\n${Object.values(labels).join("\n")}`;
}

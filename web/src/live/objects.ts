// The live objects of a project, as its event stream reports them.

import type { Engine } from "../api/client";

export type Tunnel = Engine<"TunnelListItem">;
export type Client = Engine<"Client">;

export interface LiveEvent {
  readonly id: string;
  readonly type: string;
  readonly at: string;
  /** Name of the object, for the list of events. */
  readonly subject: string;
  readonly objectId: string;
}

/** Events that are kept for the overview. */
export const MAX_EVENTS = 200;

export class LiveObjects {
  readonly tunnels = new Map<string, Tunnel>();
  readonly clients = new Map<string, Client>();
  events: LiveEvent[] = [];
  hasSnapshot = false;

  /** Applies events in their order. An event of an unknown or broken form is ignored. */
  apply(texts: readonly string[]): void {
    const added: LiveEvent[] = [];
    for (const text of texts) {
      const event = parse(text);
      if (event === undefined) continue;
      if (event.type === "state.initial") this.#start(event.object);
      else if (this.#change(event.type, event.object)) added.push(this.#describe(event));
    }
    if (added.length > 0) this.events = [...added.reverse(), ...this.events].slice(0, MAX_EVENTS);
  }

  #start(object: Json): void {
    this.tunnels.clear();
    this.clients.clear();
    for (const one of list(object["tunnels"])) this.#change("tunnel.created", one);
    for (const one of list(object["clients"])) this.#change("client.created", one);
    this.hasSnapshot = true;
  }

  #change(type: string, object: Json): boolean {
    const [kind, verb] = type.split(".");
    const id = object["id"];
    if (typeof id !== "string") return false;
    const map: Map<string, unknown> | undefined = kind === "tunnel" ? this.tunnels : kind === "client" ? this.clients : undefined;
    if (map !== undefined) {
      if (verb === "deleted") map.delete(id);
      else if (verb === "created" || verb === "updated") map.set(id, object);
    }
    return true;
  }

  #describe(event: ParsedEvent): LiveEvent {
    const { object } = event;
    const text = (name: string) => (typeof object[name] === "string" && object[name] !== "" ? String(object[name]) : undefined);
    const subject = text("name") ?? text("hostname") ?? text("agent") ?? text("id") ?? "";
    return { id: event.id, type: event.type, at: event.at, subject, objectId: text("id") ?? "" };
  }
}

type Json = Readonly<Record<string, unknown>>;

interface ParsedEvent {
  readonly id: string;
  readonly type: string;
  readonly at: string;
  readonly object: Json;
}

function parse(text: string): ParsedEvent | undefined {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return undefined;
  }
  const event = object(value);
  const { id, type, created_at: at } = event;
  if (typeof type !== "string") return undefined;
  return { id: typeof id === "string" ? id : "", type, at: typeof at === "string" ? at : "", object: object(event["object"]) };
}

function object(value: unknown): Json {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Json) : {};
}

function list(value: unknown): Json[] {
  return Array.isArray(value) ? value.map(object) : [];
}

// The live objects of a project, as its event stream reports them.

import type { Engine } from "../api/client";
import { Order } from "./order";
import { snapshotItems, type SnapshotItem } from "./snapshot";

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

/** Events after which the page may render: together they take a few milliseconds. */
const EVENTS_PER_STEP = 100;
/** Objects of a snapshot after which the page may render. */
const OBJECTS_PER_STEP = 200;
/** Characters of an event that may be a snapshot; smaller ones are read at once. */
const LARGE_EVENT = 64 * 1024;

export class LiveObjects {
  #tunnels = new Map<string, Tunnel>();
  #clients = new Map<string, Client>();
  readonly #byName = new Order<Tunnel>((tunnel, id) => tunnel.name ?? tunnel.hostname ?? id);
  readonly #newest = new Order<Client>((_, id) => id, -1);
  readonly #changed = { tunnel: new Set<string>(), client: new Set<string>() };
  events: LiveEvent[] = [];
  hasSnapshot = false;

  get tunnels(): ReadonlyMap<string, Tunnel> {
    return this.#tunnels;
  }

  get clients(): ReadonlyMap<string, Client> {
    return this.#clients;
  }

  /** The tunnels by name. */
  get sortedTunnels(): readonly Tunnel[] {
    return this.#byName.values;
  }

  /** The clients, newest ids first. */
  get sortedClients(): readonly Client[] {
    return this.#newest.values;
  }

  /** Applies events in their order. An event of an unknown or broken form is ignored. */
  apply(texts: readonly string[]): void {
    const steps = this.steps(texts);
    while (steps.next().done !== true);
  }

  /** The same in steps, between which the page may render. */
  *steps(texts: readonly string[]): Generator<void> {
    const added: LiveEvent[] = [];
    let count = 0;
    for (const text of texts) {
      if (text.length >= LARGE_EVENT && (yield* this.#readSnapshot(text))) continue;
      const event = parse(text);
      if (event?.type === "state.initial") this.#start(objectsOf(event.object));
      else if (event !== undefined && this.#change(event.type, event.object)) added.push(this.#describe(event));
      count += 1;
      if (count % EVENTS_PER_STEP === 0) yield;
    }
    if (added.length > 0) this.events = [...added.reverse(), ...this.events].slice(0, MAX_EVENTS);
    this.#byName.update(this.#changed.tunnel, this.#tunnels);
    this.#newest.update(this.#changed.client, this.#clients);
    this.#changed.tunnel.clear();
    this.#changed.client.clear();
  }

  /** True if the text is a snapshot. Until all of it is read, the objects of before are there. */
  *#readSnapshot(text: string): Generator<void, boolean> {
    const found: SnapshotObjects = { tunnel: new Map(), client: new Map() };
    try {
      const items = snapshotItems(text);
      if (items === undefined) return false;
      let count = 0;
      for (const item of items) {
        keep(found, item.kind, object(JSON.parse(item.text)));
        count += 1;
        if (count % OBJECTS_PER_STEP === 0) yield;
      }
    } catch {
      // Broken, as an event that is not JSON.
      return true;
    }
    yield;
    this.#start(found);
    yield;
    return true;
  }

  #start(found: SnapshotObjects): void {
    this.#tunnels = found.tunnel as Map<string, Tunnel>;
    this.#clients = found.client as Map<string, Client>;
    this.#byName.reset(this.#tunnels);
    this.#newest.reset(this.#clients);
    this.#changed.tunnel.clear();
    this.#changed.client.clear();
    this.hasSnapshot = true;
  }

  #change(type: string, object: Json): boolean {
    const [kind, verb] = type.split(".");
    const id = object["id"];
    if (typeof id !== "string") return false;
    if (kind !== "tunnel" && kind !== "client") return true;
    const map: Map<string, unknown> = kind === "tunnel" ? this.#tunnels : this.#clients;
    if (verb === "deleted") map.delete(id);
    else if (verb === "created" || verb === "updated") map.set(id, object);
    this.#changed[kind].add(id);
    return true;
  }

  #describe(event: ParsedEvent): LiveEvent {
    const { object } = event;
    const text = (name: string) => (typeof object[name] === "string" && object[name] !== "" ? String(object[name]) : undefined);
    const subject = text("name") ?? text("hostname") ?? text("agent") ?? text("id") ?? "";
    return { id: event.id, type: event.type, at: event.at, subject, objectId: text("id") ?? "" };
  }
}

/** Objects of a snapshot by id. */
type SnapshotObjects = Readonly<Record<SnapshotItem["kind"], Map<string, Json>>>;

function objectsOf(snapshot: Json): SnapshotObjects {
  const found: SnapshotObjects = { tunnel: new Map(), client: new Map() };
  for (const one of list(snapshot["tunnels"])) keep(found, "tunnel", one);
  for (const one of list(snapshot["clients"])) keep(found, "client", one);
  return found;
}

function keep(found: SnapshotObjects, kind: SnapshotItem["kind"], one: Json): void {
  const id = one["id"];
  if (typeof id === "string") found[kind].set(id, one);
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

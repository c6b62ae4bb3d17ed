// Sessions of terminals as texts, and the filters of their list.

import type { Engine } from "../api/client";
import { dayRange, span } from "./text";

export type Session = Engine<"WebttySession">;
export type ControlRequest = Engine<"WebttyControlRequest">;

/** Characters of a command in the list. */
const MAX_COMMAND = 120;

/** The command, as its opener or the server named it. Undefined if this user may not read it. */
export function commandOf(session: Session): string | undefined {
  const meta: unknown = session.command_meta;
  const line = typeof meta === "object" && meta !== null && "command" in meta ? meta.command : undefined;
  if (typeof line !== "string") return undefined;
  if (line.trim() === "") return "shell";
  return line.length > MAX_COMMAND ? `${line.slice(0, MAX_COMMAND)} …` : line;
}

export function isOver(session: Session): boolean {
  return session.status === "closed" || session.status === "errored";
}

/** The duration of the session, up to `now` while it is active. Undefined if the end is unknown. */
export function durationOf(session: Session, now: number): string | undefined {
  const end = session.ended_at === undefined ? (isOver(session) ? NaN : now) : Date.parse(session.ended_at);
  const millis = end - Date.parse(session.started_at);
  return Number.isFinite(millis) ? span(millis) : undefined;
}

/** The result of a session that has ended, else the number of its participants. */
export function endOf(session: Session): string {
  if (!isOver(session)) {
    const count = session.live.participant_count;
    return count === 1 ? "1 participant" : `${count} participants`;
  }
  if (session.error_message !== undefined) return session.error_message;
  return session.exit_code === undefined ? "ended" : `ended with ${session.exit_code}`;
}

/** The time or the number of commands that a request for control requests. */
export function amountOf(request: ControlRequest): string {
  const parts = [];
  if (request.control_seconds !== undefined) parts.push(`for ${span(request.control_seconds * 1000)}`);
  if (request.control_lines !== undefined) parts.push(request.control_lines === 1 ? "for one command" : `for ${request.control_lines} commands`);
  return parts.length === 0 ? "without a limit" : parts.join(", ");
}

export interface SessionFilter {
  readonly status: string;
  readonly user: string;
  readonly server: string;
  /** First and last day in the reader's zone. */
  readonly from: string;
  readonly to: string;
}

const STATUSES = ["opening", "active", "closing", "closed", "errored"];

/** The parameters of the engine. An unknown status from the address is left out. */
export function sessionParams(filter: SessionFilter, limit: number): string {
  const { start, end } = dayRange(filter.from, filter.to);
  const filters = {
    ...(STATUSES.includes(filter.status) ? { status: filter.status } : {}),
    ...(filter.user === "" ? {} : { user_id: filter.user }),
    ...(filter.server === "" ? {} : { server_id: filter.server }),
    ...(start === undefined ? {} : { started_from: new Date(start).toISOString() }),
    // The engine includes this time.
    ...(end === undefined ? {} : { started_to: new Date(end - 1).toISOString() }),
  };
  return JSON.stringify({ limit, ...(Object.keys(filters).length === 0 ? {} : { filters }) });
}

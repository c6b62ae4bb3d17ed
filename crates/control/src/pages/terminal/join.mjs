// Joining an active session: requesting a stream, and the first message on it.

import { STREAM_SECONDS, engine, page, path, restrictTo, streamAddress } from "/terminal/engine.mjs";
import { isRestricted, mayManage } from "/terminal/server.mjs";

/** True if the user may request control, and not only watch. */
export const mayAsk = page.may.has("webtty.sessions.read-write");

/**
 * Requests to join a session. Returns the participant's id (`me`), the `address` of the stream, the
 * `attach` message that starts it, and the time (milliseconds) until which it is certain to last.
 * The participant `before` is removed, because its stream may still count as alive and have
 * control.
 */
export async function takePart(session, before) {
  const isForThem = mayManage && session.server_id && (await isRestricted(session.server_id));
  restrictTo(isForThem ? session.tunnel_id : undefined);
  const participants = path("sessions", session.id, "participants");
  if (before) await leave(participants, before);
  const body = { role: "spectator", transport: "websocket" };
  // The stream ends with the token that requested it.
  const { id, attach_grant: grant } = await engine(participants, { method: "POST", body, lasting: true });
  const attach = {
    sessionId: session.id,
    participantId: id,
    attachGrant: Uint8Array.from(atob(grant), (byte) => byte.charCodeAt(0)),
    requestedRole: 1,
    transport: 2,
    // Capabilities of a spectator over a WebSocket: reading, requesting control and taking it.
    capabilities: mayAsk ? [1, 2, 3] : [1],
  };
  return {
    me: id,
    address: streamAddress(`${participants}/${encodeURIComponent(id)}/stream`),
    attach,
    until: Date.now() + (STREAM_SECONDS - 60) * 1000,
  };
}

async function leave(participants, who) {
  const people = await engine(participants);
  if (!people.some(({ id, live }) => id === who && live.connected)) return;
  try {
    await engine(`${participants}/${encodeURIComponent(who)}`, { method: "POST", body: {} });
  } catch (error) {
    // The participant no longer exists.
    if (error.status !== 404) throw error;
  }
}

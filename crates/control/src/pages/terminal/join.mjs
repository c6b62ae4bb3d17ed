// Taking part in a session that runs: asking for a stream, and what the stream begins with.

import { STREAM_SECONDS, engine, page, path, restrictTo, streamAddress } from "/terminal/engine.mjs";
import { isRestricted, mayManage } from "/terminal/server.mjs";

/** Whether the person may ask for control, and not only watch. */
export const mayAsk = page.may.has("webtty.sessions.read-write");

/**
 * Asks to take part in a session: who one is there (`me`), the `address` of the stream, the `attach`
 * that it begins with, and until when (milliseconds) it lasts for certain. Who one was `before` goes:
 * that stream may be taken for alive, and then has control.
 */
export async function takePart(session, before) {
  const isForThem = mayManage && session.server_id && (await isRestricted(session.server_id));
  restrictTo(isForThem ? session.tunnel_id : undefined);
  const participants = path("sessions", session.id, "participants");
  if (before) await leave(participants, before);
  const body = { role: "spectator", transport: "websocket" };
  // The stream lasts for as long as the token with which it was asked for.
  const { id, attach_grant: grant } = await engine(participants, { method: "POST", body, lasting: true });
  const attach = {
    sessionId: session.id,
    participantId: id,
    attachGrant: Uint8Array.from(atob(grant), (byte) => byte.charCodeAt(0)),
    requestedRole: 1,
    transport: 2,
    // As a spectator over a WebSocket, who reads, asks for control and takes it.
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
    // Gone meanwhile.
    if (error.status !== 404) throw error;
  }
}

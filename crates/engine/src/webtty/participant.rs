//! Stream of one participant, from its first message to its end.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use tokio::time::{sleep, timeout};
use tty::managed::SessionRefusalError;
use tty::message::Kind;
use tty::session::{CLOSE_DEADLINE, OPEN_DEADLINE, SILENCE};
use types::id::ParticipantId;

use super::running::{ParticipantStream, RunningSession};
use super::wire::{ConnectionError, MessageSink, MessageSource, OutgoingMessage, Peer};
use crate::api::CredentialGuard;

/// Reads the attach message at the start of a participant's stream. A client without one gets an
/// error, and the connection is closed.
pub(crate) async fn open_attachment(
    session: &RunningSession,
    id: &ParticipantId,
    peer: &mut Peer<'_>,
) -> Option<(Arc<ParticipantStream>, Option<Box<CredentialGuard>>)> {
    let first = timeout(OPEN_DEADLINE, peer.source.next()).await;
    let refused = match first {
        Ok(Some(Ok(Kind::Attach(attach)))) => match session.connect(id, &attach) {
            Ok(seat) => return Some(seat),
            Err(refused) => refused.to_string(),
        },
        Ok(Some(Ok(_))) => SessionRefusalError::BadGrant.to_string(),
        Ok(Some(Err(broken))) => broken.fault()?,
        Ok(None) => return None,
        Err(_) => "no grant was received in time".to_owned(),
    };
    farewell(peer, Some(refused)).await;
    None
}

/// Sends the reason of a refusal, and closes the connection.
pub(crate) async fn refuse(mut peer: Peer<'_>, why: &str) {
    farewell(&mut peer, Some(why.to_owned())).await;
}

/// Serves a participant until the client leaves or the session dismisses it. `revoked` completes
/// when the access of the participant is revoked, which dismisses it.
pub(crate) async fn participate(
    session: &RunningSession,
    seat: &ParticipantStream,
    mut peer: Peer<'_>,
    revoked: impl Future<Output = ()>,
) {
    let ended = {
        let Peer { source, sink, .. } = &mut peer;
        let receiving = receive(session, seat, source);
        let sending = send(session, seat, sink);
        let close_deadline = async {
            seat.over.cancelled().await;
            sleep(CLOSE_DEADLINE).await;
        };
        let dismissed = async {
            revoked.await;
            session
                .update(|session, now| session.kick(seat.id, now))
                .ok();
            // The remaining messages are still sent.
            std::future::pending::<()>().await;
        };
        tokio::select! {
            received = receiving => match received {
                Err(broken) => broken.fault().map_or(ParticipantEnd::Disconnected, ParticipantEnd::Fault),
                Ok(()) => ParticipantEnd::Disconnected,
            },
            sent = sending => {
                if sent.is_ok() { ParticipantEnd::Complete } else { ParticipantEnd::Disconnected }
            }
            () = close_deadline => ParticipantEnd::Disconnected,
            () = dismissed => ParticipantEnd::Disconnected,
        }
    };
    // This comes before the farewell, so that nothing waits for a participant that leaves.
    session.on_disconnected(seat.id);
    match ended {
        ParticipantEnd::Complete => farewell(&mut peer, None).await,
        ParticipantEnd::Fault(fault) => farewell(&mut peer, Some(fault)).await,
        ParticipantEnd::Disconnected => {}
    }
}

enum ParticipantEnd {
    /// All messages were sent.
    Complete,
    /// The participant sent an invalid message.
    Fault(String),
    /// The participant disconnected or does not read.
    Disconnected,
}

/// Receives messages from a participant until it closes or is silent for too long.
async fn receive(
    session: &RunningSession,
    seat: &ParticipantStream,
    source: &mut MessageSource<'_>,
) -> Result<(), ConnectionError> {
    let mut has_heartbeat = false;
    loop {
        session.wait_for_input_capacity().await;
        let next = if has_heartbeat {
            let Ok(next) = timeout(SILENCE, source.next()).await else {
                return Ok(());
            };
            next
        } else {
            source.next().await
        };
        let Some(kind) = next.transpose()? else {
            return Ok(());
        };
        has_heartbeat |= matches!(kind, Kind::Heartbeat(_));
        session.on_participant_message(seat.id, kind);
    }
}

/// Sends queued messages to a participant, until it is dismissed and has all of them.
async fn send(
    session: &RunningSession,
    seat: &ParticipantStream,
    sink: &mut MessageSink<'_>,
) -> Result<(), ConnectionError> {
    loop {
        while let Some(kind) = session.next_message(seat.id) {
            sink.feed(OutgoingMessage::Message(kind)).await?;
        }
        sink.flush().await?;
        tokio::select! {
            biased;
            () = seat.wake.notified() => {}
            () = seat.over.cancelled() => {
                while let Some(kind) = session.next_message(seat.id) {
                    sink.feed(OutgoingMessage::Message(kind)).await?;
                }
                return sink.flush().await;
            }
        }
    }
}

/// Sends the error, if any, and the farewell. Then it waits a while for the peer to close, so that
/// the peer receives the last message.
async fn farewell(peer: &mut Peer<'_>, fault: Option<String>) {
    let sending = async {
        if let Some(fault) = fault {
            peer.sink
                .send(OutgoingMessage::Message(Kind::error(&fault)))
                .await?;
        }
        peer.sink.send(OutgoingMessage::Farewell).await?;
        while let Some(Ok(_)) = peer.source.next().await {}
        peer.sink.close().await
    };
    // A peer that does not read in time loses these messages.
    timeout(PEER_CLOSE_TIMEOUT, sending).await.ok();
}

/// Time that a peer has to close after the farewell.
const PEER_CLOSE_TIMEOUT: Duration = CLOSE_DEADLINE;

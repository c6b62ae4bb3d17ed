//! The stream of one participant, from its first message to its end.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use tokio::time::{sleep, timeout};
use tty::managed::Refused;
use tty::message::Kind;
use tty::session::{CLOSE_DEADLINE, OPEN_DEADLINE, SILENCE};
use types::id::ParticipantId;

use super::running::{RunningSession, Seat};
use super::wire::{ConnectionError, MessageSink, Peer, Say, Source};
use crate::api::CredentialGuard;

/// Reads the attach that a participant's stream begins with. Whoever has none to show is told so and
/// hung up to.
pub(crate) async fn open_attachment(
    session: &RunningSession,
    id: &ParticipantId,
    peer: &mut Peer<'_>,
) -> Option<(Arc<Seat>, Option<Box<CredentialGuard>>)> {
    let first = timeout(OPEN_DEADLINE, peer.source.next()).await;
    let refused = match first {
        Ok(Some(Ok(Kind::Attach(attach)))) => match session.connect(id, &attach) {
            Ok(seat) => return Some(seat),
            Err(refused) => refused.to_string(),
        },
        Ok(Some(Ok(_))) => Refused::BadGrant.to_string(),
        Ok(Some(Err(broken))) => broken.fault()?,
        Ok(None) => return None,
        Err(_) => "nothing was shown in time".to_owned(),
    };
    farewell(peer, Some(refused)).await;
    None
}

/// Tells somebody who came why nothing comes of it, and hangs up.
pub(crate) async fn refuse(mut peer: Peer<'_>, why: &str) {
    farewell(&mut peer, Some(why.to_owned())).await;
}

/// Serves a participant until they go, or are to go. `revoked` is what ends it from outside: then
/// they are sent away.
pub(crate) async fn participate(
    session: &RunningSession,
    seat: &Seat,
    mut peer: Peer<'_>,
    revoked: impl Future<Output = ()>,
) {
    let ended = {
        let Peer { source, sayer, .. } = &mut peer;
        let hearing = hear(session, seat, source);
        let telling = tell(session, seat, sayer);
        let stuck = async {
            seat.over.cancelled().await;
            sleep(CLOSE_DEADLINE).await;
        };
        let sent_away = async {
            revoked.await;
            session.act(|session, now| session.kick(seat.id, now)).ok();
            // What is left to say is said.
            std::future::pending::<()>().await;
        };
        tokio::select! {
            heard = hearing => match heard {
                Err(broken) => broken.fault().map_or(ParticipantEnd::Gone, ParticipantEnd::Fault),
                Ok(()) => ParticipantEnd::Gone,
            },
            told = telling => if told.is_ok() { ParticipantEnd::Over } else { ParticipantEnd::Gone },
            () = stuck => ParticipantEnd::Gone,
            () = sent_away => ParticipantEnd::Gone,
        }
    };
    // First, so that nobody waits for who is only being said goodbye to.
    session.lost(seat.id);
    match ended {
        ParticipantEnd::Over => farewell(&mut peer, None).await,
        ParticipantEnd::Fault(fault) => farewell(&mut peer, Some(fault)).await,
        ParticipantEnd::Gone => {}
    }
}

enum ParticipantEnd {
    /// They have been told everything.
    Over,
    /// They said something that is no message.
    Fault(String),
    /// They are gone, or do not listen.
    Gone,
}

/// Hears what a participant says, until they hang up or are silent for too long.
async fn hear(
    session: &RunningSession,
    seat: &Seat,
    source: &mut Source<'_>,
) -> Result<(), ConnectionError> {
    let mut beats = false;
    loop {
        session.room_for_input().await;
        let next = if beats {
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
        beats |= matches!(kind, Kind::Heartbeat(_));
        session.hear(seat.id, kind);
    }
}

/// Tells a participant what waits for them, until they are to go and have all of it.
async fn tell(
    session: &RunningSession,
    seat: &Seat,
    sayer: &mut MessageSink<'_>,
) -> Result<(), ConnectionError> {
    loop {
        while let Some(kind) = session.take(seat.id) {
            sayer.feed(Say::Message(kind)).await?;
        }
        sayer.flush().await?;
        tokio::select! {
            biased;
            () = seat.wake.notified() => {}
            () = seat.over.cancelled() => {
                while let Some(kind) = session.take(seat.id) {
                    sayer.feed(Say::Message(kind)).await?;
                }
                return sayer.flush().await;
            }
        }
    }
}

/// Says what was wrong, if anything, and that it is over; then waits a while for the other end to
/// hang up, so that it hears the last message.
async fn farewell(peer: &mut Peer<'_>, fault: Option<String>) {
    let saying = async {
        if let Some(fault) = fault {
            peer.sayer.send(Say::Message(Kind::error(&fault))).await?;
        }
        peer.sayer.send(Say::Farewell).await?;
        while let Some(Ok(_)) = peer.source.next().await {}
        peer.sayer.close().await
    };
    // Whoever does not listen has nothing to lose.
    timeout(LISTEN, saying).await.ok();
}

/// How long somebody is waited for who was told that it is over.
const LISTEN: Duration = CLOSE_DEADLINE;

//! The one task of a session: it has the server's side and the time, and ends when the session has.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use jiff::Timestamp;
use tokio::time::{sleep, timeout};
use tty::managed::EndReason;
use tty::message::Kind;
use tty::session::{CLOSE_DEADLINE, SILENCE};

use super::registry::SessionPermit;
use super::running::RunningSession;
use super::upstream::Server;
use super::wire::{MessageSink, Say, Source};
use crate::core::Worker;
use crate::edge::access_record::{AccessRecord, Outcome};
use crate::edge::revocation;

/// Runs a session to its end. `record` is of the visit that opened it: what let that in holds for the
/// session, whoever takes part by now.
pub(super) async fn run(
    session: Arc<RunningSession>,
    server: Server,
    mut record: AccessRecord,
    place: SessionPermit,
    worker: Arc<Worker>,
) {
    let Server { mut peer } = server;
    {
        let (source, sayer) = (&mut peer.source, &mut peer.sayer);
        let serving = async {
            tokio::join!(hear(&session, source), tell(&session, sayer));
        };
        tokio::select! {
            () = serving => {}
            () = keep(&session, &mut record, &worker) => {}
            // Nobody waits for anything any more.
            () = worker.core.shutdown.hard().cancelled() => session.server_lost(),
        }
    }
    session.server_lost();
    session.finish();
    let (from, to) = session.traffic();
    record.bytes(from, to);
    record.ended(Outcome::Served);
    place.ended(&session);
}

/// Hears what the server says, until it hangs up, is silent for too long, or the session is over.
async fn hear(session: &RunningSession, source: &mut Source<'_>) {
    let hearing = async {
        let mut beats = false;
        loop {
            session.room_for_output().await;
            let next = if beats {
                timeout(SILENCE, source.next()).await.ok().flatten()
            } else {
                source.next().await
            };
            let Some(Ok(kind)) = next else { return };
            beats |= matches!(kind, Kind::Heartbeat(_));
            session.act(|session, now| session.on_server(kind, now));
        }
    };
    tokio::select! {
        () = hearing => session.server_lost(),
        () = session.over.cancelled() => {}
    }
}

/// Tells the server what waits for it, until it is to be hung up to.
async fn tell(session: &RunningSession, sayer: &mut MessageSink<'_>) {
    let telling = async {
        loop {
            while let Some(kind) = session.take_for_server() {
                sayer.feed(Say::Message(kind)).await?;
            }
            sayer.flush().await?;
            tokio::select! {
                biased;
                () = session.for_server.notified() => {}
                () = session.server_over.cancelled() => break,
            }
        }
        sayer.send(Say::Farewell).await?;
        sayer.close().await
    };
    let stuck = async {
        session.server_over.cancelled().await;
        sleep(CLOSE_DEADLINE).await;
    };
    tokio::select! {
        // It has all, or is gone.
        _ended = telling => {}
        () = stuck => {}
    }
    session.server_lost();
}

/// Does what is due, and ends the session when what let it in is taken back or the engine goes down.
/// Never returns.
async fn keep(session: &RunningSession, record: &mut AccessRecord, worker: &Worker) {
    let cut = record.revocation();
    let mut pace = session.pace();
    let server = session.facts.policy.server.ended();
    let (mut is_cut, mut drains) = (false, false);
    loop {
        let wait = session.deadline().map(|at| until(at, session.now()));
        tokio::select! {
            () = session.stirred.notified() => {}
            () = sleep(wait.unwrap_or(LOOK)) => {
                session.act(tty::managed::Session::on_time);
                let (from, to) = session.traffic();
                record.bytes(from, to);
            }
            () = async {
                tokio::select! {
                    () = revocation::revoked(cut.as_deref()) => {}
                    () = server.cancelled() => {}
                }
            }, if !is_cut => {
                is_cut = true;
                session.act(|session, now| session.stop(EndReason::Revoked, None, now));
            }
            () = worker.drain.cancelled(), if !drains => {
                drains = true;
                session.act(|session, now| session.stop(EndReason::Drain, None, now));
            }
            Ok(()) = pace.changed() => {
                let now = *pace.borrow_and_update();
                session.set_pace(now);
            }
        }
    }
}

/// How long until then. The clock of the day may be set, so it is looked at now and then.
fn until(at: Timestamp, now: Timestamp) -> Duration {
    let left = at.duration_since(now);
    Duration::try_from(left).unwrap_or_default().min(LOOK)
}

/// Between two looks at the clock: a heartbeat is due about as often.
const LOOK: Duration = Duration::from_secs(5);

//! Task of a session. It handles the server's side and the timers, and ends with the session.

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
use super::wire::{MessageSink, MessageSource, OutgoingMessage};
use crate::core::Worker;
use crate::edge::access_record::{AccessRecord, Outcome};
use crate::edge::revocation;

/// Runs a session to its end. `record` belongs to the visit that opened it. The authorisation of
/// that visit applies to the session, also after its opener has left.
pub(super) async fn run(
    session: Arc<RunningSession>,
    server: Server,
    mut record: AccessRecord,
    permit: SessionPermit,
    worker: Arc<Worker>,
) {
    let Server { mut peer } = server;
    {
        let (source, sink) = (&mut peer.source, &mut peer.sink);
        let serving = async {
            tokio::join!(receive(&session, source), send(&session, sink));
        };
        tokio::select! {
            () = serving => {}
            () = run_timers(&session, &mut record, &worker) => {}
            // A hard shutdown does not wait for anything.
            () = worker.core.shutdown.hard().cancelled() => session.on_server_disconnected(),
        }
    }
    session.on_server_disconnected();
    session.finish();
    let (from, to) = session.traffic();
    record.set_bytes(from, to);
    record.set_outcome(Outcome::Served);
    permit.finish(&session);
}

/// Receives messages from the server until it closes, is silent for too long, or the session is
/// over.
async fn receive(session: &RunningSession, source: &mut MessageSource<'_>) {
    let receiving = async {
        let mut has_heartbeat = false;
        loop {
            session.wait_for_output_capacity().await;
            let next = if has_heartbeat {
                timeout(SILENCE, source.next()).await.ok().flatten()
            } else {
                source.next().await
            };
            let Some(Ok(kind)) = next else { return };
            has_heartbeat |= matches!(kind, Kind::Heartbeat(_));
            session.update(|session, now| session.on_server(kind, now));
        }
    };
    tokio::select! {
        () = receiving => session.on_server_disconnected(),
        () = session.over.cancelled() => {}
    }
}

/// Sends the queued messages to the server until its connection is to be closed.
async fn send(session: &RunningSession, sink: &mut MessageSink<'_>) {
    let sending = async {
        loop {
            while let Some(kind) = session.next_server_message() {
                sink.feed(OutgoingMessage::Message(kind)).await?;
            }
            sink.flush().await?;
            tokio::select! {
                biased;
                () = session.for_server.notified() => {}
                () = session.server_closing.cancelled() => break,
            }
        }
        sink.send(OutgoingMessage::Farewell).await?;
        sink.close().await
    };
    let close_deadline = async {
        session.server_closing.cancelled().await;
        sleep(CLOSE_DEADLINE).await;
    };
    tokio::select! {
        // The server has received everything, or is gone.
        _sent = sending => {}
        () = close_deadline => {}
    }
    session.on_server_disconnected();
}

/// Runs the timers, and ends the session when its authorisation is revoked or the engine shuts
/// down. Never returns.
async fn run_timers(session: &RunningSession, record: &mut AccessRecord, worker: &Worker) {
    let revocation_signal = record.revocation();
    let mut pace = session.pace();
    let server = session.attributes.policy.server.ended();
    let (mut is_revoked, mut is_draining) = (false, false);
    loop {
        let wait = session.deadline().map(|at| sleep_time(at, session.now()));
        tokio::select! {
            () = session.timers_changed.notified() => {}
            () = sleep(wait.unwrap_or(MAX_SLEEP)) => {
                session.update(tty::managed::Session::on_time);
                let (from, to) = session.traffic();
                record.set_bytes(from, to);
            }
            () = async {
                tokio::select! {
                    () = revocation::revoked(revocation_signal.as_deref()) => {}
                    () = server.cancelled() => {}
                }
            }, if !is_revoked => {
                is_revoked = true;
                session.update(|session, now| session.stop(EndReason::Revoked, None, now));
            }
            () = worker.drain.cancelled(), if !is_draining => {
                is_draining = true;
                session.update(|session, now| session.stop(EndReason::Drain, None, now));
            }
            Ok(()) = pace.changed() => {
                let now = *pace.borrow_and_update();
                session.set_pace(now);
            }
        }
    }
}

/// Time until a deadline, bounded because the wall clock may be set while the task sleeps.
fn sleep_time(at: Timestamp, now: Timestamp) -> Duration {
    let left = at.duration_since(now);
    Duration::try_from(left).unwrap_or_default().min(MAX_SLEEP)
}

/// Longest sleep before the clock is read again: a heartbeat is due about as often.
const MAX_SLEEP: Duration = Duration::from_secs(5);

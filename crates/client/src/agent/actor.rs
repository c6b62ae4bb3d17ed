//! Main loop of an agent: connect, serve, lose the channel, wait, reconnect.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::sync::{Semaphore, oneshot};
use tracing::{info, warn};
use types::causes::chain;

use super::{
    AgentStatus,
    moving::{Move, SessionExit},
    session::Session,
    shared::AgentState,
};
use crate::ConnectError;
use crate::agent::tunnel::CloseReason;
use crate::backoff::{Backoff, random};

/// Runs until the agent is closed or refused. This task is the only owner of the channel.
pub(crate) async fn run(shared: Arc<AgentState>) {
    let refusal = tokio::select! {
        biased;
        () = shared.kill.cancelled() => None,
        refusal = keep_online(&shared) => refusal,
    };
    // No new streams are admitted; accepted streams finish on their own.
    shared.stop.cancel();
    shared.streams.close();
    let why = refusal
        .clone()
        .map_or(CloseReason::Asked, CloseReason::Refused);
    shared.finish_all(&why);
    shared.set_status(AgentStatus::Ended(refusal));
}

/// Reconnects until a reconnect is not allowed (EN-9: also to an engine that was restarted and has
/// lost its state). `None` if the owner closed the agent.
async fn keep_online(shared: &Arc<AgentState>) -> Option<crate::Refusal> {
    let mut backoff = shared.config().backoff.clone();
    let mut away_since = Instant::now();
    loop {
        let (error, lived) = attempt(shared).await;
        let error = error?;
        if lived >= HEALTHY {
            backoff.reset();
            away_since = Instant::now();
        }
        shared.note_failure(&error);
        if !error.is_transient() {
            warn!(error = chain(&error), "the agent was refused");
            let kind = match error {
                ConnectError::Refused(refusal) => return Some(refusal),
                ConnectError::Token(_) => crate::RefusalKind::Unauthorized,
                _ => crate::RefusalKind::Invalid,
            };
            return Some(crate::Refusal::new(kind, chain(&error)));
        }
        let retry_in = wait_after(&error, away_since.elapsed(), &mut backoff, random());
        let text: Arc<str> = chain(&error).into();
        info!(error = %text, ?retry_in, "not connected to the engine");
        for entry in shared.entries() {
            if entry.is_closing() {
                shared.finish(&entry, entry.close_reason());
            } else {
                entry.disconnected(&text, retry_in);
            }
        }
        shared.set_status(AgentStatus::Disconnected {
            error: text,
            retry_in,
        });
        if !wait(shared, retry_in).await {
            return None;
        }
    }
}

/// Returns the delay after a failed attempt. `away` is the time without a connection.
///
/// A refused dial means that the engine is being restarted, and costs it nothing. For a while the
/// agent therefore retries at a constant rate, so that visitors hardly notice the restart. Every
/// other failure may be caused by overload, so the delays grow.
fn wait_after(
    error: &ConnectError,
    away: Duration,
    backoff: &mut Backoff,
    random: u64,
) -> Duration {
    if error.is_connection_refused() && away < RESTART {
        backoff.next_wait_within(RESTART_WAIT, random)
    } else {
        backoff.next_wait(random)
    }
}

/// Runs one channel from its opening to its loss, and those to which the engine moves the agent
/// meanwhile. Returns the error (`None` if it was closed on request) and the duration of the last
/// one.
async fn attempt(shared: &Arc<AgentState>) -> (Option<ConnectError>, Duration) {
    let mut moving: Option<Move> = None;
    let mut failed_moves = 0;
    let replaced = Arc::new(Semaphore::new(MAX_REPLACED));
    loop {
        let process = moving.as_ref().map(|to| to.process.as_str());
        let opened = tokio::select! {
            () = shared.stop.cancelled() => return (None, Duration::ZERO),
            opened = Session::open(shared, process) => opened,
        };
        let mut session = match opened {
            Ok(session) => session,
            // The earlier channel serves visitors meanwhile.
            Err(error)
                if moving.is_some() && error.is_transient() && failed_moves < MOVE_RETRIES =>
            {
                failed_moves += 1;
                info!(error = chain(&error), "not connected to the new process");
                tokio::time::sleep(RESTART_WAIT).await;
                continue;
            }
            Err(error) => return (Some(error), Duration::ZERO),
        };
        failed_moves = 0;
        if let Some(moved) = moving.take() {
            session.notify_arrival(moved.arrived);
        }
        let since = Instant::now();
        match session.run().await {
            SessionExit::Ended(ended) => return (ended.err(), since.elapsed()),
            SessionExit::Moves(earlier, process) => {
                let Ok(slot) = Arc::clone(&replaced).try_acquire_owned() else {
                    earlier.finish().await;
                    let reason = "the engine moves the agent, and does not close earlier channels";
                    let error = ConnectError::Protocol(reason.to_owned());
                    return (Some(error), since.elapsed());
                };
                let (arrived, arrival) = oneshot::channel();
                shared.spawn_here(async move {
                    earlier.serve_replaced(arrival).await;
                    drop(slot);
                });
                moving = Some(Move { process, arrived });
            }
        }
    }
}

/// Waits before the next attempt. Returns false if the agent must end. Tunnels that are dropped
/// meanwhile are removed without the engine.
async fn wait(shared: &AgentState, retry_in: Duration) -> bool {
    let over = tokio::time::sleep(retry_in);
    tokio::pin!(over);
    loop {
        tokio::select! {
            () = shared.stop.cancelled() => return false,
            () = &mut over => return true,
            () = shared.woken() => {
                for entry in shared.entries().iter().filter(|entry| entry.is_closing()) {
                    shared.finish(entry, entry.close_reason());
                }
            }
        }
    }
}

/// A channel that was open for this long was healthy, so its loss starts a new back-off.
const HEALTHY: Duration = Duration::from_secs(10);

/// Usual time until a restarted process is available again.
const RESTART: Duration = Duration::from_secs(10);

/// Maximum delay during a restart. On average a seventh of a second passes between the engine's
/// return and the next attempt. A thousand agents send 5,000 refused packets per second.
const RESTART_WAIT: Duration = Duration::from_millis(400);

/// Maximum number of earlier channels that serve their streams: more than the processes of an
/// engine that can drain at the same time.
const MAX_REPLACED: usize = 8;

/// Attempts to connect to another process of the engine after the first one. Then the agent counts
/// as disconnected, and connects to any process.
const MOVE_RETRIES: u32 = 3;

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::error::Step;

    fn failed(step: Step, kind: io::ErrorKind) -> ConnectError {
        ConnectError::network(step, kind.into())
    }

    #[test]
    fn retries_during_an_engine_restart_have_a_constant_rate() {
        let refused = failed(Step::Dial, io::ErrorKind::ConnectionRefused);
        let mut backoff = Backoff::default();
        let mut longest = |away| wait_after(&refused, away, &mut backoff, u64::MAX).as_millis();
        assert_eq!(longest(Duration::ZERO), 100);
        for _ in 0..60 {
            assert!(longest(RESTART / 2) <= RESTART_WAIT.as_millis());
        }
        // After a longer absence, the delays grow from there.
        let later: Vec<_> = (0..8).map(|_| longest(RESTART)).collect();
        assert_eq!(
            later,
            [400, 800, 1_600, 3_200, 6_400, 12_800, 15_000, 15_000]
        );
    }

    #[test]
    fn retries_to_an_overloaded_engine_slow_down() {
        for error in [
            ConnectError::Unavailable("full".to_owned()),
            ConnectError::TimedOut(Step::Dial),
            failed(Step::Dial, io::ErrorKind::HostUnreachable),
            failed(Step::Handshake, io::ErrorKind::ConnectionReset),
        ] {
            let mut backoff = Backoff::default();
            let mut longest =
                || wait_after(&error, Duration::ZERO, &mut backoff, u64::MAX).as_millis();
            let waits: Vec<_> = (0..5).map(|_| longest()).collect();
            assert_eq!(waits, [100, 200, 400, 800, 1_600], "{error}");
        }
    }

    #[test]
    fn an_error_does_not_repeat_its_causes() {
        let error = ConnectError::network(Step::Dial, io::Error::other("connection refused"));
        assert_eq!(chain(&error), "cannot reach the engine: connection refused");
    }
}

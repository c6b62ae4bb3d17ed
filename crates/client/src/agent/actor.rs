//! The life of an agent: connect, serve, lose the channel, wait, connect again.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tracing::{info, warn};

use super::{AgentStatus, session::Session, shared::Shared};
use crate::{ConnectError, backoff::random, tunnel::Closed};

/// Runs until the agent is closed or refused. The one task that owns the channel.
pub(crate) async fn run(shared: Arc<Shared>) {
    let refusal = tokio::select! {
        biased;
        () = shared.kill.cancelled() => None,
        refusal = keep_online(&shared) => refusal,
    };
    // Nothing is admitted from here on; what was accepted ends by itself.
    shared.stop.cancel();
    shared.streams.close();
    let why = refusal.clone().map_or(Closed::Asked, Closed::Refused);
    shared.finish_all(&why);
    shared.set_status(AgentStatus::Ended(refusal));
}

/// Brings the channel back until it must not come back (EN-9: also to an engine that was restarted
/// and knows nothing of it). `None` when the owner closed the agent.
async fn keep_online(shared: &Arc<Shared>) -> Option<crate::Refusal> {
    let mut backoff = shared.config().backoff.clone();
    loop {
        let (error, lived) = attempt(shared).await;
        let error = error?;
        if lived >= HEALTHY {
            backoff.reset();
        }
        if !error.is_transient() {
            warn!(error = %error, "the engine refuses this agent");
            return Some(match error {
                ConnectError::Refused(refusal) => refusal,
                other => crate::Refusal::new(crate::RefusalKind::Invalid, describe(&other)),
            });
        }
        let retry_in = backoff.next_wait(random());
        let text: Arc<str> = describe(&error).into();
        info!(error = %text, ?retry_in, "not connected to the engine");
        for entry in shared.entries() {
            if entry.is_closing() {
                shared.finish(&entry, Closed::Asked);
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

/// One channel from its opening to its loss: the error (`None` when closed as asked) and how long
/// it was open.
async fn attempt(shared: &Arc<Shared>) -> (Option<ConnectError>, Duration) {
    let opened = tokio::select! {
        () = shared.stop.cancelled() => return (None, Duration::ZERO),
        opened = Session::open(shared) => opened,
    };
    match opened {
        Err(error) => (Some(error), Duration::ZERO),
        Ok(session) => {
            let since = Instant::now();
            let ended = session.run().await;
            shared.clear_routes();
            (ended.err(), since.elapsed())
        }
    }
}

/// Waits before the next attempt; false when the agent is to end. Tunnels that are dropped
/// meanwhile need no engine to be gone.
async fn wait(shared: &Shared, retry_in: Duration) -> bool {
    let over = tokio::time::sleep(retry_in);
    tokio::pin!(over);
    loop {
        tokio::select! {
            () = shared.stop.cancelled() => return false,
            () = &mut over => return true,
            () = shared.woken() => {
                for entry in shared.entries().iter().filter(|entry| entry.is_closing()) {
                    shared.finish(entry, Closed::Asked);
                }
            }
        }
    }
}

/// The error with its causes, in one line.
pub(crate) fn describe(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        // A wrapper that repeats its cause is told once.
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

/// A channel that lived so long was no accident: the next loss is a new one.
const HEALTHY: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::error::Step;

    #[test]
    fn an_error_is_told_with_its_causes_once() {
        let error = ConnectError::Network {
            step: Step::Dial,
            source: io::Error::other("connection refused"),
        };
        assert_eq!(
            describe(&error),
            "cannot reach the engine: connection refused"
        );
    }
}

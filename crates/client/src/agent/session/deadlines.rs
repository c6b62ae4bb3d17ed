//! Deadlines of a control channel: the silence of the engine, and the wait for the end.

use std::time::{Duration, Instant};

use tokio::time::timeout;

use super::{Progress, Session};
use crate::ConnectError;
use crate::error::Step;

/// Time for reading a message that arrived before the deadline of a silent engine.
const LAST_READ: Duration = Duration::from_millis(250);

/// Maximum time to wait for the engine's confirmation at the end of a channel.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

impl Session {
    /// Time of the next action without a message of the engine.
    pub(super) fn wake_at(&self) -> Instant {
        // A channel that is replaced or ends requests no tunnel again, so that time would stay in the
        // past, and this loop would never wait.
        let has_requests = !self.is_replaced && self.ending.is_none();
        let tunnels = self.tunnels.values().filter(|_| has_requests);
        let waiting = tunnels.filter_map(|tunnel| match tunnel.step {
            Progress::Waiting { until } => Some(until),
            _ => None,
        });
        let ending = self.ending.map(|since| since + CLOSE_TIMEOUT);
        waiting
            .chain(ending)
            .chain(self.liveness.deadline())
            .fold(self.liveness.heartbeat_at(), Instant::min)
    }

    /// Ends the wait for the confirmation of the end.
    pub(super) fn check_ending(&self) -> Result<(), ConnectError> {
        match self.ending {
            Some(since) if since + CLOSE_TIMEOUT <= Instant::now() => {
                Err(ConnectError::TimedOut(Step::Exchange))
            }
            _ => Ok(()),
        }
    }

    /// True if the engine was silent until its deadline.
    pub(super) fn is_overdue(&self) -> bool {
        let deadline = self.liveness.deadline();
        deadline.is_some_and(|deadline| deadline <= Instant::now())
    }

    /// Handles a message that arrived before the deadline and is still unread, because this process
    /// was suspended. Without one, the engine counts as disconnected.
    pub(super) async fn take_late_message(&mut self) -> Result<bool, ConnectError> {
        let message = timeout(LAST_READ, self.reader.next()).await;
        let message = message.map_err(|_elapsed| ConnectError::TimedOut(Step::Exchange))?;
        self.take(message)
    }
}

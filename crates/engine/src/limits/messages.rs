//! The rate of an agent's messages.
//!
//! A message is cheap, but one that opens or closes a tunnel is an event for every watcher. So
//! messages have a rate for each control channel, and changes have one for each channel and one for
//! all channels of the project. An agent above the rate is not refused; its channel is read more
//! slowly.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use super::bucket::{Bucket, Nanos, Rate};

/// The recent messages of one control channel.
#[derive(Debug, Default)]
pub(crate) struct MessageRate {
    messages: Bucket,
    changes: Bucket,
}

/// The changes of all channels of a project.
#[derive(Debug, Default)]
pub(crate) struct ChangeRate(Bucket);

impl MessageRate {
    /// Counts a message, and returns the time to wait before the next one is read. `project` is set
    /// for a message that changes tunnels.
    pub(crate) fn count(&self, project: Option<&ChangeRate>, now: Nanos) -> Duration {
        let wait = self.messages.reserve(1, MESSAGES, now).unwrap_or_default();
        let Some(project) = project else {
            return wait;
        };
        let own = self.changes.reserve(1, CHANGES, now).unwrap_or_default();
        wait.max(own).max(project.count(now))
    }
}

impl ChangeRate {
    /// Counts a change, and returns the time until it is within the rate.
    fn count(&self, now: Nanos) -> Duration {
        let wait = self.0.reserve(1, PROJECT_CHANGES, now);
        wait.unwrap_or_default()
    }

    /// Counts an agent that connects.
    ///
    /// # Errors
    /// The time that the project's changes already have to wait, if it is longer than an agent
    /// waits for the response to its hello.
    pub(crate) fn connect(&self, now: Nanos) -> Result<(), Duration> {
        let wait = self.count(now);
        if wait <= LONGEST_WAIT {
            return Ok(());
        }
        self.0.refund(1, PROJECT_CHANGES);
        Err(wait)
    }
}

/// The current time for these rates, from a clock that is never set back.
pub(crate) fn monotonic() -> Nanos {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    Nanos::try_from(START.elapsed().as_nanos()).unwrap_or(Nanos::MAX)
}

/// Messages of one channel: 5000 a second, and a burst of 20,000. An agent that opens a connection
/// for each visitor sends one for each TLS handshake, and a core handles fewer of these.
const MESSAGES: Rate = Rate::new(5_000, Duration::from_secs(4));

/// Changes of one channel: 100 a second, and a burst of 20,000: twice the tunnels of the largest
/// agent that was measured.
const CHANGES: Rate = Rate::new(100, Duration::from_secs(200));

/// Changes of a project: 500 a second, and a burst of 60,000: as many as an engine has agents and
/// tunnels by default, because all of them reconnect after a restart.
const PROJECT_CHANGES: Rate = Rate::new(500, Duration::from_mins(2));

/// Agents wait 10 s for the response to their hello.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Nanos = 1_000_000_000;

    /// An agent with 10,000 tunnels opens them all together, and again after a disconnect.
    #[test]
    fn an_agent_may_open_and_close_ten_thousand_tunnels_in_a_burst() {
        let (channel, project) = (MessageRate::default(), ChangeRate::default());
        for _ in 0..20_000 {
            assert_eq!(channel.count(Some(&project), SECOND), Duration::ZERO);
        }
        let wait = channel.count(Some(&project), SECOND);
        assert_eq!(wait, Duration::from_millis(10));
    }

    #[test]
    fn messages_without_a_change_have_a_separate_rate() {
        let channel = MessageRate::default();
        for _ in 0..20_000 {
            assert_eq!(channel.count(None, SECOND), Duration::ZERO);
        }
        assert!(channel.count(None, SECOND) > Duration::ZERO);
        assert_eq!(channel.count(None, 2 * SECOND), Duration::ZERO);
    }

    #[test]
    fn all_channels_of_a_project_share_a_rate() {
        let project = ChangeRate::default();
        for _ in 0..4 {
            let channel = MessageRate::default();
            for _ in 0..15_000 {
                assert_eq!(channel.count(Some(&project), SECOND), Duration::ZERO);
            }
        }
        let channel = MessageRate::default();
        let wait = channel.count(Some(&project), SECOND);
        assert_eq!(wait, Duration::from_millis(2));
        let other = ChangeRate::default();
        assert_eq!(channel.count(Some(&other), SECOND), Duration::ZERO);
        // Agents that connect and disconnect are changes as well.
        let mut connected = 0;
        while project.connect(SECOND).is_ok() {
            connected += 1;
        }
        assert_eq!(connected, 2_499);
        project.connect(SECOND).unwrap_err();
        project.connect(SECOND + SECOND / 100).unwrap();
    }
}

//! Who is still there: the heartbeat of the control channel, from both ends.
//!
//! A client proposes an interval in its hello, the engine repeats it and adds a timeout. From then
//! on the client sends heartbeats with a rising `sequence`, the first at once, and the engine
//! answers each with an `acknowledgement`. Any frame of the peer is a sign of life and re-arms the
//! timer; when the timer ends, the channel is over, and streams that were accepted live on.
//!
//! A client that proposes nothing speaks the *old mode*: its heartbeats are empty, or it sends none
//! at all, and the engine never sends one.
//!
//! Published clients are strict, and so are we: an answer without a proposal, another interval, an
//! acknowledgement that does not rise or is ahead of what was sent end the channel.

mod agent;
mod engine;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub use agent::AgentLiveness;
pub use engine::EngineLiveness;

/// Shortest interval that an engine accepts. Below it, heartbeats cost more than they tell.
pub const MIN_INTERVAL: Duration = Duration::from_millis(100);

/// Longest interval that an engine accepts: a third of [`MAX_TIMEOUT`].
pub const MAX_INTERVAL: Duration = Duration::from_mins(5);

/// Heartbeats that may be lost in a row: two late ones are a bad network, three are a dead peer.
pub const INTERVALS_IN_TIMEOUT: u32 = 3;

/// Shortest timeout, however short the interval: a change of network takes seconds.
pub const MIN_TIMEOUT: Duration = Duration::from_secs(10);

/// Longest timeout; the published clients refuse more.
pub const MAX_TIMEOUT: Duration = Duration::from_mins(15);

/// Interval of our own agent, that of the published clients too.
pub const DEFAULT_INTERVAL: Duration = Duration::from_secs(5);

/// Silence that ends a channel in the old mode, once the client has sent a heartbeat. Its interval
/// is not known; this is twelve times the usual one.
pub const OLD_TIMEOUT: Duration = Duration::from_mins(1);

/// Silence that ends a channel in the old mode while no heartbeat has come. Such a client may have
/// been told to send none, so it gets the longest time there is; that its host is gone is found out
/// earlier by TCP.
pub const OLD_TIMEOUT_WITHOUT_HEARTBEATS: Duration = MAX_TIMEOUT;

fn millis(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX)
}

//! The heartbeat of the control channel, from both ends.
//!
//! A client proposes an interval in its hello; the engine repeats it and adds a timeout. From then
//! on the client sends heartbeats with an increasing `sequence`, the first one immediately, and the
//! engine responds to each with an `acknowledgement`. Any frame of the peer is a sign of life and
//! resets the timer. When the timer expires, the channel ends; accepted streams continue.
//!
//! A client that proposes nothing uses the *old mode*: its heartbeats are empty, or it sends none
//! at all, and the engine never sends one.
//!
//! Published clients are strict, and so is this implementation: a response without a proposal,
//! another interval, or an acknowledgement that does not increase or is ahead of the last sent
//! sequence ends the channel.

mod agent;
mod engine;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub use agent::AgentLiveness;
pub use engine::EngineLiveness;

/// Shortest interval that an engine accepts. Below it, heartbeats cost more than they are worth.
pub const MIN_INTERVAL: Duration = Duration::from_millis(100);

/// Longest interval that an engine accepts: a third of [`MAX_TIMEOUT`].
pub const MAX_INTERVAL: Duration = Duration::from_mins(5);

/// Heartbeats that may be lost in a row: two late ones indicate a bad network, three a dead peer.
pub const INTERVALS_IN_TIMEOUT: u32 = 3;

/// Shortest timeout, regardless of the interval: a change of network takes seconds.
pub const MIN_TIMEOUT: Duration = Duration::from_secs(10);

/// Longest timeout; the published clients refuse more.
pub const MAX_TIMEOUT: Duration = Duration::from_mins(15);

/// Interval of our own agent, which is also that of the published clients.
pub const DEFAULT_INTERVAL: Duration = Duration::from_secs(5);

/// Silence that ends a channel in the old mode, after the client has sent a heartbeat. Its interval
/// is unknown; this is twelve times the usual one.
pub const OLD_TIMEOUT: Duration = Duration::from_mins(1);

/// Silence that ends a channel in the old mode if no heartbeat has arrived. Such a client may be
/// configured to send none, so it gets the longest time. If its host is gone, TCP detects that
/// earlier.
pub const OLD_TIMEOUT_WITHOUT_HEARTBEATS: Duration = MAX_TIMEOUT;

fn millis(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX)
}

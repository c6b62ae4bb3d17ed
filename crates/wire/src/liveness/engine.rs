use std::time::{Duration, Instant};

use super::{
    INTERVALS_IN_TIMEOUT, MAX_INTERVAL, MAX_TIMEOUT, MIN_INTERVAL, MIN_TIMEOUT, OLD_TIMEOUT,
    OLD_TIMEOUT_WITHOUT_HEARTBEATS, millis,
};
use crate::error::Error;
use crate::message::{ControlChannelLiveness, Heartbeat};

/// The heartbeat state of one client at the engine.
///
/// Calling order: [`negotiate`](Self::negotiate) at the hello, then
/// [`on_frame`](Self::on_frame) for each frame that arrives and
/// [`on_heartbeat`](Self::on_heartbeat) for each heartbeat among them; the channel is over when
/// [`deadline`](Self::deadline) has passed.
#[derive(Debug)]
pub struct EngineLiveness {
    mode: Mode,
    timeout: Duration,
    deadline: Instant,
}

#[derive(Debug)]
enum Mode {
    Old,
    Negotiated { last_sequence: u64 },
}

impl EngineLiveness {
    /// Responds to the client's proposal. The result is part of the response to the hello; it is
    /// `Some` if and only if there was a proposal.
    ///
    /// # Errors
    /// 2000 if the interval is outside [`MIN_INTERVAL`]..=[`MAX_INTERVAL`].
    pub fn negotiate(
        proposal: Option<ControlChannelLiveness>,
        now: Instant,
    ) -> Result<(Option<ControlChannelLiveness>, Self), Error> {
        let Some(proposal) = proposal else {
            return Ok((
                None,
                Self::start(Mode::Old, OLD_TIMEOUT_WITHOUT_HEARTBEATS, now),
            ));
        };
        let interval = Duration::from_millis(proposal.heartbeat_interval_ms.into());
        if !(MIN_INTERVAL..=MAX_INTERVAL).contains(&interval) {
            return Err(Error::invalid_request(format!(
                "heartbeat_interval_ms is outside {}..={}",
                MIN_INTERVAL.as_millis(),
                MAX_INTERVAL.as_millis()
            )));
        }
        let timeout = (interval * INTERVALS_IN_TIMEOUT).clamp(MIN_TIMEOUT, MAX_TIMEOUT);
        let answer = ControlChannelLiveness {
            heartbeat_interval_ms: proposal.heartbeat_interval_ms,
            heartbeat_timeout_ms: millis(timeout),
        };
        Ok((
            Some(answer),
            Self::start(Mode::Negotiated { last_sequence: 0 }, timeout, now),
        ))
    }

    /// Any frame is a sign of life.
    pub fn on_frame(&mut self, now: Instant) {
        self.deadline = now + self.timeout;
    }

    /// Handles a heartbeat and returns the one to respond with, if any. It is also a sign of life.
    ///
    /// # Errors
    /// 2000 if a negotiated heartbeat does not increase or contains an acknowledgement. In the old
    /// mode the numbers are ignored.
    pub fn on_heartbeat(
        &mut self,
        heartbeat: Heartbeat,
        now: Instant,
    ) -> Result<Option<Heartbeat>, Error> {
        let answer = match &mut self.mode {
            Mode::Old => {
                self.timeout = OLD_TIMEOUT;
                None
            }
            Mode::Negotiated { last_sequence } => {
                if heartbeat.acknowledgement != 0 {
                    return Err(Error::invalid_request("a client's heartbeat acknowledges"));
                }
                if heartbeat.sequence <= *last_sequence {
                    return Err(Error::invalid_request(
                        "the heartbeat sequence does not rise",
                    ));
                }
                *last_sequence = heartbeat.sequence;
                Some(Heartbeat {
                    sequence: 0,
                    acknowledgement: heartbeat.sequence,
                })
            }
        };
        self.on_frame(now);
        Ok(answer)
    }

    /// The time at which the client counts as gone.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// The currently allowed silence.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    fn start(mode: Mode, timeout: Duration, now: Instant) -> Self {
        Self {
            mode,
            timeout,
            deadline: now + timeout,
        }
    }
}

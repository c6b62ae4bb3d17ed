use std::time::{Duration, Instant};

use super::{DEFAULT_INTERVAL, MAX_TIMEOUT, millis};
use crate::error::Error;
use crate::message::{ControlChannelLiveness, Heartbeat};

/// The heartbeat state of the engine at an agent.
///
/// Calling order: [`propose`](Self::propose) for the hello, [`accept`](Self::accept) with the
/// response, then [`next_heartbeat`](Self::next_heartbeat) whenever
/// [`heartbeat_at`](Self::heartbeat_at) has passed (immediately for the first one),
/// [`on_frame`](Self::on_frame) for each frame that arrives and
/// [`on_heartbeat`](Self::on_heartbeat) for each heartbeat among them. The channel is over when
/// [`deadline`](Self::deadline) has passed.
#[derive(Debug)]
pub struct AgentLiveness {
    interval: Duration,
    heartbeat_at: Instant,
    mode: Mode,
}

#[derive(Debug)]
enum Mode {
    Old,
    Negotiated {
        sent: u64,
        acknowledged: u64,
        timeout: Duration,
        deadline: Instant,
    },
}

impl AgentLiveness {
    /// The proposal in a hello for heartbeats every `interval`.
    pub fn propose(interval: Duration) -> ControlChannelLiveness {
        ControlChannelLiveness {
            heartbeat_interval_ms: millis(interval),
            heartbeat_timeout_ms: 0,
        }
    }

    /// Starts with the proposal and the engine's response.
    ///
    /// If there is no response to a proposal, the engine uses the old mode: it gets empty
    /// heartbeats at the proposed interval, sends none, and there is no deadline.
    ///
    /// # Errors
    /// 2000 if the engine responded without a proposal, with another interval, or with a timeout
    /// outside the interval..=[`MAX_TIMEOUT`].
    pub fn accept(
        proposal: Option<ControlChannelLiveness>,
        answer: Option<ControlChannelLiveness>,
        now: Instant,
    ) -> Result<Self, Error> {
        let interval = proposal.map_or(DEFAULT_INTERVAL, |proposal| {
            Duration::from_millis(proposal.heartbeat_interval_ms.into())
        });
        let mode = match (proposal, answer) {
            (_, None) => Mode::Old,
            (None, Some(_)) => {
                return Err(Error::invalid_request("liveness that was not requested"));
            }
            (Some(proposal), Some(answer)) => {
                if answer.heartbeat_interval_ms != proposal.heartbeat_interval_ms {
                    return Err(Error::invalid_request(
                        "another heartbeat interval than requested",
                    ));
                }
                let timeout = Duration::from_millis(answer.heartbeat_timeout_ms.into());
                if timeout < interval || timeout > MAX_TIMEOUT {
                    return Err(Error::invalid_request(
                        "heartbeat_timeout_ms is out of range",
                    ));
                }
                Mode::Negotiated {
                    sent: 0,
                    acknowledged: 0,
                    timeout,
                    deadline: now + timeout,
                }
            }
        };
        Ok(Self {
            interval,
            heartbeat_at: now,
            mode,
        })
    }

    /// The time at which the next heartbeat is due.
    pub fn heartbeat_at(&self) -> Instant {
        self.heartbeat_at
    }

    /// The heartbeat to send, if it is due. A missed one is not repeated: the next is due an
    /// interval from `now`.
    pub fn next_heartbeat(&mut self, now: Instant) -> Option<Heartbeat> {
        if now < self.heartbeat_at {
            return None;
        }
        self.heartbeat_at = now + self.interval;
        let sequence = match &mut self.mode {
            Mode::Old => 0,
            Mode::Negotiated { sent, .. } => {
                *sent += 1;
                *sent
            }
        };
        Some(Heartbeat {
            sequence,
            acknowledgement: 0,
        })
    }

    /// Any frame is a sign of life.
    pub fn on_frame(&mut self, now: Instant) {
        if let Mode::Negotiated {
            timeout, deadline, ..
        } = &mut self.mode
        {
            *deadline = now + *timeout;
        }
    }

    /// Handles the engine's heartbeat. It is also a sign of life.
    ///
    /// # Errors
    /// 2000 if an acknowledgement has a sequence, does not increase, or is ahead of the last sent
    /// sequence; in the old mode, if it is not empty.
    pub fn on_heartbeat(&mut self, heartbeat: Heartbeat, now: Instant) -> Result<(), Error> {
        if heartbeat.sequence != 0 {
            return Err(Error::invalid_request(
                "an engine's heartbeat has a sequence",
            ));
        }
        match &mut self.mode {
            Mode::Old if heartbeat.acknowledgement != 0 => {
                return Err(Error::invalid_request(
                    "an acknowledgement that was not requested",
                ));
            }
            Mode::Old => {}
            Mode::Negotiated {
                sent, acknowledged, ..
            } => {
                if heartbeat.acknowledgement <= *acknowledged || heartbeat.acknowledgement > *sent {
                    return Err(Error::invalid_request("an acknowledgement out of order"));
                }
                *acknowledged = heartbeat.acknowledgement;
            }
        }
        self.on_frame(now);
        Ok(())
    }

    /// The time at which the engine counts as gone; `None` in the old mode, in which an engine
    /// sends nothing and only the connection itself can fail.
    pub fn deadline(&self) -> Option<Instant> {
        match &self.mode {
            Mode::Old => None,
            Mode::Negotiated { deadline, .. } => Some(*deadline),
        }
    }
}

//! How a session ends: who ends it, what its client hears of that, and until when.

use std::time::Instant;

use super::{Command, Exit, Phase, Server};
use crate::message::{Close, Feature, Kind, Signal, Termination, TerminationReason};
use crate::session::{CLOSE_DEADLINE, Output, SILENCE, STOP_GRACE};

impl Server {
    /// Output was not read, because it is held or the client does not take what it was sent: so that
    /// it has not ended says nothing about the command. A client that is away has its grace for
    /// that, one that sends heartbeats has as long as it does, and no other has more than a silent one.
    pub fn on_unread(&mut self, now: Instant) {
        let Phase::Draining {
            since, until, read, ..
        } = &mut self.phase
        else {
            return;
        };
        // More than this was written after its end, by something that it left behind.
        if *read > MAX_PIPES {
            return;
        }
        let latest = match &self.client {
            None if self.grace_at.is_none() => return,
            Some(client) if !client.beats || self.ended.is_some() || self.goes_down => {
                *since + SILENCE
            }
            _ => now + CLOSE_DEADLINE,
        };
        *until = (*until).max((now + CLOSE_DEADLINE).min(latest));
    }

    /// The client that was told the close has hung up after everything had arrived: it does not come
    /// back.
    pub fn on_told(&mut self) {
        if matches!(self.phase, Phase::Closed { .. }) && self.client.is_none() {
            self.release();
        }
    }

    /// Whether the command and its output are over, so that only the client may still have to hear
    /// of it.
    pub fn is_closed(&self) -> bool {
        matches!(
            self.phase,
            Phase::Closed { .. } | Phase::Leaving { .. } | Phase::Released
        )
    }

    /// Ends the session: an operator's word, or the server going down. `detail` is for the client.
    pub fn terminate(&mut self, reason: TerminationReason, detail: &'static str, now: Instant) {
        if reason == TerminationReason::Drain {
            self.goes_down = true;
            // Nobody waits for those who do not come back any more.
            self.on_told();
        }
        if self.ended.is_some() {
            return;
        }
        self.detail = detail;
        match self.phase {
            Phase::Opening { .. } => self.fail(detail, now),
            Phase::Starting => self.ended = Some(reason),
            Phase::Running => self.stop(reason, now),
            _ => {}
        }
    }

    /// The client is gone. Who can come back may, for a while.
    pub(super) fn leave(&mut self, now: Instant) {
        if self.phase == Phase::Starting || self.ended.is_some() {
            return;
        }
        if self.token.is_some() {
            self.grace_at = Some(now + self.settings.grace);
        } else if matches!(self.phase, Phase::Running) {
            self.stop(TerminationReason::ClientLost, now);
        }
    }

    /// Asks the command to end, and does not ask a second time.
    pub(super) fn stop(&mut self, reason: TerminationReason, now: Instant) {
        self.ended = Some(reason);
        if self.phase == Phase::Running {
            let signal = match reason {
                // What talks to a person in a terminal ignores the other one.
                TerminationReason::Drain | TerminationReason::Terminated if !self.has_tty => {
                    Signal::Terminate
                }
                _ => Signal::Hangup,
            };
            self.commands.push_back(Command::Signal(signal));
            self.kill_at = Some(now + STOP_GRACE);
            if std::mem::replace(&mut self.paused, false) {
                // What waits to write does not see its signal.
                self.commands.push_back(Command::ReadOutput);
            }
        }
        self.settle(now);
    }

    /// Something is wrong with the client: it is told, and its session is over.
    pub(super) fn fail(&mut self, why: &str, now: Instant) {
        self.token = None;
        if !matches!(
            self.phase,
            Phase::Starting | Phase::Running | Phase::Draining { .. }
        ) {
            self.refuse(why, now);
            return;
        }
        // There is a command, or will be: the session lasts until that has ended.
        self.commands.push_back(Command::Send(Kind::error(why)));
        self.commands.push_back(Command::Disconnect);
        self.client = None;
        self.leave(now);
        self.settle(now);
    }

    /// Tells the client why there is nothing for it.
    pub(super) fn refuse(&mut self, why: &str, now: Instant) {
        self.commands.push_back(Command::Send(Kind::error(why)));
        self.commands.push_back(Command::Disconnect);
        self.phase = Phase::Leaving {
            until: now + CLOSE_DEADLINE,
        };
    }

    /// Closes once the command and its streams have ended.
    pub(super) fn settle(&mut self, now: Instant) {
        if let Phase::Draining { exit, .. } = self.phase
            && self.open_streams.is_empty()
        {
            self.close(exit, now);
        }
    }

    pub(super) fn close(&mut self, exit: Exit, now: Instant) {
        self.open_streams.clear();
        if self.client.is_some() {
            self.say_close(exit, now);
        } else if self.is_kept() {
            self.phase = Phase::Closed { exit };
            self.grace_at.get_or_insert(now + self.settings.grace);
        } else {
            self.release();
        }
    }

    pub(super) fn say_close(&mut self, exit: Exit, now: Instant) {
        let (return_code, signal) = match exit {
            Exit::Code(code) => (code, ""),
            Exit::Signal(number, name) => (128_i32.saturating_add(number), name),
        };
        let reason = match (self.ended, exit) {
            (Some(reason), _) => reason,
            (None, Exit::Code(_)) => TerminationReason::Exited,
            (None, Exit::Signal(..)) => TerminationReason::Signalled,
        };
        let told = self.features.contains(&Feature::Signals.into());
        let termination = told.then(|| Termination {
            reason: reason.into(),
            signal: signal.to_owned(),
            detail: self.detail.to_owned(),
        });
        self.commands.push_back(Command::Send(Kind::Close(Close {
            return_code,
            termination,
        })));
        self.commands.push_back(Command::Disconnect);
        self.phase = if self.is_kept() {
            self.grace_at = Some(now + self.settings.grace);
            Phase::Closed { exit }
        } else {
            Phase::Leaving {
                until: now + CLOSE_DEADLINE,
            }
        };
    }

    /// Whether somebody may come back for the end. Nobody comes to a server that goes down.
    fn is_kept(&self) -> bool {
        self.token.is_some() && !self.goes_down
    }

    pub(super) fn release(&mut self) {
        if self.phase != Phase::Released {
            self.phase = Phase::Released;
            self.client = None;
            self.token = None;
            self.output = Output::default();
            self.commands.push_back(Command::Release);
        }
    }
}

/// What a command may have written that nobody has read when it ends: on Linux, two pipes as large as
/// anybody may make them.
const MAX_PIPES: usize = 2 * 1024 * 1024;

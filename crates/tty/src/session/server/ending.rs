//! End of a session: its causes, the messages to the client, and the deadlines.

use std::time::Instant;

use super::{Command, Exit, Phase, Server};
use crate::message::{Close, Feature, Kind, Signal, Termination, TerminationReason};
use crate::session::{CLOSE_DEADLINE, ReplayBuffer, SILENCE, STOP_GRACE};

impl Server {
    /// Handles a pause in reading output, because output is paused or the client does not take it.
    /// Unread output then does not prove that the output continues. A disconnected client has its
    /// grace period to read it. A client that sends heartbeats has until it stops. Any other
    /// client has the time of a silent one.
    pub fn on_output_paused(&mut self, now: Instant) {
        let Phase::Draining {
            since, until, read, ..
        } = &mut self.phase
        else {
            return;
        };
        // More bytes arrived after the end than pipes can store: a process that the command left
        // behind wrote them.
        if *read > MAX_PIPES {
            return;
        }
        let latest = match &self.client {
            None if self.grace_at.is_none() => return,
            Some(client)
                if !client.has_heartbeat || self.stop_reason.is_some() || self.is_shutting_down =>
            {
                *since + SILENCE
            }
            _ => now + CLOSE_DEADLINE,
        };
        *until = (*until).max((now + CLOSE_DEADLINE).min(latest));
    }

    /// Records that the client closed after it had received everything: it does not resume.
    pub fn on_end_received(&mut self) {
        if matches!(self.phase, Phase::Closed { .. }) && self.client.is_none() {
            self.release();
        }
    }

    /// True if the command and its output have ended, and only the client may still have to receive
    /// the end.
    pub fn is_closed(&self) -> bool {
        matches!(
            self.phase,
            Phase::Closed { .. } | Phase::Leaving { .. } | Phase::Released
        )
    }

    /// Ends the session, for an operator or because the server shuts down. `detail` is for the
    /// client.
    pub fn terminate(&mut self, reason: TerminationReason, detail: &'static str, now: Instant) {
        if reason == TerminationReason::Drain {
            self.is_shutting_down = true;
            // Clients can no longer resume.
            self.on_end_received();
        }
        if self.stop_reason.is_some() {
            return;
        }
        self.detail = detail;
        match self.phase {
            Phase::Opening { .. } => self.fail(detail, now),
            Phase::Starting => self.stop_reason = Some(reason),
            Phase::Running => self.stop(reason, now),
            _ => {}
        }
    }

    /// Handles a client that left. It may resume during the grace period if it supports this.
    pub(super) fn leave(&mut self, now: Instant) {
        if self.phase == Phase::Starting || self.stop_reason.is_some() {
            return;
        }
        if self.token.is_some() {
            self.grace_at = Some(now + self.settings.grace);
        } else if matches!(self.phase, Phase::Running) {
            self.stop(TerminationReason::ClientLost, now);
        }
    }

    /// Stops the command. Later calls have no effect.
    pub(super) fn stop(&mut self, reason: TerminationReason, now: Instant) {
        self.stop_reason = Some(reason);
        if self.phase == Phase::Running {
            let signal = match reason {
                // An interactive program in a terminal ignores `Terminate`.
                TerminationReason::Drain | TerminationReason::Terminated if !self.has_tty => {
                    Signal::Terminate
                }
                _ => Signal::Hangup,
            };
            self.commands.push_back(Command::Signal(signal));
            self.kill_at = Some(now + STOP_GRACE);
            if std::mem::replace(&mut self.paused, false) {
                // A command that waits to write does not handle its signal.
                self.commands.push_back(Command::ReadOutput);
            }
        }
        self.settle(now);
    }

    /// Handles an error of the client: sends it the error, and ends its session.
    pub(super) fn fail(&mut self, why: &str, now: Instant) {
        self.token = None;
        if !matches!(
            self.phase,
            Phase::Starting | Phase::Running | Phase::Draining { .. }
        ) {
            self.refuse(why, now);
            return;
        }
        // There is a command, or it is being started: the session lasts until it has ended.
        self.commands.push_back(Command::Send(Kind::error(why)));
        self.commands.push_back(Command::Disconnect);
        self.client = None;
        self.leave(now);
        self.settle(now);
    }

    /// Sends the client the reason for which it cannot be served.
    pub(super) fn refuse(&mut self, why: &str, now: Instant) {
        self.commands.push_back(Command::Send(Kind::error(why)));
        self.commands.push_back(Command::Disconnect);
        self.phase = Phase::Leaving {
            until: now + CLOSE_DEADLINE,
        };
    }

    /// Closes the session once the command and its streams have ended.
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
            self.send_close(exit, now);
        } else if self.is_kept() {
            self.phase = Phase::Closed { exit };
            self.grace_at.get_or_insert(now + self.settings.grace);
        } else {
            self.release();
        }
    }

    pub(super) fn send_close(&mut self, exit: Exit, now: Instant) {
        let (return_code, signal) = match exit {
            Exit::Code(code) => (code, ""),
            Exit::Signal(number, name) => (128_i32.saturating_add(number), name),
        };
        let reason = match (self.stop_reason, exit) {
            (Some(reason), _) => reason,
            (None, Exit::Code(_)) => TerminationReason::Exited,
            (None, Exit::Signal(..)) => TerminationReason::Signalled,
        };
        let has_signals = self.features.contains(&Feature::Signals.into());
        let termination = has_signals.then(|| Termination {
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

    /// True if the client may resume to receive the end. A server that shuts down accepts no
    /// clients.
    fn is_kept(&self) -> bool {
        self.token.is_some() && !self.is_shutting_down
    }

    pub(super) fn release(&mut self) {
        if self.phase != Phase::Released {
            self.phase = Phase::Released;
            self.client = None;
            self.token = None;
            self.output = ReplayBuffer::default();
            self.commands.push_back(Command::Release);
        }
    }
}

/// Maximum of output that a command can leave unread in its pipes when it ends: on Linux, two pipes
/// of the maximum size.
const MAX_PIPES: usize = 2 * 1024 * 1024;

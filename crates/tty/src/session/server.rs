mod command;
mod ending;
mod messages;

use std::collections::VecDeque;
use std::fmt;
use std::time::Instant;

use bytes::Bytes;
use subtle::ConstantTimeEq as _;

pub use command::{Command, Exit, Settings, Start};

use super::output::ReplayBuffer;
use super::{CLOSE_DEADLINE, HEARTBEAT, OPEN_DEADLINE, REPLAY, SILENCE, TOKEN_LEN};
use crate::message::{
    Ack, AckSession, Feature, Heartbeat, Kind, OpenSession, Resume, Signal, Stream,
    TerminationReason, limits,
};

/// The side of a session that runs the command.
///
/// Order of calls: the `on_…` methods as events happen, [`on_time`](Self::on_time) at the
/// [`deadline`](Self::deadline), and after each of them [`command`](Self::command) until it is
/// `None`. After [`Command::Release`] the session is over and can be dropped.
#[derive(Debug)]
pub struct Server {
    settings: Settings,
    phase: Phase,
    commands: VecDeque<Command>,
    client: Option<AttachedConnection>,
    features: Vec<i32>,
    token: Option<Token>,
    /// The previous token: the client may have lost the message with the new one.
    previous_token: Option<Token>,
    has_tty: bool,
    stdin_open: bool,
    input_received: u64,
    /// Number of input bytes that the command has read or that were discarded.
    input_taken: u64,
    input_reported: u64,
    output: ReplayBuffer,
    /// The streams that have not ended.
    open_streams: Vec<Stream>,
    paused: bool,
    stop_reason: Option<TerminationReason>,
    /// The server shuts down.
    is_shutting_down: bool,
    detail: &'static str,
    kill_at: Option<Instant>,
    idle_at: Option<Instant>,
    duration_deadline: Option<Instant>,
    /// End of the grace period, after which the command of a disconnected client is stopped.
    grace_at: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The client has not sent its `Open`.
    Opening {
        until: Instant,
    },
    /// The command is being started.
    Starting,
    /// The command runs.
    Running,
    /// The command has ended, but more output may follow.
    Draining {
        exit: Exit,
        since: Instant,
        until: Instant,
        /// Bytes of output after the end.
        read: usize,
    },
    /// The `Close` is ready, but may not have reached the client.
    Closed {
        exit: Exit,
    },
    /// The `Close` was sent, and the client should close the connection.
    Leaving {
        until: Instant,
    },
    Released,
}

/// A connected client.
#[derive(Debug)]
struct AttachedConnection {
    heartbeat_at: Instant,
    heard_at: Instant,
    has_heartbeat: bool,
}

struct Token([u8; TOKEN_LEN]);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

impl Server {
    /// A session with a new connection.
    pub fn new(settings: Settings, now: Instant) -> Self {
        Self {
            duration_deadline: settings.duration.map(|duration| now + duration),
            settings,
            phase: Phase::Opening {
                until: now + OPEN_DEADLINE,
            },
            commands: VecDeque::new(),
            client: Some(AttachedConnection::new(now)),
            features: Vec::new(),
            token: None,
            previous_token: None,
            has_tty: false,
            stdin_open: true,
            input_received: 0,
            input_taken: 0,
            input_reported: 0,
            output: ReplayBuffer::default(),
            open_streams: Vec::new(),
            paused: false,
            stop_reason: None,
            is_shutting_down: false,
            detail: "",
            kill_at: None,
            idle_at: None,
            grace_at: None,
        }
    }

    /// The next command for the owner of this session.
    pub fn command(&mut self) -> Option<Command> {
        self.commands.pop_front()
    }

    /// Handles a message of the client.
    pub fn on_message(&mut self, kind: Kind, now: Instant) {
        let Some(client) = &mut self.client else {
            return;
        };
        client.heard_at = now;
        self.previous_token = None;
        if let Err(why) = self.handle(kind, now) {
            self.fail(&why, now);
        }
    }

    /// Handles an invalid message of the client. `why` is for the client.
    pub fn on_bad_message(&mut self, why: &str, now: Instant) {
        if self.client.is_some() {
            self.fail(why, now);
        }
    }

    /// Handles a pause in reading from the client, because the command does not take its input. The
    /// client's silence then does not count.
    pub fn on_read_paused(&mut self, now: Instant) {
        if let Some(client) = &mut self.client {
            client.heard_at = now;
        }
    }

    /// Reason for which the command was stopped, if it was.
    pub fn stop_reason(&self) -> Option<TerminationReason> {
        self.stop_reason
    }

    /// Handles the start of the command. `token` is fresh random bytes.
    pub fn on_started(&mut self, token: [u8; TOKEN_LEN], now: Instant) {
        if self.phase != Phase::Starting {
            return;
        }
        self.phase = Phase::Running;
        self.open_streams = if self.has_tty {
            vec![Stream::Stdout]
        } else {
            vec![Stream::Stdout, Stream::Stderr]
        };
        self.touch(now);
        if self.client.is_some() {
            self.acknowledge(token, None);
        }
        // The session was ended, or the client left, during the start.
        if let Some(reason) = self.stop_reason {
            self.stop(reason, now);
        } else if self.client.is_none() {
            self.leave(now);
        }
    }

    /// Handles a failed start; `why` is for the client.
    pub fn on_start_failed(&mut self, why: &str, now: Instant) {
        if self.phase != Phase::Starting {
            return;
        }
        if self.client.is_some() {
            self.refuse(why, now);
        } else {
            self.release();
        }
    }

    /// Records that the command took `bytes` bytes of its input.
    pub fn on_input_taken(&mut self, bytes: usize) {
        self.input_taken += u64::try_from(bytes).unwrap_or_default();
        if self.client.is_some() {
            self.report_input();
        }
    }

    /// Handles output of the command.
    pub fn on_output(&mut self, stream: Stream, bytes: Bytes, now: Instant) {
        if bytes.is_empty() || !self.open_streams.contains(&stream) {
            return;
        }
        self.touch(now);
        if let Phase::Draining { read, .. } = &mut self.phase {
            *read = read.saturating_add(bytes.len());
        }
        if self.client.is_some() {
            self.send_output(stream, &bytes);
        }
        if self.token.is_some() {
            self.output.push(stream, bytes);
            self.bound_output();
        }
    }

    /// Handles a change of hidden input, as for a password. A recording needs this before
    /// the next key.
    pub fn on_secret_input(&mut self, secret: bool) {
        if self.client.is_some() {
            self.commands
                .push_back(Command::Send(Kind::Heartbeat(Heartbeat {
                    secret_input: Some(secret),
                    ..Heartbeat::default()
                })));
        }
    }

    /// Handles the end of an output stream.
    pub fn on_output_end(&mut self, stream: Stream, now: Instant) {
        let before = self.open_streams.len();
        self.open_streams.retain(|open| *open != stream);
        if self.open_streams.len() < before && self.client.is_some() {
            self.commands.push_back(Command::Send(Kind::end(stream)));
        }
        self.settle(now);
    }

    /// Handles the end of the command.
    pub fn on_exit(&mut self, exit: Exit, now: Instant) {
        if matches!(self.phase, Phase::Running | Phase::Starting) {
            self.phase = Phase::Draining {
                exit,
                since: now,
                until: now + CLOSE_DEADLINE,
                read: 0,
            };
            self.kill_at = None;
            self.settle(now);
        }
    }

    /// Handles the loss of the connection.
    pub fn on_lost(&mut self, now: Instant) {
        if self.client.take().is_none() {
            return;
        }
        match self.phase {
            Phase::Opening { .. } | Phase::Leaving { .. } => self.release(),
            Phase::Starting | Phase::Running | Phase::Draining { .. } => self.leave(now),
            // The last message may not have arrived, so the client may still resume.
            Phase::Closed { .. } | Phase::Released => {}
        }
    }

    /// True if a client may resume with this token.
    pub fn accepts(&self, resume: &Resume) -> bool {
        self.token.is_some()
            && [&self.token, &self.previous_token]
                .into_iter()
                .flatten()
                .any(|token| token.0.ct_eq(resume.token.as_slice()).into())
    }

    /// Resumes the session over another connection, after `accepts` returned true; `token` is fresh
    /// random bytes. An older connection that still seems alive is closed first.
    pub fn on_resume(&mut self, open: &OpenSession, token: [u8; TOKEN_LEN], now: Instant) {
        let Some(resume) = open.resume.as_ref().filter(|resume| self.accepts(resume)) else {
            return;
        };
        if self.client.take().is_some() {
            self.commands.push_back(Command::Disconnect);
        }
        self.client = Some(AttachedConnection::new(now));
        self.grace_at = None;
        self.previous_token = self.token.take();
        if self.output.acknowledge(resume.received).is_err() {
            self.fail("more was received than was sent", now);
            return;
        }
        // Only acknowledged output was dropped, and output of a pipe must not be lost.
        if !self.has_tty && self.output.start() > resume.received {
            self.fail("less was received than was reported", now);
            return;
        }
        self.acknowledge(token, Some(self.output.start()));
        self.input_reported = self.input_received;
        let kept: Vec<_> = self.output.iter().collect();
        for (stream, bytes) in kept {
            self.send_output(stream, &bytes);
        }
        let all: &[Stream] = if self.has_tty {
            &[Stream::Stdout]
        } else {
            &[Stream::Stdout, Stream::Stderr]
        };
        for stream in all {
            if !self.open_streams.contains(stream) {
                self.commands.push_back(Command::Send(Kind::end(*stream)));
            }
        }
        if self.output.start() > resume.received {
            self.commands.push_back(Command::Redraw);
        }
        if let Some(size) = open
            .size
            .and_then(|size| size.size())
            .filter(|_| self.has_tty)
        {
            self.commands.push_back(Command::Resize(size));
        }
        self.bound_output();
        if let Phase::Closed { exit } = self.phase {
            self.send_close(exit, now);
        }
    }

    /// Time of the next call to [`on_time`](Self::on_time).
    pub fn deadline(&self) -> Option<Instant> {
        let phase = match self.phase {
            Phase::Opening { until } | Phase::Draining { until, .. } | Phase::Leaving { until } => {
                Some(until)
            }
            _ => None,
        };
        let client = self.client.as_ref().map(|client| {
            let silent = client.has_heartbeat.then(|| client.heard_at + SILENCE);
            silent.map_or(client.heartbeat_at, |at| at.min(client.heartbeat_at))
        });
        let client = client.filter(|_| self.sends_heartbeats());
        let limits = [self.idle_at, self.duration_deadline].into_iter().flatten();
        let limits = limits.filter(|_| self.phase == Phase::Running && self.stop_reason.is_none());
        [phase, client, self.kill_at, self.grace_at]
            .into_iter()
            .flatten()
            .chain(limits)
            .min()
    }

    /// Runs the timers that are due.
    pub fn on_time(&mut self, now: Instant) {
        match self.phase {
            Phase::Opening { until } if until <= now => {
                self.fail("no command was opened in time", now);
            }
            Phase::Draining { exit, until, .. } if until <= now => self.close(exit, now),
            Phase::Leaving { until } if until <= now => self.release(),
            _ => {}
        }
        if due(self.kill_at, now) {
            self.kill_at = None;
            self.commands.push_back(Command::Signal(Signal::Kill));
        }
        if due(self.grace_at, now) {
            self.grace_at = None;
            self.token = None;
            match self.phase {
                Phase::Closed { .. } => self.release(),
                _ => self.stop(TerminationReason::ClientLost, now),
            }
        }
        if self.phase == Phase::Running && self.stop_reason.is_none() {
            if due(self.duration_deadline, now) {
                self.stop(TerminationReason::Duration, now);
            } else if due(self.idle_at, now) {
                self.stop(TerminationReason::Idle, now);
            }
        }
        self.check_heartbeat(now);
    }

    fn acknowledge(&mut self, token: [u8; TOKEN_LEN], output_from: Option<u64>) {
        let known = [Feature::Signals, Feature::Resume];
        let features: Vec<i32> = known
            .into_iter()
            .map(i32::from)
            .filter(|feature| self.features.contains(feature))
            .collect();
        let resumes = features.contains(&Feature::Resume.into()) && !self.settings.grace.is_zero();
        self.token = resumes.then_some(Token(token));
        // A client without features gets the `Ack` of the published server.
        let session = (!features.is_empty()).then(|| AckSession {
            features,
            session_id: self.settings.session_id.clone(),
            resume_token: if resumes { token.to_vec() } else { Vec::new() },
            grace_seconds: u32::try_from(self.settings.grace.as_secs()).unwrap_or(u32::MAX),
            output_from,
            input_received: self.input_received,
        });
        self.commands
            .push_back(Command::Send(Kind::Ack(Ack { session })));
    }

    fn send_output(&mut self, stream: Stream, bytes: &Bytes) {
        let mut rest = bytes.clone();
        while !rest.is_empty() {
            let part = rest.split_to(rest.len().min(limits::MAX_DATA));
            self.commands
                .push_back(Command::Send(Kind::data(stream, part)));
        }
    }

    /// Bounds the replay buffer. With a terminal the oldest output is dropped, and the program
    /// redraws its screen. Output of a pipe must not be lost, so the command waits.
    fn bound_output(&mut self) {
        if self.has_tty {
            self.output.shrink_to(REPLAY);
            return;
        }
        let full = self.output.len() >= u64::try_from(REPLAY).unwrap_or(u64::MAX);
        if full != self.paused {
            self.paused = full;
            let command = if full {
                Command::HoldOutput
            } else {
                Command::ReadOutput
            };
            self.commands.push_back(command);
        }
    }

    fn sends_heartbeats(&self) -> bool {
        matches!(self.phase, Phase::Running | Phase::Draining { .. })
    }

    fn check_heartbeat(&mut self, now: Instant) {
        if !self.sends_heartbeats() {
            return;
        }
        let Some(client) = &mut self.client else {
            return;
        };
        if client.has_heartbeat && client.heard_at + SILENCE <= now {
            self.commands.push_back(Command::Disconnect);
            self.on_lost(now);
        } else if client.heartbeat_at <= now {
            client.heartbeat_at = now + HEARTBEAT;
            self.send_heartbeat();
        }
    }

    fn touch(&mut self, now: Instant) {
        self.idle_at = self.settings.idle.map(|idle| now + idle);
    }
}

impl AttachedConnection {
    fn new(now: Instant) -> Self {
        Self {
            heartbeat_at: now + HEARTBEAT,
            heard_at: now,
            has_heartbeat: false,
        }
    }
}

fn due(at: Option<Instant>, now: Instant) -> bool {
    at.is_some_and(|at| at <= now)
}

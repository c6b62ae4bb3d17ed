use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::output::ReplayBuffer;
use super::{ACK_DEADLINE, HEARTBEAT, REPLAY, SILENCE};
use crate::message::{
    AckSession, Close, Config, Feature, Heartbeat, Kind, OpenCommand, OpenSession, Payload, Resume,
    Signal, Stream, limits,
};
use crate::size::Size;

/// The client's side of a session.
///
/// [`open`](Self::open) makes the first message. Afterwards call the `on_…` methods as events
/// happen, and [`command`](Self::command) after each until it is `None`. After a lost connection
/// [`on_lost`](Self::on_lost) returns true if the session can be resumed, and
/// [`reopen`](Self::reopen) makes the first message of the next connection.
#[derive(Debug)]
pub struct Client {
    config: Config,
    size: Option<Size>,
    state: State,
    commands: VecDeque<ClientCommand>,
    session: Option<AckSession>,
    input: ReplayBuffer,
    input_end: bool,
    received: u64,
    reported: u64,
    heard_at: Instant,
    beat_at: Instant,
    has_heartbeat: bool,
}

/// Tasks for the owner of a [`Client`].
#[derive(Clone, Debug, PartialEq)]
pub enum ClientCommand {
    /// Send this message to the server.
    Send(Kind),
    /// The command runs. With `true`, the session was resumed.
    Opened(bool),
    /// This many bytes of output were lost while the client was disconnected.
    LostOutput(u64),
    /// Show this output of the command.
    Output(Stream, Bytes),
    /// The command closed a stream.
    OutputEnd(Stream),
    /// Participants, control or the size have changed.
    Notice(Box<crate::message::Notice>),
    /// The connection is silent: close it. [`Client::on_lost`] must then be called as for any other
    /// lost connection, and returns true if the session can be resumed.
    Silent,
    /// The command has ended: close the connection.
    Closed(Close),
    /// The session failed: close the connection.
    Failed(ClientError),
}

/// Reasons of a failed session.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// The error message of the server. It may contain control sequences, because it is untrusted.
    #[error("the server refused: {0}")]
    Refused(String),
    /// The server was silent for too long.
    #[error("the server does not answer")]
    Silent,
    /// The server violated the protocol.
    #[error("the server sent an unexpected {0}")]
    Unexpected(&'static str),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Opening { until: Instant, is_resume: bool },
    Open,
    Lost,
    Ended,
}

impl Client {
    /// Creates a client that starts this command; `size` is the size of its terminal, if it has
    /// one.
    pub fn open(config: Config, size: Option<Size>, now: Instant) -> Self {
        let mut client = Self {
            config,
            size,
            state: State::Lost,
            commands: VecDeque::new(),
            session: None,
            input: ReplayBuffer::default(),
            input_end: false,
            received: 0,
            reported: 0,
            heard_at: now,
            beat_at: now + HEARTBEAT,
            has_heartbeat: false,
        };
        client.send_open(None, now);
        client
    }

    /// The next command for the owner of this client.
    pub fn command(&mut self) -> Option<ClientCommand> {
        self.commands.pop_front()
    }

    /// True if the session is over.
    pub fn is_over(&self) -> bool {
        self.state == State::Ended
    }

    /// True if the input buffer has capacity. Otherwise no input should be read from the person,
    /// because input is kept until the server has received it.
    pub fn wants_input(&self) -> bool {
        !self.input_end && self.input.len() < u64::try_from(REPLAY).unwrap_or(u64::MAX)
    }

    /// Handles input of the person.
    pub fn on_input(&mut self, bytes: Bytes) {
        if bytes.is_empty() || self.input_end {
            return;
        }
        if self.state == State::Open {
            self.send_input(&bytes);
        }
        if self.state != State::Open || self.resumes() {
            self.input.push(Stream::Stdin, bytes);
        }
    }

    /// Handles the end of input.
    pub fn on_input_end(&mut self) {
        if !std::mem::replace(&mut self.input_end, true) && self.state == State::Open {
            self.send(Kind::end(Stream::Stdin));
        }
    }

    /// Handles a new size of the person's terminal.
    pub fn on_resize(&mut self, size: Size) {
        self.size = Some(size);
        if self.state == State::Open {
            self.send_size();
        }
    }

    /// Sends a signal to the command. Returns `false` if the server does not support signals.
    pub fn signal(&mut self, signal: Signal) -> bool {
        let knows = self.state == State::Open && self.supports(Feature::Signals);
        if knows {
            self.send(Kind::Heartbeat(Heartbeat {
                signal: Some(signal.into()),
                ..Heartbeat::default()
            }));
        }
        knows
    }

    /// Handles a message of the server.
    pub fn on_message(&mut self, kind: Kind, now: Instant) {
        self.heard_at = now;
        match (kind, self.state) {
            (_, State::Ended | State::Lost) => {}
            (
                Kind::Ack(ack),
                State::Opening {
                    is_resume: again, ..
                },
            ) => self.opened(ack.session, again),
            (Kind::Error(error), _) => self.fail(ClientError::Refused(error.msg)),
            (Kind::ProtocolError(error), _) => self.fail(ClientError::Refused(error.msg)),
            (Kind::Heartbeat(heartbeat), _) => {
                self.has_heartbeat = true;
                let received = heartbeat.received.unwrap_or_default();
                if self.resumes() && self.input.acknowledge(received).is_err() {
                    self.fail(ClientError::Unexpected("heartbeat"));
                    return;
                }
                self.commands
                    .extend(heartbeat.notice.map(ClientCommand::Notice));
            }
            (Kind::Data(data), State::Open) if data.r#type() != Stream::Stdin => {
                let stream = data.r#type();
                match data.payload {
                    Some(Payload::Data(bytes)) => {
                        self.received += u64::try_from(bytes.len()).unwrap_or_default();
                        self.commands
                            .push_back(ClientCommand::Output(stream, bytes));
                        self.report(false);
                    }
                    Some(Payload::Eos(_)) => {
                        self.commands.push_back(ClientCommand::OutputEnd(stream));
                    }
                    _ => self.fail(ClientError::Unexpected("sealed message")),
                }
            }
            (Kind::Close(close), State::Open) => {
                self.state = State::Ended;
                self.commands.push_back(ClientCommand::Closed(close));
            }
            (kind, _) => self.fail(ClientError::Unexpected(kind.name())),
        }
    }

    /// Handles a lost connection. Returns `true` if the session can be resumed over another one.
    pub fn on_lost(&mut self) -> bool {
        if self.state == State::Ended {
            return false;
        }
        self.state = State::Lost;
        self.resumes()
    }

    /// Resumes the session over another connection.
    pub fn reopen(&mut self, now: Instant) {
        if self.state != State::Lost || !self.resumes() {
            return;
        }
        let token = self.session.as_ref().map(|s| s.resume_token.clone());
        self.send_open(
            token.map(|token| Resume {
                token,
                received: self.received,
            }),
            now,
        );
    }

    /// Time of the next call to [`on_time`](Self::on_time).
    pub fn deadline(&self) -> Option<Instant> {
        match self.state {
            State::Opening { until, .. } => Some(until),
            State::Open => {
                let silent = self.has_heartbeat.then(|| self.heard_at + SILENCE);
                Some(silent.map_or(self.beat_at, |at| at.min(self.beat_at)))
            }
            State::Lost | State::Ended => None,
        }
    }

    /// Runs the timers that are due.
    pub fn on_time(&mut self, now: Instant) {
        match self.state {
            State::Opening { until, .. } if until <= now => self.silent(),
            State::Open if self.has_heartbeat && self.heard_at + SILENCE <= now => self.silent(),
            State::Open if self.beat_at <= now => {
                self.beat_at = now + HEARTBEAT;
                self.report(true);
            }
            _ => {}
        }
    }

    /// Handles a pause in reading from the server, because the output device is slow. The server's
    /// silence then does not count.
    pub fn on_read_paused(&mut self, now: Instant) {
        self.heard_at = now;
    }

    /// Time for which the server keeps the command of a disconnected client; `None` if it does not.
    pub fn grace(&self) -> Option<Duration> {
        let session = self.session.as_ref().filter(|_| self.resumes())?;
        Some(Duration::from_secs(session.grace_seconds.into()))
    }

    /// Id of the session, if the server sent one.
    pub fn session_id(&self) -> Option<&str> {
        let session = self.session.as_ref()?;
        Some(session.session_id.as_str()).filter(|id| !id.is_empty())
    }

    /// Handles a silent server. A session that cannot be resumed has failed.
    fn silent(&mut self) {
        if self.resumes() {
            self.state = State::Lost;
            self.commands.push_back(ClientCommand::Silent);
        } else {
            self.fail(ClientError::Silent);
        }
    }

    fn opened(&mut self, session: Option<AckSession>, again: bool) {
        self.state = State::Open;
        let before = self.received;
        if let Some(session) = &session {
            if again {
                let from = session.output_from.unwrap_or(before);
                if from > before {
                    self.commands
                        .push_back(ClientCommand::LostOutput(from - before));
                }
                // The server continues at our count, or later.
                self.received = self.received.max(from);
            }
            // If the server has less input than it acknowledged, its input would get a gap.
            if session.input_received < self.input.start()
                || self.input.acknowledge(session.input_received).is_err()
            {
                self.fail(ClientError::Unexpected("ack"));
                return;
            }
        }
        self.session = session;
        self.commands.push_back(ClientCommand::Opened(again));
        if self.size.is_some() {
            self.send_size();
        }
        let waiting: Vec<_> = self.input.iter().collect();
        for (_, bytes) in waiting {
            self.send_input(&bytes);
        }
        if !self.resumes() {
            self.input.shrink_to(0);
        }
        if self.input_end {
            self.send(Kind::end(Stream::Stdin));
        }
    }

    fn send_open(&mut self, resume: Option<Resume>, now: Instant) {
        let again = resume.is_some();
        self.heard_at = now;
        self.has_heartbeat = false;
        self.beat_at = now + HEARTBEAT;
        self.state = State::Opening {
            until: now + ACK_DEADLINE,
            is_resume: again,
        };
        self.send(Kind::Open(Box::new(OpenCommand {
            config: (!again).then(|| self.config.clone()),
            session: Some(OpenSession {
                features: [Feature::Signals, Feature::Resume, Feature::Notices]
                    .map(i32::from)
                    .to_vec(),
                resume,
                size: self.size.map(Into::into),
            }),
            ..OpenCommand::default()
        })));
    }

    fn send_input(&mut self, bytes: &Bytes) {
        let mut rest = bytes.clone();
        while !rest.is_empty() {
            let part = rest.split_to(rest.len().min(limits::MAX_DATA));
            self.send(Kind::data(Stream::Stdin, part));
        }
    }

    /// Only a command with a terminal has a size. The published server rejects a size for others.
    fn send_size(&mut self) {
        let tty = self
            .config
            .options
            .is_some_and(|options| options.allocate_tty);
        if let Some(size) = self.size.filter(|_| tty) {
            let size: crate::message::TerminalSize = size.into();
            self.send(Kind::Parameter(size.into()));
        }
    }

    /// Acknowledges received output: with each heartbeat, and before the server has to pause the
    /// command.
    fn report(&mut self, heartbeat: bool) {
        let quarter = u64::try_from(REPLAY / 4).unwrap_or(u64::MAX);
        let resumes = self.resumes();
        if heartbeat || (resumes && self.received - self.reported >= quarter) {
            self.reported = self.received;
            self.send(Kind::Heartbeat(Heartbeat {
                received: resumes.then_some(self.received),
                ..Heartbeat::default()
            }));
        }
    }

    fn resumes(&self) -> bool {
        let session = self.session.as_ref();
        session.is_some_and(|session| !session.resume_token.is_empty())
    }

    fn supports(&self, feature: Feature) -> bool {
        let session = self.session.as_ref();
        session.is_some_and(|session| session.features.contains(&feature.into()))
    }

    fn send(&mut self, kind: Kind) {
        self.commands.push_back(ClientCommand::Send(kind));
    }

    fn fail(&mut self, error: ClientError) {
        self.state = State::Ended;
        self.commands.push_back(ClientCommand::Failed(error));
    }
}

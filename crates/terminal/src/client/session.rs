//! A command on a server, from its open to its close.

use std::collections::VecDeque;
use std::future::pending;
use std::time::{Duration, Instant};

use bytes::Bytes;
use client::backoff::{Backoff, random};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{sleep, sleep_until, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};
use tty::message::{Close, Config, Kind, Notice, ProtocolErrorCode, Stream, TerminationReason};
use tty::seal::SealError;
use tty::session::{Client, ClientCommand, ClientError};
use tty::size::Size;
use types::causes::chain;

use super::connection::{Connection, ConnectionError};
use super::endpoint::Endpoint;
use super::input::{Input, InputAction, InputEvent, Inputs, decision};
use super::seal::{EncryptionState, Seal};

/// A requested command.
///
/// [`event`](Self::event) returns its events. Input is sent with the [`Input`]. Dropping the
/// session closes the connection, and the command ends.
#[derive(Debug)]
pub struct Session {
    events: mpsc::Receiver<Event>,
    task: JoinHandle<()>,
    stop: DropGuard,
}

/// A request for a command.
#[derive(Debug)]
pub struct Request {
    /// The command and its environment.
    pub config: Config,
    /// The size of its terminal, if it has one.
    pub size: Option<Size>,
    /// Keys of a sealed session; `None` for an unsealed one.
    pub seal: Option<Seal>,
    /// True if a session that lost its connection is resumed.
    pub resumes: bool,
}

/// Events of a session.
#[derive(Debug)]
pub enum Event {
    /// The command runs.
    Opened {
        /// Id of the session, if the server sent one.
        session_id: Option<String>,
    },
    /// Output of the command.
    Output(Stream, Bytes),
    /// The command closed a stream.
    OutputEnd(Stream),
    /// Participants, control or the size have changed.
    Notice(Box<Notice>),
    /// The connection is lost; the client tries to reconnect.
    Lost {
        /// The cause.
        reason: String,
        /// Time for which the server keeps the command.
        grace: Duration,
    },
    /// The client has reconnected, and the command still runs.
    Reconnected {
        /// Number of output bytes that were lost meanwhile.
        missed: u64,
    },
    /// The session has ended. No event follows.
    Ended(Result<CommandEnd, SessionError>),
}

/// End of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandEnd {
    /// Exit code: 128 plus the signal's number for a signal.
    pub code: i32,
    /// Reason of the end, if the server sent one.
    pub reason: Option<TerminationReason>,
    /// Name of the signal, without `SIG`; empty if there was none.
    pub signal: String,
    /// Details from the server. The text is untrusted.
    pub detail: String,
}

/// Reasons for which a session ends before its command.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The server was unreachable, or the connection broke for good.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    /// The server refused, or violated the protocol.
    #[error(transparent)]
    Server(#[from] ClientError),
    /// The encryption failed.
    #[error("the end-to-end encryption failed")]
    Seal(#[from] SealError),
    /// The server reports that its identity or ours is unproven.
    #[error("the server refused the end-to-end encryption: {message}")]
    Unproven {
        /// Machine-readable code.
        code: ProtocolErrorCode,
        /// Message of the server. The text is untrusted.
        message: String,
    },
    /// The peer sent unsealed data.
    #[error("the server violated the end-to-end encryption protocol")]
    NotSealed,
    /// The server closed the connection before the end.
    #[error("the server closed the connection")]
    HungUp,
    /// The server closed the connection after the client's hello.
    #[error(
        "the server closed the connection before the end-to-end encryption started; it may not \
             support it"
    )]
    NoHello,
}

impl SessionError {
    /// True if another connection may succeed: the server gave no reason.
    fn is_transient(&self) -> bool {
        match self {
            Self::Connection(error) => error.is_transient(),
            Self::HungUp | Self::Server(ClientError::Silent) => true,
            Self::Server(_)
            | Self::Seal(_)
            | Self::Unproven { .. }
            | Self::NotSealed
            | Self::NoHello => false,
        }
    }
}

impl Request {
    /// A command without a terminal, which is resumed and not sealed.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            size: None,
            seal: None,
            resumes: true,
        }
    }
}

impl Session {
    /// Starts a session, which first connects.
    pub fn start(endpoint: Endpoint, request: Request) -> (Self, Input) {
        let (events, receiver) = mpsc::channel(EVENT_QUEUE);
        let (input, inputs) = Input::new();
        let stop = CancellationToken::new();
        let driver = Driver {
            endpoint,
            request,
            events,
            inputs,
            stop: stop.clone(),
            pending: VecDeque::new(),
            missed: 0,
        };
        let session = Self {
            events: receiver,
            task: tokio::spawn(driver.run()),
            stop: stop.drop_guard(),
        };
        (session, input)
    }

    /// The next event; `None` after [`Event::Ended`]. Cancel safe.
    pub async fn event(&mut self) -> Option<Event> {
        self.events.recv().await
    }

    /// Notifies the server, which ends the command. Waits until the connection is closed.
    pub async fn leave(mut self) {
        self.events.close();
        drop(self.stop);
        // An aborted task has left as well.
        drop(self.task.await);
    }
}

struct Driver {
    endpoint: Endpoint,
    request: Request,
    events: mpsc::Sender<Event>,
    inputs: Inputs,
    stop: CancellationToken,
    /// Events that wait to be delivered, in order. While there are any, nothing is read.
    pending: VecDeque<Event>,
    missed: u64,
}

/// End of a connection.
enum ConnectionEnd {
    /// The session has ended, with its last event.
    Ended(Result<CommandEnd, SessionError>),
    /// The connection is lost.
    Lost(SessionError),
    /// The receiver of the events is gone.
    ReceiverDropped,
}

impl Driver {
    async fn run(mut self) {
        let stop = self.stop.clone();
        let attached = attach(&self.endpoint, self.request.seal.as_ref());
        let mut sealed_connection = match stop.run_until_cancelled(attached).await {
            Some(Ok(sealed_connection)) => sealed_connection,
            // A server closes at this point only if it rejects the hello.
            Some(Err(SessionError::HungUp)) => {
                return self.send_end(Err(SessionError::NoHello)).await;
            }
            Some(Err(error)) => return self.send_end(Err(error)).await,
            None => return,
        };
        let now = Instant::now();
        let mut client = Client::open(self.request.config.clone(), self.request.size, now);
        loop {
            let cause = match Box::pin(self.drive(&mut client, &mut sealed_connection)).await {
                ConnectionEnd::Ended(ended) => {
                    tokio::join!(self.send_end(ended), sealed_connection.0.close());
                    return;
                }
                ConnectionEnd::ReceiverDropped => return leave(sealed_connection).await,
                ConnectionEnd::Lost(cause) => cause,
            };
            drop(sealed_connection);
            let is_resumed = client.on_lost() && self.request.resumes;
            let Some(grace) = client.grace().filter(|_| is_resumed) else {
                return self.send_end(Err(cause)).await;
            };
            self.pending.push_back(Event::Lost {
                reason: chain(&cause),
                grace,
            });
            match Box::pin(self.reconnect(&mut client, grace)).await {
                Ok(Some(reconnected)) => sealed_connection = reconnected,
                Ok(None) => return,
                Err(_last) => return self.send_end(Err(cause)).await,
            }
            client.reopen(Instant::now());
        }
    }

    /// Transfers messages in both directions, until the session ends or the connection breaks.
    async fn drive(
        &mut self,
        client: &mut Client,
        (connection, sealing): &mut SealedConnection,
    ) -> ConnectionEnd {
        let mut end = None;
        loop {
            if end.is_none() {
                end = self.run_commands(client, connection, sealing);
            }
            if end.is_some() && self.pending.is_empty() {
                // Queued messages are sent when the connection closes.
                return end.unwrap_or(ConnectionEnd::ReceiverDropped);
            }
            let deadline = client.deadline().filter(|_| end.is_none());
            let writer = &mut connection.writer;
            let has_room = end.is_none() && writer.queued() < MAX_QUEUED;
            tokio::select! {
                () = self.stop.cancelled() => return ConnectionEnd::ReceiverDropped,
                permit = self.events.reserve(), if !self.pending.is_empty() => match permit {
                    Ok(permit) => {
                        if let Some(event) = self.pending.pop_front() {
                            permit.send(event);
                        }
                        client.on_read_paused(Instant::now());
                    }
                    Err(_gone) => return ConnectionEnd::ReceiverDropped,
                },
                flushed = writer.flush(), if !writer.is_flushed() && end.is_none() => {
                    if let Err(error) = flushed {
                        end = Some(ConnectionEnd::Lost(error.into()));
                    }
                }
                received = connection.reader.receive(),
                    if self.pending.is_empty() && end.is_none() =>
                {
                    end = on_message(client, sealing, received);
                }
                typed = self.inputs.typed.recv(), if has_room && client.wants_input() => {
                    send_input(client, typed);
                }
                // If the [`Input`] is dropped, the session's events are still delivered.
                Some(action) = self.inputs.done.recv(), if has_room => {
                    run_action(client, writer, action);
                }
                () = at(deadline) => {
                    let now = Instant::now();
                    if !self.pending.is_empty() {
                        client.on_read_paused(now);
                    }
                    client.on_time(now);
                }
            }
        }
    }

    /// Runs the commands of the state machine.
    fn run_commands(
        &mut self,
        client: &mut Client,
        connection: &mut Connection,
        sealing: &mut EncryptionState,
    ) -> Option<ConnectionEnd> {
        while let Some(command) = client.command() {
            let event = match command {
                ClientCommand::Send(kind) => {
                    let sealed = match sealing.seal(kind) {
                        Ok(sealed) => sealed,
                        Err(error) => return Some(ConnectionEnd::Ended(Err(error))),
                    };
                    for kind in &sealed {
                        if let Err(error) = connection.writer.queue(kind) {
                            return Some(ConnectionEnd::Ended(Err(error.into())));
                        }
                    }
                    continue;
                }
                ClientCommand::LostOutput(bytes) => {
                    self.missed = bytes;
                    continue;
                }
                ClientCommand::Opened(false) => Event::Opened {
                    session_id: client.session_id().map(str::to_owned),
                },
                ClientCommand::Opened(true) => Event::Reconnected {
                    missed: std::mem::take(&mut self.missed),
                },
                ClientCommand::Output(stream, bytes) => Event::Output(stream, bytes),
                ClientCommand::OutputEnd(stream) => Event::OutputEnd(stream),
                ClientCommand::Notice(notice) => Event::Notice(notice),
                ClientCommand::Silent => {
                    return Some(ConnectionEnd::Lost(ClientError::Silent.into()));
                }
                ClientCommand::Closed(close) => {
                    return Some(ConnectionEnd::Ended(Ok(close.into())));
                }
                ClientCommand::Failed(error) => {
                    return Some(ConnectionEnd::Ended(Err(error.into())));
                }
            };
            self.pending.push_back(event);
        }
        None
    }

    /// Reconnects while the server keeps the command. Input is kept meanwhile. Returns `None` if
    /// the receiver of the events is gone.
    async fn reconnect(
        &mut self,
        client: &mut Client,
        grace: Duration,
    ) -> Result<Option<SealedConnection>, SessionError> {
        let until = Instant::now() + grace;
        let mut backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT);
        loop {
            let wait = backoff.next_wait(random());
            let left = until.saturating_duration_since(Instant::now());
            let attempt = {
                let (endpoint, seal) = (&self.endpoint, self.request.seal.as_ref());
                let connecting = async move {
                    sleep(wait).await;
                    attach(endpoint, seal).await
                };
                let mut connecting = Box::pin(timeout(left, connecting));
                loop {
                    tokio::select! {
                        attempt = &mut connecting => break attempt,
                        () = self.stop.cancelled() => return Ok(None),
                        permit = self.events.reserve(), if !self.pending.is_empty() => match permit {
                            Ok(permit) => if let Some(event) = self.pending.pop_front() {
                                permit.send(event);
                            },
                            Err(_gone) => return Ok(None),
                        },
                        typed = self.inputs.typed.recv(), if client.wants_input() => {
                            send_input(client, typed);
                        }
                        Some(action) = self.inputs.done.recv() => if let InputAction::Resize(size) = action {
                            client.on_resize(size);
                        },
                    }
                }
            };
            match attempt {
                Ok(Ok(sealed_connection)) => return Ok(Some(sealed_connection)),
                Ok(Err(error)) if error.is_transient() => {}
                Ok(Err(error)) => return Err(error),
                Err(_elapsed) => return Err(SessionError::HungUp),
            }
        }
    }

    /// Delivers the pending events and then the end.
    async fn send_end(&mut self, ended: Result<CommandEnd, SessionError>) {
        self.pending.push_back(Event::Ended(ended));
        let stop = self.stop.clone();
        let sending = async {
            while let Some(event) = self.pending.pop_front() {
                if self.events.send(event).await.is_err() {
                    return;
                }
            }
        };
        // A client that has left needs no event.
        stop.run_until_cancelled(sending).await;
    }
}

/// A connection, with its encryption state.
type SealedConnection = (Connection, EncryptionState);

async fn attach(
    endpoint: &Endpoint,
    seal: Option<&Seal>,
) -> Result<SealedConnection, SessionError> {
    let mut connection = endpoint.connect().await?;
    let sealing = match seal {
        Some(seal) => Box::pin(seal.handshake(&mut connection)).await?,
        None => EncryptionState::None,
    };
    Ok((connection, sealing))
}

fn on_message(
    client: &mut Client,
    sealing: &mut EncryptionState,
    received: Result<Option<Kind>, ConnectionError>,
) -> Option<ConnectionEnd> {
    match received {
        Ok(Some(kind)) => match sealing.open(kind) {
            Ok(Some(kind)) => {
                client.on_message(kind, Instant::now());
                None
            }
            Ok(None) => None,
            Err(error) => Some(ConnectionEnd::Ended(Err(error))),
        },
        Ok(None) => Some(ConnectionEnd::Lost(SessionError::HungUp)),
        Err(error @ (ConnectionError::Protocol(_) | ConnectionError::Message(_))) => {
            Some(ConnectionEnd::Ended(Err(error.into())))
        }
        Err(error) => Some(ConnectionEnd::Lost(error.into())),
    }
}

fn send_input(client: &mut Client, typed: Option<InputEvent>) {
    match typed {
        Some(InputEvent::Bytes(bytes)) => client.on_input(bytes),
        // The sender of input is gone.
        Some(InputEvent::End) | None => client.on_input_end(),
    }
}

fn run_action(client: &mut Client, writer: &mut super::connection::Writer, action: InputAction) {
    match action {
        InputAction::Resize(size) => client.on_resize(size),
        // A signal that cannot be sent is dropped.
        InputAction::Signal(signal) => drop(client.signal(signal)),
        // An id that is too long cannot belong to a request.
        InputAction::Decide(answer) => drop(writer.queue(&decision(answer))),
    }
}

/// Sends an error to the server, which then ends the command instead of waiting for the client.
async fn leave((mut connection, _sealing): SealedConnection) {
    // A server that does not get this message detects the lost connection.
    drop(connection.writer.queue(&Kind::error("the client left")));
    connection.close().await;
}

async fn at(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline.into()).await,
        None => pending().await,
    }
}

impl From<Close> for CommandEnd {
    fn from(close: Close) -> Self {
        let termination = close.termination.unwrap_or_default();
        let reason = TerminationReason::try_from(termination.reason).ok();
        Self {
            code: close.return_code,
            reason: reason.filter(|reason| *reason != TerminationReason::Unspecified),
            signal: termination.signal,
            detail: termination.detail,
        }
    }
}

/// Maximum of undelivered events. Each is a message, so they take at most some megabytes, and they
/// are more than a terminal draws between two frames.
const EVENT_QUEUE: usize = 8;

/// Queued bytes above which no further input is read: one of the largest messages.
const MAX_QUEUED: usize = 256 * 1024;

/// The first wait before reconnecting: short interruptions have then ended.
const FIRST_WAIT: Duration = Duration::from_millis(100);

/// The longest wait before reconnecting; short, because a person is waiting.
const LONGEST_WAIT: Duration = Duration::from_secs(2);

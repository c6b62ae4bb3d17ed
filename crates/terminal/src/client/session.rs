//! A command that runs somewhere else, from its open to its close.

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
use super::input::{Done, Input, InputEvent, Inputs, decision};
use super::seal::{Seal, Sealing};

/// A command that was asked for.
///
/// [`event`](Self::event) tells what happens; what is done goes the other way through the
/// [`Input`]. When this is dropped, the task behind it hangs up, and the command ends.
#[derive(Debug)]
pub struct Session {
    events: mpsc::Receiver<Event>,
    task: JoinHandle<()>,
    stop: DropGuard,
}

/// What is asked for.
#[derive(Debug)]
pub struct Request {
    /// The command and its surroundings.
    pub config: Config,
    /// The size of its terminal, if it has one.
    pub size: Option<Size>,
    /// With whom it is sealed; `None`: with nobody.
    pub seal: Option<Seal>,
    /// Whether a session whose connection is lost is come back to.
    pub comes_back: bool,
}

/// What happens.
#[derive(Debug)]
pub enum Event {
    /// The command runs.
    Opened {
        /// The session's id, where the server told it.
        session_id: Option<String>,
    },
    /// The command wrote something.
    Output(Stream, Bytes),
    /// The command closed a stream.
    OutputEnd(Stream),
    /// Something changed about who takes part.
    Notice(Box<Notice>),
    /// The connection is gone; another one is being made.
    Lost {
        /// Why.
        reason: String,
        /// How long the server keeps the command.
        grace: Duration,
    },
    /// The connection is there again, and the command still runs.
    Back {
        /// How many bytes of output were lost between.
        missed: u64,
    },
    /// It is over. Nothing follows.
    Ended(Result<CommandEnd, SessionError>),
}

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandEnd {
    /// Its exit code: 128 and more for a signal.
    pub code: i32,
    /// Why it ended, where the server told.
    pub reason: Option<TerminationReason>,
    /// The name of the signal, without `SIG`; empty where there was none.
    pub signal: String,
    /// What the server says about it; somebody else's text.
    pub detail: String,
}

/// Why a session is over before its command is.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The server was not reached, or the connection broke for good.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    /// The server refused, or said what it must not say.
    #[error(transparent)]
    Server(#[from] ClientError),
    /// The encryption does not hold.
    #[error("the end-to-end encryption does not hold")]
    Seal(#[from] SealError),
    /// The server says that it is another one, or that we are.
    #[error("the server refused the end-to-end encryption: {said}")]
    Unproven {
        /// For programs.
        code: ProtocolErrorCode,
        /// The server's words: somebody else's text.
        said: String,
    },
    /// The other side said something in the clear.
    #[error("the other side does not keep to the end-to-end encryption")]
    NotSealed,
    /// The server hung up in the middle.
    #[error("the server hung up")]
    HungUp,
    /// The server hung up when it heard that the session is to be sealed.
    #[error("the server hung up before the end-to-end encryption began; perhaps it has none")]
    NoHello,
}

impl SessionError {
    /// Whether another connection may go better: nobody said why this one does not.
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
    /// A command without a terminal, that is come back to, and not sealed.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            size: None,
            seal: None,
            comes_back: true,
        }
    }
}

impl Session {
    /// Begins. Connecting is the first thing that the session does.
    pub fn start(endpoint: Endpoint, request: Request) -> (Self, Input) {
        let (events, told) = mpsc::channel(EVENTS);
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
            events: told,
            task: tokio::spawn(driver.run()),
            stop: stop.drop_guard(),
        };
        (session, input)
    }

    /// What happens next; `None` after [`Event::Ended`]. Cancel safe.
    pub async fn event(&mut self) -> Option<Event> {
        self.events.recv().await
    }

    /// Leaves: the server is told, and ends the command. Waits until that is out.
    pub async fn leave(mut self) {
        self.events.close();
        drop(self.stop);
        // A task that was aborted has left, too.
        drop(self.task.await);
    }
}

struct Driver {
    endpoint: Endpoint,
    request: Request,
    events: mpsc::Sender<Event>,
    inputs: Inputs,
    stop: CancellationToken,
    /// What is to be told, in its order. While something waits here, nothing is read.
    pending: VecDeque<Event>,
    missed: u64,
}

/// How a connection ended.
enum ConnectionEnd {
    /// It is over, with what is told last.
    Ended(Result<CommandEnd, SessionError>),
    /// The connection is gone.
    Lost(SessionError),
    /// Nobody wants it any more.
    Left,
}

impl Driver {
    async fn run(mut self) {
        let stop = self.stop.clone();
        let attached = attach(&self.endpoint, self.request.seal.as_ref());
        let mut link = match stop.run_until_cancelled(attached).await {
            Some(Ok(link)) => link,
            // Nothing else hangs up before there is a session.
            Some(Err(SessionError::HungUp)) => {
                return self.tell_last(Err(SessionError::NoHello)).await;
            }
            Some(Err(error)) => return self.tell_last(Err(error)).await,
            None => return,
        };
        let now = Instant::now();
        let mut client = Client::open(self.request.config.clone(), self.request.size, now);
        loop {
            let why = match Box::pin(self.drive(&mut client, &mut link)).await {
                ConnectionEnd::Ended(ended) => {
                    tokio::join!(self.tell_last(ended), link.0.close());
                    return;
                }
                ConnectionEnd::Left => return leave(link).await,
                ConnectionEnd::Lost(why) => why,
            };
            drop(link);
            let comes_back = client.on_lost() && self.request.comes_back;
            let Some(grace) = client.grace().filter(|_| comes_back) else {
                return self.tell_last(Err(why)).await;
            };
            self.pending.push_back(Event::Lost {
                reason: chain(&why),
                grace,
            });
            match Box::pin(self.come_back(&mut client, grace)).await {
                Ok(Some(again)) => link = again,
                Ok(None) => return,
                Err(_last) => return self.tell_last(Err(why)).await,
            }
            client.reopen(Instant::now());
        }
    }

    /// Carries what both sides say, until one of them has enough.
    async fn drive(
        &mut self,
        client: &mut Client,
        (connection, sealing): &mut Link,
    ) -> ConnectionEnd {
        let mut over = None;
        loop {
            if over.is_none() {
                over = self.obey(client, connection, sealing);
            }
            if over.is_some() && self.pending.is_empty() {
                // The last that was said goes out with the good-bye.
                return over.unwrap_or(ConnectionEnd::Left);
            }
            let deadline = client.deadline().filter(|_| over.is_none());
            let writer = &mut connection.writer;
            let has_room = over.is_none() && writer.queued() < QUEUED;
            tokio::select! {
                () = self.stop.cancelled() => return ConnectionEnd::Left,
                permit = self.events.reserve(), if !self.pending.is_empty() => match permit {
                    Ok(permit) => {
                        if let Some(event) = self.pending.pop_front() {
                            permit.send(event);
                        }
                        client.on_held(Instant::now());
                    }
                    Err(_gone) => return ConnectionEnd::Left,
                },
                flushed = writer.flush(), if !writer.is_flushed() && over.is_none() => {
                    if let Err(error) = flushed {
                        over = Some(ConnectionEnd::Lost(error.into()));
                    }
                }
                heard = connection.reader.receive(),
                    if self.pending.is_empty() && over.is_none() =>
                {
                    over = hear(client, sealing, heard);
                }
                typed = self.inputs.typed.recv(), if has_room && client.wants_input() => {
                    type_in(client, typed);
                }
                // Where nobody can do anything any more, it is still watched.
                Some(done) = self.inputs.done.recv(), if has_room => {
                    do_beside(client, writer, done);
                }
                () = at(deadline) => {
                    let now = Instant::now();
                    if !self.pending.is_empty() {
                        client.on_held(now);
                    }
                    client.on_time(now);
                }
            }
        }
    }

    /// Does what the state machine wants.
    fn obey(
        &mut self,
        client: &mut Client,
        connection: &mut Connection,
        sealing: &mut Sealing,
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
                ClientCommand::Missed(bytes) => {
                    self.missed = bytes;
                    continue;
                }
                ClientCommand::Opened(false) => Event::Opened {
                    session_id: client.session_id().map(str::to_owned),
                },
                ClientCommand::Opened(true) => Event::Back {
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

    /// Makes another connection while the server keeps the command. What is typed is kept, too.
    /// `None`: nobody wants it any more.
    async fn come_back(
        &mut self,
        client: &mut Client,
        grace: Duration,
    ) -> Result<Option<Link>, SessionError> {
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
                            type_in(client, typed);
                        }
                        Some(done) = self.inputs.done.recv() => if let Done::Resize(size) = done {
                            client.on_resize(size);
                        },
                    }
                }
            };
            match attempt {
                Ok(Ok(link)) => return Ok(Some(link)),
                Ok(Err(error)) if error.is_transient() => {}
                Ok(Err(error)) => return Err(error),
                Err(_elapsed) => return Err(SessionError::HungUp),
            }
        }
    }

    /// Tells what waits, and then how it ended.
    async fn tell_last(&mut self, ended: Result<CommandEnd, SessionError>) {
        self.pending.push_back(Event::Ended(ended));
        let stop = self.stop.clone();
        let telling = async {
            while let Some(event) = self.pending.pop_front() {
                if self.events.send(event).await.is_err() {
                    return;
                }
            }
        };
        // Who left needs to be told nothing.
        stop.run_until_cancelled(telling).await;
    }
}

/// A connection, with its keys where it is sealed.
type Link = (Connection, Sealing);

async fn attach(endpoint: &Endpoint, seal: Option<&Seal>) -> Result<Link, SessionError> {
    let mut connection = endpoint.connect().await?;
    let sealing = match seal {
        Some(seal) => Box::pin(seal.shake(&mut connection)).await?,
        None => Sealing::None,
    };
    Ok((connection, sealing))
}

fn hear(
    client: &mut Client,
    sealing: &mut Sealing,
    heard: Result<Option<Kind>, ConnectionError>,
) -> Option<ConnectionEnd> {
    match heard {
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

fn type_in(client: &mut Client, typed: Option<InputEvent>) {
    match typed {
        Some(InputEvent::Bytes(bytes)) => client.on_input(bytes),
        // Whoever typed is gone.
        Some(InputEvent::End) | None => client.on_input_end(),
    }
}

fn do_beside(client: &mut Client, writer: &mut super::connection::Writer, done: Done) {
    match done {
        Done::Resize(size) => client.on_resize(size),
        // Where it cannot be sent, nothing else can be done about it.
        Done::Signal(signal) => drop(client.signal(signal)),
        // An id that is too long was never asked with.
        Done::Decide(answer) => drop(writer.queue(&decision(answer))),
    }
}

/// Who says why it goes is not waited for: the command ends.
async fn leave((mut connection, _sealing): Link) {
    // Whoever cannot be told finds out.
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

/// Events that wait for who is shown them: a message each, so some megabytes at most, and more than
/// a terminal draws between two looks.
const EVENTS: usize = 8;

/// Bytes that wait to go out before more is taken from the person: one of the largest messages.
const QUEUED: usize = 256 * 1024;

/// The first wait before coming back: what was a hiccup is over.
const FIRST_WAIT: Duration = Duration::from_millis(100);

/// The longest: a person sits there.
const LONGEST_WAIT: Duration = Duration::from_secs(2);

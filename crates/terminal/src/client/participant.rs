//! A participant in a running session: a client of an engine, over a stream that starts with an
//! attach message.

use std::collections::VecDeque;
use std::time::Instant;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::sleep_until;
use tokio_util::sync::{CancellationToken, DropGuard};
use tty::message::{
    Attach, AttachCapability, AttachRole, AttachTransport, Heartbeat, Kind, Notice, NoticeKind,
    Payload, Stream, limits,
};
use tty::session::{ClientError, HEARTBEAT, SILENCE};
use tty::size::Size;

use super::connection::{Connection, ConnectionError};
use super::endpoint::Endpoint;
use super::input::{Input, InputAction, InputEvent, Inputs, decision};
use super::session::{CommandEnd, SessionError};

/// Data of the Engine API with which a participant connects. The grant is valid once, and for 30
/// seconds; after a lost connection the caller has to request another one.
#[derive(Clone, Debug)]
pub struct Attachment {
    /// Id of the session.
    pub session_id: String,
    /// Id of the participant.
    pub participant_id: String,
    /// The grant that proves the permission.
    pub grant: Vec<u8>,
    /// True if the participant may ever type. Otherwise control cannot be granted to it.
    pub may_type: bool,
}

/// A participant.
///
/// [`event`](Self::event) returns its events. Its input is sent with the [`Input`], and reaches the
/// command while the participant has control. Dropping the participant leaves the session.
#[derive(Debug)]
pub struct Participant {
    events: mpsc::Receiver<ParticipantEvent>,
    task: JoinHandle<()>,
    stop: DropGuard,
}

/// Events of a participant.
#[derive(Debug)]
pub enum ParticipantEvent {
    /// The next output draws the screen of a terminal of this size from scratch. It is sent at the
    /// start, and after output was dropped because it was not read in time.
    Snapshot(Option<Size>),
    /// The terminal has another size.
    Resized(Size),
    /// Output of the command.
    Output(Stream, Bytes),
    /// The command closed a stream.
    OutputEnd(Stream),
    /// A participant joined or left, or requested, got or lost control. It may be this participant.
    Notice(Box<Notice>),
    /// The session is over. No event follows.
    Ended(Result<CommandEnd, SessionError>),
}

impl Participant {
    /// Connects to the endpoint and joins the session.
    pub fn start(endpoint: Endpoint, attachment: Attachment) -> (Self, Input) {
        let (events, receiver) = mpsc::channel(EVENT_QUEUE);
        let (input, inputs) = Input::new();
        let stop = CancellationToken::new();
        let driver = Driver {
            events,
            inputs,
            stop: stop.clone(),
            pending: VecDeque::new(),
        };
        let participant = Self {
            events: receiver,
            task: tokio::spawn(driver.run(endpoint, attachment)),
            stop: stop.drop_guard(),
        };
        (participant, input)
    }

    /// The next event; `None` after [`ParticipantEvent::Ended`]. Cancel safe.
    pub async fn event(&mut self) -> Option<ParticipantEvent> {
        self.events.recv().await
    }

    /// Leaves, and waits until the connection is closed. The session continues.
    pub async fn leave(mut self) {
        self.events.close();
        drop(self.stop);
        // An aborted task has left as well.
        drop(self.task.await);
    }
}

struct Driver {
    events: mpsc::Sender<ParticipantEvent>,
    inputs: Inputs,
    stop: CancellationToken,
    /// Events that wait to be delivered. While there are any, nothing is read: the engine drops
    /// output for a slow participant, and no other participant waits for it.
    pending: VecDeque<ParticipantEvent>,
}

impl Driver {
    async fn run(mut self, endpoint: Endpoint, attachment: Attachment) {
        let stop = self.stop.clone();
        let attaching = async {
            let mut connection = endpoint.connect().await?;
            connection.send(&attach(&endpoint, attachment)).await?;
            Ok::<_, ConnectionError>(connection)
        };
        let mut connection = match stop.run_until_cancelled(attaching).await {
            Some(Ok(connection)) => connection,
            Some(Err(error)) => return self.send_end(Err(error.into())).await,
            None => return,
        };
        if let Some(ended) = Box::pin(self.drive(&mut connection)).await {
            self.send_end(ended).await;
        }
        connection.close().await;
    }

    /// Returns `None` if the receiver of the events is gone.
    async fn drive(
        &mut self,
        connection: &mut Connection,
    ) -> Option<Result<CommandEnd, SessionError>> {
        let mut ended = None;
        let mut beat_at = Instant::now() + HEARTBEAT;
        let mut received_at = Instant::now();
        let mut has_heartbeat = false;
        loop {
            if ended.is_some() && self.pending.is_empty() {
                return ended;
            }
            let goes_on = ended.is_none();
            let writer = &mut connection.writer;
            let has_room = goes_on && writer.queued() < MAX_QUEUED;
            let deadline = if has_heartbeat {
                beat_at.min(received_at + SILENCE)
            } else {
                beat_at
            };
            tokio::select! {
                () = self.stop.cancelled() => return None,
                permit = self.events.reserve(), if !self.pending.is_empty() => match permit {
                    Ok(permit) => {
                        if let Some(event) = self.pending.pop_front() {
                            permit.send(event);
                        }
                        received_at = Instant::now();
                    }
                    Err(_gone) => return None,
                },
                flushed = writer.flush(), if !writer.is_flushed() && goes_on => {
                    if let Err(error) = flushed {
                        ended = Some(Err(error.into()));
                    }
                }
                received = connection.reader.receive(), if self.pending.is_empty() && goes_on => {
                    received_at = Instant::now();
                    has_heartbeat |= matches!(received, Ok(Some(Kind::Heartbeat(_))));
                    ended = match received {
                        Ok(Some(kind)) => on_message(kind, &mut self.pending),
                        Ok(None) => Some(Err(SessionError::HungUp)),
                        Err(error) => Some(Err(error.into())),
                    };
                }
                Some(typed) = self.inputs.typed.recv(), if has_room => {
                    for kind in input_messages(typed) {
                        // Pieces of this size are always valid.
                        drop(writer.queue(&kind));
                    }
                }
                Some(done) = self.inputs.done.recv(), if has_room => {
                    // Sizes, signals and decisions are always valid.
                    drop(writer.queue(&action_message(done)));
                }
                () = sleep_until(deadline.into()), if goes_on => {
                    let now = Instant::now();
                    if !self.pending.is_empty() {
                        received_at = now;
                    }
                    if has_heartbeat && received_at + SILENCE <= now {
                        ended = Some(Err(ClientError::Silent.into()));
                    }
                    if beat_at <= now {
                        beat_at = now + HEARTBEAT;
                        drop(writer.queue(&Kind::Heartbeat(Heartbeat::default())));
                    }
                }
            }
        }
    }

    async fn send_end(&mut self, ended: Result<CommandEnd, SessionError>) {
        let stop = self.stop.clone();
        let sending = self.events.send(ParticipantEvent::Ended(ended));
        // A participant that has left needs no event.
        drop(stop.run_until_cancelled(sending).await);
    }
}

fn attach(endpoint: &Endpoint, attachment: Attachment) -> Kind {
    let transport = match endpoint {
        Endpoint::Url { .. } => AttachTransport::Websocket,
        Endpoint::Private { .. } => AttachTransport::Plain,
    };
    let mut capabilities = vec![AttachCapability::ReadStream];
    if attachment.may_type {
        capabilities.extend([
            AttachCapability::RequestControl,
            AttachCapability::ReceiveControl,
        ]);
    }
    Kind::Attach(Box::new(Attach {
        session_id: attachment.session_id,
        participant_id: attachment.participant_id,
        attach_grant: attachment.grant,
        requested_role: AttachRole::Spectator.into(),
        transport: transport.into(),
        capabilities: capabilities.into_iter().map(i32::from).collect(),
        ..Attach::default()
    }))
}

/// Handles one message. Returns the end, if the message ends the session.
fn on_message(
    kind: Kind,
    pending: &mut VecDeque<ParticipantEvent>,
) -> Option<Result<CommandEnd, SessionError>> {
    let event = match kind {
        Kind::Data(data) if data.r#type() != Stream::Stdin => {
            let stream = data.r#type();
            match data.payload {
                Some(Payload::Data(bytes)) => ParticipantEvent::Output(stream, bytes),
                Some(Payload::Eos(_)) => ParticipantEvent::OutputEnd(stream),
                Some(Payload::EncryptedData(_)) | None => {
                    return Some(Err(ClientError::Unexpected("sealed message").into()));
                }
            }
        }
        Kind::Heartbeat(heartbeat) => {
            let notice = heartbeat.notice?;
            let size = notice.size.and_then(|size| size.size());
            match (notice.kind(), size) {
                (NoticeKind::Snapshot, size) => ParticipantEvent::Snapshot(size),
                (NoticeKind::Resized, Some(size)) => ParticipantEvent::Resized(size),
                _ => ParticipantEvent::Notice(notice),
            }
        }
        // An engine may send the `Ack` of the command, which a participant does not need.
        Kind::Ack(_) => return None,
        Kind::Close(close) => return Some(Ok(close.into())),
        Kind::Error(error) => return Some(Err(ClientError::Refused(error.msg).into())),
        Kind::ProtocolError(error) => {
            return Some(Err(ClientError::Refused(error.msg).into()));
        }
        other => return Some(Err(ClientError::Unexpected(other.name()).into())),
    };
    pending.push_back(event);
    None
}

fn input_messages(typed: InputEvent) -> Vec<Kind> {
    let InputEvent::Bytes(mut bytes) = typed else {
        return vec![Kind::end(Stream::Stdin)];
    };
    let mut messages = Vec::new();
    while !bytes.is_empty() {
        let piece = bytes.split_to(bytes.len().min(limits::MAX_DATA));
        messages.push(Kind::data(Stream::Stdin, piece));
    }
    messages
}

fn action_message(done: InputAction) -> Kind {
    match done {
        InputAction::Resize(size) => {
            let size: tty::message::TerminalSize = size.into();
            Kind::Parameter(size.into())
        }
        InputAction::Signal(signal) => Kind::Heartbeat(Heartbeat {
            signal: Some(signal.into()),
            ..Heartbeat::default()
        }),
        InputAction::Decide(answer) => decision(answer),
    }
}

/// Maximum of undelivered events.
const EVENT_QUEUE: usize = 8;

/// Queued bytes above which no further input is read.
const MAX_QUEUED: usize = 256 * 1024;

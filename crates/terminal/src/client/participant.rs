//! Somebody who takes part in a session that runs: at an engine, over a stream that begins with an
//! attach.

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
use super::input::{Done, Input, InputEvent, Inputs, decision};
use super::session::{CommandEnd, SessionError};

/// What the Engine API gave to who may take part. The grant is good once, and for 30 seconds: after
/// a lost connection somebody asks for another one.
#[derive(Clone, Debug)]
pub struct Attachment {
    /// The session.
    pub session_id: String,
    /// Who takes part.
    pub participant_id: String,
    /// What shows that they may.
    pub grant: Vec<u8>,
    /// Whether they may come to type: without, nobody can give them control.
    pub may_type: bool,
}

/// Somebody who takes part.
///
/// [`event`](Self::event) tells what is shown; what they do goes the other way through the
/// [`Input`], and passes as long as they have control. When this is dropped, they leave.
#[derive(Debug)]
pub struct Participant {
    events: mpsc::Receiver<ParticipantEvent>,
    task: JoinHandle<()>,
    stop: DropGuard,
}

/// What happens.
#[derive(Debug)]
pub enum ParticipantEvent {
    /// What follows draws the screen of a terminal of this size, from an empty one on: at the
    /// beginning, and after some output was left out because it was not taken in time.
    Snapshot(Option<Size>),
    /// The terminal has another size.
    Resized(Size),
    /// What the command wrote.
    Output(Stream, Bytes),
    /// The command closed a stream.
    OutputEnd(Stream),
    /// Somebody came, went, asked for control, got it or lost it; also oneself.
    Notice(Box<Notice>),
    /// It is over. Nothing follows.
    Ended(Result<CommandEnd, SessionError>),
}

impl Participant {
    /// Takes part over the stream at this endpoint.
    pub fn start(endpoint: Endpoint, attachment: Attachment) -> (Self, Input) {
        let (events, told) = mpsc::channel(EVENTS);
        let (input, inputs) = Input::new();
        let stop = CancellationToken::new();
        let driver = Driver {
            events,
            inputs,
            stop: stop.clone(),
            pending: VecDeque::new(),
        };
        let participant = Self {
            events: told,
            task: tokio::spawn(driver.run(endpoint, attachment)),
            stop: stop.drop_guard(),
        };
        (participant, input)
    }

    /// What happens next; `None` after [`ParticipantEvent::Ended`]. Cancel safe.
    pub async fn event(&mut self) -> Option<ParticipantEvent> {
        self.events.recv().await
    }

    /// Leaves, and waits until that is out. The session goes on.
    pub async fn leave(mut self) {
        self.events.close();
        drop(self.stop);
        // A task that was aborted has left, too.
        drop(self.task.await);
    }
}

struct Driver {
    events: mpsc::Sender<ParticipantEvent>,
    inputs: Inputs,
    stop: CancellationToken,
    /// What is to be told. While something waits here, nothing is read: the engine leaves output out
    /// for who is slow, and nobody else waits.
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
            Some(Err(error)) => return self.tell_last(Err(error.into())).await,
            None => return,
        };
        if let Some(ended) = Box::pin(self.drive(&mut connection)).await {
            self.tell_last(ended).await;
        }
        connection.close().await;
    }

    /// `None`: nobody wants it any more.
    async fn drive(
        &mut self,
        connection: &mut Connection,
    ) -> Option<Result<CommandEnd, SessionError>> {
        let mut ended = None;
        let mut beat_at = Instant::now() + HEARTBEAT;
        let mut heard_at = Instant::now();
        let mut beats = false;
        loop {
            if ended.is_some() && self.pending.is_empty() {
                return ended;
            }
            let goes_on = ended.is_none();
            let writer = &mut connection.writer;
            let has_room = goes_on && writer.queued() < QUEUED;
            let deadline = if beats {
                beat_at.min(heard_at + SILENCE)
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
                        heard_at = Instant::now();
                    }
                    Err(_gone) => return None,
                },
                flushed = writer.flush(), if !writer.is_flushed() && goes_on => {
                    if let Err(error) = flushed {
                        ended = Some(Err(error.into()));
                    }
                }
                heard = connection.reader.receive(), if self.pending.is_empty() && goes_on => {
                    heard_at = Instant::now();
                    beats |= matches!(heard, Ok(Some(Kind::Heartbeat(_))));
                    ended = match heard {
                        Ok(Some(kind)) => hear(kind, &mut self.pending),
                        Ok(None) => Some(Err(SessionError::HungUp)),
                        Err(error) => Some(Err(error.into())),
                    };
                }
                Some(typed) = self.inputs.typed.recv(), if has_room => {
                    for kind in said(typed) {
                        // Pieces of this size can be sent.
                        drop(writer.queue(&kind));
                    }
                }
                Some(done) = self.inputs.done.recv(), if has_room => {
                    // A size, a signal or an answer can be sent.
                    drop(writer.queue(&beside(done)));
                }
                () = sleep_until(deadline.into()), if goes_on => {
                    let now = Instant::now();
                    if !self.pending.is_empty() {
                        heard_at = now;
                    }
                    if beats && heard_at + SILENCE <= now {
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

    async fn tell_last(&mut self, ended: Result<CommandEnd, SessionError>) {
        let stop = self.stop.clone();
        let telling = self.events.send(ParticipantEvent::Ended(ended));
        // Who left needs to be told nothing.
        drop(stop.run_until_cancelled(telling).await);
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

/// Takes one message in; the end, where it is one.
fn hear(
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
        // An engine may tell that the command was opened, which whoever watches knows.
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

fn said(typed: InputEvent) -> Vec<Kind> {
    let InputEvent::Bytes(mut bytes) = typed else {
        return vec![Kind::end(Stream::Stdin)];
    };
    let mut said = Vec::new();
    while !bytes.is_empty() {
        let piece = bytes.split_to(bytes.len().min(limits::MAX_DATA));
        said.push(Kind::data(Stream::Stdin, piece));
    }
    said
}

fn beside(done: Done) -> Kind {
    match done {
        Done::Resize(size) => {
            let size: tty::message::TerminalSize = size.into();
            Kind::Parameter(size.into())
        }
        Done::Signal(signal) => Kind::Heartbeat(Heartbeat {
            signal: Some(signal.into()),
            ..Heartbeat::default()
        }),
        Done::Decide(answer) => decision(answer),
    }
}

/// Events that wait for who is shown them.
const EVENTS: usize = 8;

/// Bytes that wait to go out before more is taken from the person.
const QUEUED: usize = 256 * 1024;

//! End-to-end encryption between a carrier and a session.

use std::fmt;
use std::sync::Arc;

use tty::message::{
    AckSession, Close, Data, Kind, Payload, ProtocolError, ProtocolErrorCode, ProtocolVersion,
    ServerHello, Stream,
};
use tty::seal::{
    Channel, Content, Identity, MAX_CLEAR, Mark, PublicKey, SealError, ServerHandshake,
};

use super::random;

/// What a server that seals its sessions is, and whom it knows.
#[derive(Clone)]
pub struct Seal {
    /// Its keys.
    pub identity: Arc<Identity>,
    /// What both ends bind a session to.
    pub context: Vec<u8>,
    /// Whether a client may come in, asked at each handshake.
    pub authorized: Arc<dyn Fn(&PublicKey) -> bool + Send + Sync>,
}

impl fmt::Debug for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seal").finish_non_exhaustive()
    }
}

/// How far a connection has come.
pub(crate) enum Sealing {
    /// Sessions of this server are not sealed.
    Off,
    /// The client has to say hello.
    Hello(Seal),
    /// It was answered, and has to show that it is who it said.
    Answered(Box<ServerHandshake>),
    /// Everything is sealed.
    Sealed {
        channel: Box<Channel>,
        client: PublicKey,
    },
}

/// What became of a message that came.
pub(crate) enum OpenedMessage {
    /// The session hears it.
    Hear(Kind),
    /// It was about the encryption; this is the answer.
    Answer(Kind),
    /// It ends the connection, after this.
    Refuse(Kind),
}

impl Sealing {
    /// For a new connection.
    pub(crate) fn new(seal: Option<&Seal>) -> Self {
        seal.map_or(Self::Off, |seal| Self::Hello(seal.clone()))
    }

    /// The client that has proved itself.
    pub(crate) fn client(&self) -> Option<PublicKey> {
        match self {
            Self::Sealed { client, .. } => Some(*client),
            _ => None,
        }
    }

    /// Opens what came.
    pub(crate) fn open(&mut self, kind: Kind) -> OpenedMessage {
        match std::mem::replace(self, Self::Off) {
            Self::Off => OpenedMessage::Hear(kind),
            Self::Hello(seal) => self.hello(&seal, kind),
            Self::Answered(handshake) => self.confirm(*handshake, kind),
            Self::Sealed {
                mut channel,
                client,
            } => {
                let opened = open_data(&mut channel, kind);
                *self = Self::Sealed { channel, client };
                opened
            }
        }
    }

    /// Seals what goes out: one message, or two.
    pub(crate) fn seal(&mut self, kind: Kind) -> Result<Vec<Kind>, SealError> {
        let Self::Sealed { channel, .. } = self else {
            return Ok(vec![kind]);
        };
        let mut sealed = |stream, content: &Content| {
            let payload = channel.sealer.seal(stream, content)?;
            Ok(Kind::Data(Data {
                r#type: stream.into(),
                payload: Some(Payload::EncryptedData(Box::new(payload))),
            }))
        };
        match kind {
            Kind::Data(data) => {
                let stream = data.r#type();
                match data.payload {
                    Some(Payload::Data(mut bytes)) => {
                        let mut all = Vec::with_capacity(1);
                        while !bytes.is_empty() {
                            let part = bytes.split_to(bytes.len().min(MAX_CLEAR));
                            all.push(sealed(stream, &Content::Data(part))?);
                        }
                        Ok(all)
                    }
                    _ => Ok(vec![sealed(stream, &Content::End)?]),
                }
            }
            Kind::Close(Close { return_code, .. }) => {
                let exit = sealed(Stream::Stdout, &Content::Exit(return_code))?;
                Ok(vec![exit, kind])
            }
            Kind::Ack(ack) => match ack.session.as_ref().and_then(mark) {
                Some(mark) => {
                    let mark = sealed(Stream::Stdout, &Content::Mark(mark))?;
                    Ok(vec![mark, Kind::Ack(ack)])
                }
                None => Ok(vec![Kind::Ack(ack)]),
            },
            kind => Ok(vec![kind]),
        }
    }

    fn hello(&mut self, seal: &Seal, kind: Kind) -> OpenedMessage {
        let hello = match kind {
            Kind::ClientHello(hello) => hello.seal,
            Kind::Heartbeat(heartbeat) => {
                *self = Self::Hello(seal.clone());
                return OpenedMessage::Hear(Kind::Heartbeat(heartbeat));
            }
            _ => None,
        };
        let Some(hello) = hello else {
            return refuse(
                ProtocolErrorCode::ClientProofRequired,
                "this server serves sealed sessions alone",
            );
        };
        let secrets = match (random(), random()) {
            (Some(known), Some(fresh)) => [known, fresh],
            _ => return refuse(ProtocolErrorCode::Unspecified, "no randomness"),
        };
        let accepted = ServerHandshake::accept(
            &seal.identity,
            &seal.context,
            &hello,
            |key| (seal.authorized)(key),
            secrets,
        );
        match accepted {
            Ok((handshake, answer)) => {
                *self = Self::Answered(Box::new(handshake));
                OpenedMessage::Answer(Kind::ServerHello(Box::new(ServerHello {
                    protocol_version: ProtocolVersion::Webtty1.into(),
                    seal: Some(answer),
                    ..ServerHello::default()
                })))
            }
            Err(error) => refuse(code(error), &error.to_string()),
        }
    }

    fn confirm(&mut self, handshake: ServerHandshake, kind: Kind) -> OpenedMessage {
        let Kind::Open(open) = kind else {
            if matches!(kind, Kind::Heartbeat(_)) {
                *self = Self::Answered(Box::new(handshake));
                return OpenedMessage::Hear(kind);
            }
            return refuse(
                ProtocolErrorCode::ClientProofRequired,
                "an open has to follow the hello",
            );
        };
        let client = handshake.client();
        match handshake.confirm(&open) {
            Ok(channel) => {
                *self = Self::Sealed {
                    channel: Box::new(channel),
                    client,
                };
                OpenedMessage::Hear(Kind::Open(open))
            }
            Err(error) => refuse(code(error), &error.to_string()),
        }
    }
}

/// Bytes of a stream are sealed, and nothing else is.
fn open_data(channel: &mut Channel, kind: Kind) -> OpenedMessage {
    let Kind::Data(data) = kind else {
        return OpenedMessage::Hear(kind);
    };
    let stream = data.r#type();
    let Some(Payload::EncryptedData(payload)) = data.payload else {
        return OpenedMessage::Refuse(Kind::error("data that is not sealed"));
    };
    match channel.opener.open(stream, &payload) {
        Ok(Content::Data(bytes)) => OpenedMessage::Hear(Kind::data(stream, bytes)),
        Ok(Content::End) => OpenedMessage::Hear(Kind::end(stream)),
        Ok(Content::Exit(_) | Content::Mark(_)) => {
            OpenedMessage::Refuse(Kind::error("what only a server says"))
        }
        Err(error) => OpenedMessage::Refuse(Kind::error(&error.to_string())),
    }
}

/// What an ack says that nobody between may change.
fn mark(session: &AckSession) -> Option<Mark> {
    Some(Mark {
        token: session.resume_token.as_slice().try_into().ok()?,
        output_from: session.output_from.unwrap_or_default(),
        input_received: session.input_received,
    })
}

fn refuse(code: ProtocolErrorCode, msg: &str) -> OpenedMessage {
    OpenedMessage::Refuse(Kind::ProtocolError(ProtocolError {
        code: code.into(),
        msg: msg.to_owned(),
    }))
}

fn code(error: SealError) -> ProtocolErrorCode {
    match error {
        SealError::Version => ProtocolErrorCode::UnsupportedSuite,
        SealError::NotForUs => ProtocolErrorCode::ServerKeyChanged,
        SealError::Unauthorized => ProtocolErrorCode::ClientUnauthorized,
        _ => ProtocolErrorCode::ClientProofInvalid,
    }
}

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

/// Keys and authorized clients of a server that seals its sessions.
#[derive(Clone)]
pub struct Seal {
    /// The key pair of the server.
    pub identity: Arc<Identity>,
    /// Context to which both ends bind a session.
    pub context: Vec<u8>,
    /// Returns true if a client is authorized; called at each handshake.
    pub authorized: Arc<dyn Fn(&PublicKey) -> bool + Send + Sync>,
}

impl fmt::Debug for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seal").finish_non_exhaustive()
    }
}

/// State of a connection's encryption.
pub(crate) enum EncryptionState {
    /// Sessions of this server are not sealed.
    Off,
    /// The server expects the client's hello.
    Hello(Seal),
    /// The server has answered the hello, and expects the client's confirmation.
    Answered(Box<ServerHandshake>),
    /// Everything is sealed.
    Sealed {
        channel: Box<Channel>,
        client: PublicKey,
    },
}

/// Result of opening a received message.
pub(crate) enum OpenedMessage {
    /// The message is for the session.
    ForSession(Kind),
    /// The message belonged to the handshake; this is the answer.
    Answer(Kind),
    /// The connection is closed after this message.
    Refuse(Kind),
}

impl EncryptionState {
    /// State of a new connection.
    pub(crate) fn new(seal: Option<&Seal>) -> Self {
        seal.map_or(Self::Off, |seal| Self::Hello(seal.clone()))
    }

    /// The authenticated client.
    pub(crate) fn client(&self) -> Option<PublicKey> {
        match self {
            Self::Sealed { client, .. } => Some(*client),
            _ => None,
        }
    }

    /// Opens a received message.
    pub(crate) fn open(&mut self, kind: Kind) -> OpenedMessage {
        match std::mem::replace(self, Self::Off) {
            Self::Off => OpenedMessage::ForSession(kind),
            Self::Hello(seal) => self.handle_hello(&seal, kind),
            Self::Answered(handshake) => self.handle_confirm(*handshake, kind),
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

    /// Seals an outgoing message, which results in one or two messages.
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

    fn handle_hello(&mut self, seal: &Seal, kind: Kind) -> OpenedMessage {
        let hello = match kind {
            Kind::ClientHello(hello) => hello.seal,
            Kind::Heartbeat(heartbeat) => {
                *self = Self::Hello(seal.clone());
                return OpenedMessage::ForSession(Kind::Heartbeat(heartbeat));
            }
            _ => None,
        };
        let Some(hello) = hello else {
            return refuse(
                ProtocolErrorCode::ClientProofRequired,
                "this server accepts only end-to-end encrypted sessions",
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

    fn handle_confirm(&mut self, handshake: ServerHandshake, kind: Kind) -> OpenedMessage {
        let Kind::Open(open) = kind else {
            if matches!(kind, Kind::Heartbeat(_)) {
                *self = Self::Answered(Box::new(handshake));
                return OpenedMessage::ForSession(kind);
            }
            return refuse(
                ProtocolErrorCode::ClientProofRequired,
                "an open message must follow the hello",
            );
        };
        let client = handshake.client();
        match handshake.confirm(&open) {
            Ok(channel) => {
                *self = Self::Sealed {
                    channel: Box::new(channel),
                    client,
                };
                OpenedMessage::ForSession(Kind::Open(open))
            }
            Err(error) => refuse(code(error), &error.to_string()),
        }
    }
}

/// Opens sealed bytes of a stream; other messages are not sealed.
fn open_data(channel: &mut Channel, kind: Kind) -> OpenedMessage {
    let Kind::Data(data) = kind else {
        return OpenedMessage::ForSession(kind);
    };
    let stream = data.r#type();
    let Some(Payload::EncryptedData(payload)) = data.payload else {
        return OpenedMessage::Refuse(Kind::error("unencrypted data in an encrypted session"));
    };
    match channel.opener.open(stream, &payload) {
        Ok(Content::Data(bytes)) => OpenedMessage::ForSession(Kind::data(stream, bytes)),
        Ok(Content::End) => OpenedMessage::ForSession(Kind::end(stream)),
        Ok(Content::Exit(_) | Content::Mark(_)) => {
            OpenedMessage::Refuse(Kind::error("what only a server says"))
        }
        Err(error) => OpenedMessage::Refuse(Kind::error(&error.to_string())),
    }
}

/// The data of an ack that must be protected from changes.
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
        SealError::WrongRecipient => ProtocolErrorCode::ServerKeyChanged,
        SealError::Unauthorized => ProtocolErrorCode::ClientUnauthorized,
        _ => ProtocolErrorCode::ClientProofInvalid,
    }
}

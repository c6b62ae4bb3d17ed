//! End-to-end encryption between a session and its connection. It seals outgoing messages, opens
//! received ones, and rejects unsealed data.

use std::sync::Arc;

use aws_lc_rs::rand;
use tokio::time::timeout;
use tty::message::{
    Ack, ClientHello, Data, Kind, OpenCommand, Payload, ProtocolError, ProtocolErrorCode,
    ProtocolVersion, Stream,
};
use tty::seal::{
    Channel, ClientHandshake, ClientReady, Content, Identity, MAX_CLEAR, Mark, PublicKey,
    SECRET_LEN, SealError,
};
use tty::session::{ACK_DEADLINE, ClientError};

use super::connection::Connection;
use super::session::SessionError;

/// Keys of a sealed session.
#[derive(Clone, Debug)]
pub struct Seal {
    /// Key pair of this client.
    pub identity: Arc<Identity>,
    /// Public key of the known server.
    pub server: PublicKey,
    /// Context to which both ends bind the session: [`crate::keys::seal_context`].
    pub context: Vec<u8>,
}

/// State of the encryption of one connection.
pub(super) enum EncryptionState {
    /// The session is not sealed.
    None,
    /// The keys are established; the `Open` must confirm them.
    Ready(Box<ClientReady>),
    Sealed {
        channel: Box<Channel>,
        /// True if the session is resumed.
        returns: bool,
        /// Content of the next ack.
        mark: Option<Mark>,
        /// The sealed exit code.
        exit: Option<i32>,
    },
}

impl Seal {
    /// Exchanges the first two messages of a connection.
    pub(super) async fn handshake(
        &self,
        connection: &mut Connection,
    ) -> Result<EncryptionState, SessionError> {
        let mut secret = [0; SECRET_LEN];
        rand::fill(&mut secret).map_err(|_| SealError::Crypto)?;
        let (handshake, hello) =
            ClientHandshake::begin(&self.identity, self.server, &self.context, secret)?;
        let hello = Kind::ClientHello(ClientHello {
            protocol_version: ProtocolVersion::Webtty1.into(),
            seal: Some(hello),
        });
        let answered = async {
            connection.send(&hello).await?;
            loop {
                match connection.receive().await? {
                    Some(Kind::Heartbeat(_)) => {}
                    other => return Ok::<_, SessionError>(other),
                }
            }
        };
        let answer = timeout(ACK_DEADLINE, answered)
            .await
            .map_err(|_elapsed| ClientError::Silent)??;
        match answer {
            Some(Kind::ServerHello(hello)) => {
                // A server that does not seal is not the known one, or an attacker is in between.
                let answer = hello.seal.ok_or(SessionError::NotSealed)?;
                let ready = handshake.answer(&self.identity, &answer)?;
                Ok(EncryptionState::Ready(Box::new(ready)))
            }
            Some(Kind::Error(error)) => Err(ClientError::Refused(error.msg).into()),
            Some(Kind::ProtocolError(error)) => Err(unproven(error)),
            Some(_) => Err(SessionError::NotSealed),
            None => Err(SessionError::HungUp),
        }
    }
}

impl EncryptionState {
    /// The messages to send instead of this one.
    pub(super) fn seal(&mut self, kind: Kind) -> Result<Vec<Kind>, SessionError> {
        match (&mut *self, kind) {
            (Self::Ready(_), Kind::Open(open)) => Ok(vec![self.confirm(*open)?]),
            (Self::Sealed { channel, .. }, Kind::Data(data)) => {
                let stream = data.r#type();
                let contents = match data.payload {
                    Some(Payload::Data(bytes)) => pieces(bytes),
                    Some(Payload::Eos(_)) => vec![Content::End],
                    Some(Payload::EncryptedData(_)) | None => Vec::new(),
                };
                let sealed = |content| {
                    let payload = channel.sealer.seal(stream, &content)?;
                    Ok(Kind::Data(Data {
                        r#type: stream.into(),
                        payload: Some(Payload::EncryptedData(Box::new(payload))),
                    }))
                };
                contents.into_iter().map(sealed).collect()
            }
            (_, kind) => Ok(vec![kind]),
        }
    }

    /// Opens a received message; `None` if it only concerns the encryption.
    pub(super) fn open(&mut self, kind: Kind) -> Result<Option<Kind>, SessionError> {
        let Self::Sealed {
            channel,
            returns,
            mark,
            exit,
        } = self
        else {
            return Ok(Some(kind));
        };
        match kind {
            Kind::Data(data) => {
                let stream = data.r#type();
                let Some(Payload::EncryptedData(payload)) = data.payload else {
                    return Err(SessionError::NotSealed);
                };
                match channel.opener.open(stream, &payload)? {
                    Content::Data(bytes) => Ok(Some(Kind::data(stream, bytes))),
                    Content::End => Ok(Some(Kind::end(stream))),
                    Content::Exit(code) if stream == Stream::Stdout => {
                        *exit = Some(code);
                        Ok(None)
                    }
                    Content::Mark(received) if stream == Stream::Stdout && mark.is_none() => {
                        *mark = Some(received);
                        Ok(None)
                    }
                    Content::Exit(_) | Content::Mark(_) => Err(SealError::Changed.into()),
                }
            }
            Kind::Ack(ack) => Ok(Some(Kind::Ack(with_sealed_fields(
                ack,
                *returns,
                mark.take(),
            )?))),
            // The exit code from a relay is only accepted if the server sealed the same one.
            Kind::Close(close) => match *exit {
                Some(code) if code == close.return_code => Ok(Some(Kind::Close(close))),
                Some(_) => Err(SealError::Changed.into()),
                None => Err(SessionError::NotSealed),
            },
            other => Ok(Some(other)),
        }
    }

    /// Adds the confirmation, which covers the command to start or the session to resume.
    fn confirm(&mut self, mut open: OpenCommand) -> Result<Kind, SessionError> {
        let Self::Ready(ready) = std::mem::replace(self, Self::None) else {
            return Err(SealError::Failed.into());
        };
        let (confirm, channel) = ready.confirm(&open)?;
        open.seal = Some(confirm);
        let session = open.session.as_ref();
        *self = Self::Sealed {
            channel: Box::new(channel),
            returns: session.is_some_and(|session| session.resume.is_some()),
            mark: None,
            exit: None,
        };
        Ok(Kind::Open(Box::new(open)))
    }
}

/// The identity of an end is unproven, or the server does not support the handshake.
fn unproven(error: ProtocolError) -> SessionError {
    match error.code() {
        ProtocolErrorCode::Unspecified | ProtocolErrorCode::UnsupportedSuite => {
            ClientError::Refused(error.msg).into()
        }
        code => SessionError::Unproven {
            code,
            message: error.msg,
        },
    }
}

/// Replaces data of an ack that a relay could change with the sealed data: the session, and the
/// positions of both directions.
fn with_sealed_fields(
    mut ack: Ack,
    returns: bool,
    mark: Option<Mark>,
) -> Result<Ack, SessionError> {
    match mark {
        Some(mark) => {
            let session = ack.session.get_or_insert_default();
            session.resume_token = mark.token.to_vec();
            session.output_from = returns.then_some(mark.output_from);
            session.input_received = mark.input_received;
        }
        None if returns => return Err(SessionError::NotSealed),
        None => {
            if let Some(session) = &mut ack.session {
                session.resume_token.clear();
                session.output_from = None;
                session.input_received = 0;
            }
        }
    }
    Ok(ack)
}

fn pieces(mut bytes: bytes::Bytes) -> Vec<Content> {
    let mut pieces = Vec::new();
    while !bytes.is_empty() {
        pieces.push(Content::Data(bytes.split_to(bytes.len().min(MAX_CLEAR))));
    }
    pieces
}

//! Messages over a byte stream or a WebSocket, one like the other for those who use them.

use std::future::ready;
use std::io;
use std::pin::Pin;

use axum::extract::ws;
use bytes::{Bytes, BytesMut};
use futures_util::{Sink, SinkExt as _, Stream, StreamExt as _};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::{self, Message, protocol::frame::coding::CloseCode};
use tokio_util::codec::{Decoder, Encoder, Framed};
use tty::frame;
use tty::message::{self, BadMessage, Kind, limits::MAX_MESSAGE};
use types::webtty::Transport;

/// What somebody says, in order. It ends when they hang up. Cancel safe.
pub(crate) type Source<'a> = Pin<Box<dyn Stream<Item = Result<Kind, ConnectionError>> + Send + 'a>>;

/// What somebody is told.
pub(crate) type MessageSink<'a> = Pin<Box<dyn Sink<Say, Error = ConnectionError> + Send + 'a>>;

/// Something that somebody is told.
pub(crate) enum Say {
    Message(Kind),
    /// That nothing follows.
    Farewell,
}

/// Why a connection does not go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectionError {
    /// What was said is no message.
    #[error("{0}")]
    Message(#[from] BadMessage),
    /// A text message of a WebSocket.
    #[error("messages are binary")]
    Text,
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Websocket(#[from] tungstenite::Error),
    #[error(transparent)]
    Axum(#[from] axum::Error),
}

impl ConnectionError {
    /// What the other end did wrong; nothing where the connection broke.
    pub(crate) fn fault(&self) -> Option<String> {
        match self {
            Self::Message(bad) => Some(bad.to_string()),
            Self::Text => Some(self.to_string()),
            Self::Io(_) | Self::Websocket(_) | Self::Axum(_) => None,
        }
    }
}

/// The other end of a connection.
pub(crate) struct Peer<'a> {
    pub(crate) source: Source<'a>,
    pub(crate) sayer: MessageSink<'a>,
    pub(crate) transport: Transport,
}

impl<'a> Peer<'a> {
    /// Frames on a byte stream.
    pub(crate) fn plain<S: AsyncRead + AsyncWrite + Unpin + Send + 'a>(io: S) -> Self {
        let framed = Framed::with_capacity(io, Frames::default(), READ);
        let (sayer, source) = framed.split();
        Self {
            source: Box::pin(source),
            sayer: Box::pin(sayer),
            transport: Transport::Plain,
        }
    }

    /// Messages of a WebSocket whose handshake was made.
    pub(crate) fn websocket<S>(socket: WebSocketStream<S>) -> Self
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'a,
    {
        let (sayer, source) = socket.split();
        let source = source.filter_map(|heard| {
            ready(match heard {
                Ok(Message::Binary(bytes)) => Some(read(bytes)),
                Ok(Message::Text(_)) => Some(Err(ConnectionError::Text)),
                // Pings are answered by the library, and after a close nothing comes.
                Ok(_) => None,
                Err(tungstenite::Error::ConnectionClosed | tungstenite::Error::AlreadyClosed) => {
                    None
                }
                Err(error) => Some(Err(error.into())),
            })
        });
        let sayer = sayer.with(|say| {
            ready(match say {
                Say::Message(kind) => write(&kind).map(Message::Binary),
                Say::Farewell => Ok(Message::Close(Some(tungstenite::protocol::CloseFrame {
                    code: CloseCode::Normal,
                    reason: FINISHED.into(),
                }))),
            })
        });
        Self {
            source: Box::pin(source),
            sayer: Box::pin(sayer),
            transport: Transport::Websocket,
        }
    }

    /// The same, of the Engine API.
    pub(crate) fn api(socket: ws::WebSocket) -> Self {
        let (sayer, source) = socket.split();
        let source = source.filter_map(|heard| {
            ready(match heard {
                Ok(ws::Message::Binary(bytes)) => Some(read(bytes)),
                Ok(ws::Message::Text(_)) => Some(Err(ConnectionError::Text)),
                Ok(_) => None,
                Err(error) => Some(Err(error.into())),
            })
        });
        let sayer = sayer.with(|say| {
            ready(match say {
                Say::Message(kind) => write(&kind).map(ws::Message::Binary),
                Say::Farewell => Ok(ws::Message::Close(Some(ws::CloseFrame {
                    code: ws::close_code::NORMAL,
                    reason: FINISHED.into(),
                }))),
            })
        });
        Self {
            source: Box::pin(source),
            sayer: Box::pin(sayer),
            transport: Transport::Websocket,
        }
    }
}

/// How WebSockets are read and written: no message is larger than one of WebTTY, and an idle
/// connection holds no more than a plain one.
pub(crate) fn config() -> tungstenite::protocol::WebSocketConfig {
    tungstenite::protocol::WebSocketConfig::default()
        .max_message_size(Some(MAX_MESSAGE))
        .max_frame_size(Some(MAX_MESSAGE))
        .read_buffer_size(READ)
        .write_buffer_size(READ)
}

fn read(bytes: Bytes) -> Result<Kind, ConnectionError> {
    Ok(message::decode(bytes)?)
}

fn write(kind: &Kind) -> Result<Bytes, ConnectionError> {
    Ok(message::encode(kind)?)
}

/// The frames of the plain transport.
#[derive(Debug, Default)]
struct Frames(frame::Decoder);

impl Decoder for Frames {
    type Item = Kind;
    type Error = ConnectionError;

    fn decode(&mut self, bytes: &mut BytesMut) -> Result<Option<Kind>, ConnectionError> {
        self.0.push(bytes);
        bytes.clear();
        Ok(self.0.next()?)
    }
}

impl Encoder<Say> for Frames {
    type Error = ConnectionError;

    fn encode(&mut self, say: Say, bytes: &mut BytesMut) -> Result<(), ConnectionError> {
        if let Say::Message(kind) = say {
            bytes.extend_from_slice(&frame::encode(&kind)?);
        }
        Ok(())
    }
}

/// What is read at once: the pieces in which programs write to terminals are no larger.
const READ: usize = 16 * 1024;

/// What the close of a WebSocket says in the published protocol.
const FINISHED: &str = "finished";

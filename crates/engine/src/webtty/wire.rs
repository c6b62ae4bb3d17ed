//! Messages over a byte stream or a WebSocket, with one interface for both.

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
use tty::message::{self, Kind, MessageError, limits::MAX_MESSAGE};
use types::webtty::Transport;

/// Messages that a peer sends, in order. It ends when the peer closes. Cancel safe.
pub(crate) type MessageSource<'a> =
    Pin<Box<dyn Stream<Item = Result<Kind, ConnectionError>> + Send + 'a>>;

/// Messages to a peer.
pub(crate) type MessageSink<'a> =
    Pin<Box<dyn Sink<OutgoingMessage, Error = ConnectionError> + Send + 'a>>;

/// One item for a peer.
pub(crate) enum OutgoingMessage {
    Message(Kind),
    /// Announces that no message follows.
    Farewell,
}

/// Errors of a connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectionError {
    /// The data is not a valid message.
    #[error("{0}")]
    Message(#[from] MessageError),
    /// The peer sent a WebSocket text message.
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
    /// Description of the peer's mistake; `None` if the connection broke.
    pub(crate) fn fault(&self) -> Option<String> {
        match self {
            Self::Message(bad) => Some(bad.to_string()),
            Self::Text => Some(self.to_string()),
            Self::Io(_) | Self::Websocket(_) | Self::Axum(_) => None,
        }
    }
}

/// A connection to a server or a participant.
pub(crate) struct Peer<'a> {
    pub(crate) source: MessageSource<'a>,
    pub(crate) sink: MessageSink<'a>,
    pub(crate) transport: Transport,
}

impl<'a> Peer<'a> {
    /// Connection with frames on a byte stream.
    pub(crate) fn plain<S: AsyncRead + AsyncWrite + Unpin + Send + 'a>(io: S) -> Self {
        let framed = Framed::with_capacity(io, FrameCodec::default(), BUFFER_SIZE);
        let (sink, source) = framed.split();
        Self {
            source: Box::pin(source),
            sink: Box::pin(sink),
            transport: Transport::Plain,
        }
    }

    /// Connection with the messages of a WebSocket after its handshake.
    pub(crate) fn websocket<S>(socket: WebSocketStream<S>) -> Self
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'a,
    {
        let (sink, source) = socket.split();
        let source = source.filter_map(|received| {
            ready(match received {
                Ok(Message::Binary(bytes)) => Some(decode_message(bytes)),
                Ok(Message::Text(_)) => Some(Err(ConnectionError::Text)),
                // The library answers pings, and nothing follows a close.
                Ok(_) => None,
                Err(tungstenite::Error::ConnectionClosed | tungstenite::Error::AlreadyClosed) => {
                    None
                }
                Err(error) => Some(Err(error.into())),
            })
        });
        let sink = sink.with(|message| {
            ready(match message {
                OutgoingMessage::Message(kind) => encode_message(&kind).map(Message::Binary),
                OutgoingMessage::Farewell => {
                    Ok(Message::Close(Some(tungstenite::protocol::CloseFrame {
                        code: CloseCode::Normal,
                        reason: CLOSE_REASON.into(),
                    })))
                }
            })
        });
        Self {
            source: Box::pin(source),
            sink: Box::pin(sink),
            transport: Transport::Websocket,
        }
    }

    /// Connection with the messages of a WebSocket of the Engine API.
    pub(crate) fn api(socket: ws::WebSocket) -> Self {
        let (sink, source) = socket.split();
        let source = source.filter_map(|received| {
            ready(match received {
                Ok(ws::Message::Binary(bytes)) => Some(decode_message(bytes)),
                Ok(ws::Message::Text(_)) => Some(Err(ConnectionError::Text)),
                Ok(_) => None,
                Err(error) => Some(Err(error.into())),
            })
        });
        let sink = sink.with(|message| {
            ready(match message {
                OutgoingMessage::Message(kind) => encode_message(&kind).map(ws::Message::Binary),
                OutgoingMessage::Farewell => Ok(ws::Message::Close(Some(ws::CloseFrame {
                    code: ws::close_code::NORMAL,
                    reason: CLOSE_REASON.into(),
                }))),
            })
        });
        Self {
            source: Box::pin(source),
            sink: Box::pin(sink),
            transport: Transport::Websocket,
        }
    }
}

/// WebSocket configuration: no message is larger than one of WebTTY, and an idle connection uses no
/// more memory than a plain one.
pub(crate) fn config() -> tungstenite::protocol::WebSocketConfig {
    tungstenite::protocol::WebSocketConfig::default()
        .max_message_size(Some(MAX_MESSAGE))
        .max_frame_size(Some(MAX_MESSAGE))
        .read_buffer_size(BUFFER_SIZE)
        .write_buffer_size(BUFFER_SIZE)
}

fn decode_message(bytes: Bytes) -> Result<Kind, ConnectionError> {
    Ok(message::decode(bytes)?)
}

fn encode_message(kind: &Kind) -> Result<Bytes, ConnectionError> {
    Ok(message::encode(kind)?)
}

/// Codec of the plain transport.
#[derive(Debug, Default)]
struct FrameCodec(frame::Decoder);

impl Decoder for FrameCodec {
    type Item = Kind;
    type Error = ConnectionError;

    fn decode(&mut self, bytes: &mut BytesMut) -> Result<Option<Kind>, ConnectionError> {
        self.0.push(bytes);
        bytes.clear();
        Ok(self.0.next()?)
    }
}

impl Encoder<OutgoingMessage> for FrameCodec {
    type Error = ConnectionError;

    fn encode(
        &mut self,
        message: OutgoingMessage,
        bytes: &mut BytesMut,
    ) -> Result<(), ConnectionError> {
        if let OutgoingMessage::Message(kind) = message {
            bytes.extend_from_slice(&frame::encode(&kind)?);
        }
        Ok(())
    }
}

/// Size of the read buffer: programs write to terminals in pieces no larger than this.
const BUFFER_SIZE: usize = 16 * 1024;

/// Close reason in the published protocol.
const CLOSE_REASON: &str = "finished";

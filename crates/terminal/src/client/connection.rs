//! Connections that carry messages, over a WebSocket or a plain stream.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use client::ConnectError;
use client::api::Problem;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{Sink as _, SinkExt as _, StreamExt as _};
use http::Request;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, ReadHalf, WriteHalf};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::error::ProtocolError;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, WebSocketConfig};
use tokio_tungstenite::tungstenite::{self, Message};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};
use tty::frame::{self, Decoder};
use tty::message::{self, Kind, MessageError, limits};

/// A byte stream that a connection owns.
type Io = Box<dyn transport::Stream>;

/// A connection that carries messages, to a server or to an engine.
pub struct Connection {
    pub(super) reader: Reader,
    pub(super) writer: Writer,
}

/// Reasons for which a connection could not be made, or broke.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectionError {
    /// The engine was unreachable, or could not dial the tunnel.
    #[error(transparent)]
    Dial(#[from] ConnectError),
    /// The server was unreachable, or its certificate is not trusted.
    #[error("cannot reach {address}")]
    Unreachable {
        /// Its address.
        address: String,
        /// The cause.
        source: io::Error,
    },
    /// The peer uses HTTP, but did not open a WebSocket.
    #[error("{0}")]
    Refused(Problem),
    /// The connection broke.
    #[error("the connection was lost")]
    Network(#[source] io::Error),
    /// The peer violated the WebSocket protocol.
    #[error("the server does not support WebTTY: {0}")]
    Protocol(String),
    /// A received message is invalid, or a message to send is.
    #[error("a message cannot be read")]
    Message(#[from] MessageError),
    /// The connection took too long.
    #[error("no answer in time")]
    TimedOut,
}

impl ConnectionError {
    /// True if the same attempt could succeed later without any change of its input.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Dial(error) => error.is_transient(),
            // 404: a tunnel that has not reconnected yet.
            Self::Refused(problem) => problem.status >= 500 || [404, 429].contains(&problem.status),
            Self::Unreachable { .. } | Self::Network(_) | Self::TimedOut => true,
            Self::Protocol(_) | Self::Message(_) => false,
        }
    }
}

impl Connection {
    /// Opens a WebSocket on a connected stream.
    ///
    /// # Errors
    /// The peer refuses, or does not answer within 10 seconds.
    pub async fn websocket(
        stream: impl transport::Stream + 'static,
        request: Request<()>,
    ) -> Result<Self, ConnectionError> {
        let config = WebSocketConfig::default()
            .max_message_size(Some(limits::MAX_MESSAGE))
            .max_frame_size(Some(limits::MAX_MESSAGE));
        let stream: Io = Box::new(stream);
        let opening = Box::pin(client_async_with_config(request, stream, Some(config)));
        let (socket, _response) = timeout(HANDSHAKE_TIMEOUT, opening)
            .await
            .map_err(|_elapsed| ConnectionError::TimedOut)?
            .map_err(failed)?;
        let (sink, stream) = socket.split();
        Ok(Self {
            reader: Reader::WebSocket(stream),
            writer: Writer::new(WriteTo::WebSocket(sink)),
        })
    }

    /// Uses a stream with plain frames.
    pub fn plain(stream: impl transport::Stream + 'static) -> Self {
        let stream: Io = Box::new(stream);
        let (read, write) = tokio::io::split(stream);
        Self {
            reader: Reader::Plain {
                io: read,
                decoder: Decoder::new(),
                buffer: vec![0; READ_BUFFER].into(),
            },
            writer: Writer::new(WriteTo::Plain(write)),
        }
    }

    /// The next message; `None` when the peer has closed. Cancel safe.
    ///
    /// # Errors
    /// The connection broke, or the peer sent an invalid message. No further message follows.
    pub async fn receive(&mut self) -> Result<Option<Kind>, ConnectionError> {
        self.reader.receive().await
    }

    /// Sends one message, and waits until it is written.
    ///
    /// # Errors
    /// The connection broke, or the peer would reject the message.
    pub async fn send(&mut self, kind: &Kind) -> Result<(), ConnectionError> {
        self.writer.queue(kind)?;
        self.writer.flush().await
    }

    /// Closes the connection as its protocol requires. Unsent messages are lost.
    pub async fn close(mut self) {
        self.writer.close().await;
    }
}

/// The receiving half of a connection.
pub(super) enum Reader {
    WebSocket(SplitStream<WebSocketStream<Io>>),
    Plain {
        io: ReadHalf<Io>,
        decoder: Decoder,
        buffer: Box<[u8]>,
    },
}

impl Reader {
    /// Receives as [`Connection::receive`] does. Cancel safe.
    pub(super) async fn receive(&mut self) -> Result<Option<Kind>, ConnectionError> {
        match self {
            Self::WebSocket(stream) => loop {
                match stream.next().await {
                    Some(Ok(Message::Binary(bytes))) => {
                        return Ok(Some(message::decode(bytes)?));
                    }
                    Some(Ok(Message::Text(_))) => {
                        return Err(ConnectionError::Protocol("a text message".to_owned()));
                    }
                    // The library answers pings and closes.
                    Some(Ok(_)) => {}
                    None
                    | Some(Err(
                        tungstenite::Error::ConnectionClosed | tungstenite::Error::AlreadyClosed,
                    )) => return Ok(None),
                    Some(Err(error)) => return Err(failed(error)),
                }
            },
            Self::Plain {
                io,
                decoder,
                buffer,
            } => loop {
                if let Some(kind) = decoder.next()? {
                    return Ok(Some(kind));
                }
                match io.read(buffer).await.map_err(ConnectionError::Network)? {
                    0 if decoder.is_partial() => {
                        return Err(ConnectionError::Network(
                            io::ErrorKind::UnexpectedEof.into(),
                        ));
                    }
                    0 => return Ok(None),
                    read => decoder.push(buffer.get(..read).unwrap_or_default()),
                }
            },
        }
    }
}

/// The sending half of a connection, with its queue.
pub(super) struct Writer {
    to: WriteTo,
    waiting: VecDeque<Bytes>,
    /// Number of bytes in `waiting`.
    queued: usize,
    is_flushed: bool,
}

enum WriteTo {
    WebSocket(SplitSink<WebSocketStream<Io>, Message>),
    Plain(WriteHalf<Io>),
}

impl Writer {
    fn new(to: WriteTo) -> Self {
        Self {
            to,
            waiting: VecDeque::new(),
            queued: 0,
            is_flushed: true,
        }
    }

    /// Adds one message to the queue.
    pub(super) fn queue(&mut self, kind: &Kind) -> Result<(), ConnectionError> {
        let bytes = match self.to {
            WriteTo::WebSocket(_) => message::encode(kind)?,
            WriteTo::Plain(_) => frame::encode(kind)?,
        };
        self.queued += bytes.len();
        self.waiting.push_back(bytes);
        self.is_flushed = false;
        Ok(())
    }

    /// Number of queued bytes.
    pub(super) fn queued(&self) -> usize {
        self.queued
    }

    /// True if all messages are sent.
    pub(super) fn is_flushed(&self) -> bool {
        self.is_flushed
    }

    /// Sends the queue. Cancel safe: the next call continues a partial write.
    pub(super) async fn flush(&mut self) -> Result<(), ConnectionError> {
        match &mut self.to {
            WriteTo::WebSocket(sink) => {
                while !self.waiting.is_empty() {
                    poll_fn(|cx| Pin::new(&mut *sink).poll_ready(cx))
                        .await
                        .map_err(failed)?;
                    if let Some(bytes) = self.waiting.pop_front() {
                        self.queued = self.queued.saturating_sub(bytes.len());
                        Pin::new(&mut *sink)
                            .start_send(Message::Binary(bytes))
                            .map_err(failed)?;
                    }
                }
                poll_fn(|cx| Pin::new(&mut *sink).poll_flush(cx))
                    .await
                    .map_err(failed)?;
            }
            WriteTo::Plain(io) => {
                while let Some(bytes) = self.waiting.front_mut() {
                    let written = io
                        .write_buf(bytes)
                        .await
                        .map_err(ConnectionError::Network)?;
                    self.queued = self.queued.saturating_sub(written);
                    if written == 0 {
                        return Err(ConnectionError::Network(io::ErrorKind::WriteZero.into()));
                    }
                    if bytes.is_empty() {
                        self.waiting.pop_front();
                    }
                }
                io.flush().await.map_err(ConnectionError::Network)?;
            }
        }
        self.is_flushed = true;
        Ok(())
    }

    /// Closes the connection: with a close frame and the reason of the protocol, or with the end of
    /// the stream.
    pub(super) async fn close(&mut self) {
        let ending = async {
            self.flush().await?;
            match &mut self.to {
                WriteTo::WebSocket(sink) => {
                    let frame = CloseFrame {
                        code: CloseCode::Normal,
                        reason: "finished".into(),
                    };
                    sink.send(Message::Close(Some(frame))).await.map_err(failed)
                }
                WriteTo::Plain(io) => io.shutdown().await.map_err(ConnectionError::Network),
            }
        };
        // A peer that is gone or does not read needs no close.
        drop(timeout(CLOSE_TIMEOUT, ending).await);
    }
}

fn failed(error: tungstenite::Error) -> ConnectionError {
    match error {
        tungstenite::Error::Http(response) => {
            let body = response.body().as_deref().unwrap_or_default();
            ConnectionError::Refused(Problem::parse(response.status().as_u16(), body))
        }
        tungstenite::Error::Io(error) => ConnectionError::Network(error),
        // A broken connection ends without a close frame, or before the response.
        tungstenite::Error::Protocol(
            ProtocolError::ResetWithoutClosingHandshake | ProtocolError::HandshakeIncomplete,
        )
        | tungstenite::Error::ConnectionClosed
        | tungstenite::Error::AlreadyClosed => {
            ConnectionError::Network(io::ErrorKind::UnexpectedEof.into())
        }
        other => ConnectionError::Protocol(other.to_string()),
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let transport = match self.writer.to {
            WriteTo::WebSocket(_) => "websocket",
            WriteTo::Plain(_) => "plain",
        };
        f.debug_tuple("Connection").field(&transport).finish()
    }
}

/// Size of the read buffer: a burst of terminal output.
const READ_BUFFER: usize = 16 * 1024;

/// Time for the response of a WebSocket handshake. An engine forwards it to the agent: two round
/// trips over bad links.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Time to send a close, which is one small write.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

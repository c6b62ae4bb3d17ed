//! Messages over a connection, whichever way it frames them.

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
use tty::message::{self, BadMessage, Kind, limits};

/// A byte stream that a connection owns.
type Io = Box<dyn transport::Stream>;

/// A connection that carries messages, to a server or to an engine.
pub struct Connection {
    pub(super) reader: Reader,
    pub(super) writer: Writer,
}

/// Why a connection was not made, or broke.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectionError {
    /// The engine was not reached, or did not dial.
    #[error(transparent)]
    Dial(#[from] ConnectError),
    /// The server was not reached, or its certificate is not believed.
    #[error("{address} cannot be reached")]
    Unreachable {
        /// Its address.
        address: String,
        /// Why.
        source: io::Error,
    },
    /// What answered speaks HTTP, and did not open a WebSocket.
    #[error("{0}")]
    Refused(Problem),
    /// It broke.
    #[error("the connection broke")]
    Network(#[source] io::Error),
    /// The other side does not keep to WebSocket.
    #[error("the other side does not speak WebTTY: {0}")]
    Protocol(String),
    /// The other side said what cannot be read, or we were to say it.
    #[error("a message cannot be read")]
    Message(#[from] BadMessage),
    /// It took too long.
    #[error("no answer in time")]
    TimedOut,
}

impl ConnectionError {
    /// Whether the same attempt could succeed later without anybody changing its input.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Dial(error) => error.is_transient(),
            // 404: a tunnel that is not back yet.
            Self::Refused(problem) => problem.status >= 500 || [404, 429].contains(&problem.status),
            Self::Unreachable { .. } | Self::Network(_) | Self::TimedOut => true,
            Self::Protocol(_) | Self::Message(_) => false,
        }
    }
}

impl Connection {
    /// Opens a WebSocket on a stream that is connected.
    ///
    /// # Errors
    /// The other side refuses, or does not answer within 10 seconds.
    pub async fn websocket(
        stream: impl transport::Stream + 'static,
        request: Request<()>,
    ) -> Result<Self, ConnectionError> {
        let config = WebSocketConfig::default()
            .max_message_size(Some(limits::MAX_MESSAGE))
            .max_frame_size(Some(limits::MAX_MESSAGE));
        let stream: Io = Box::new(stream);
        let opening = Box::pin(client_async_with_config(request, stream, Some(config)));
        let (socket, _response) = timeout(ANSWER, opening)
            .await
            .map_err(|_elapsed| ConnectionError::TimedOut)?
            .map_err(failed)?;
        let (sink, stream) = socket.split();
        Ok(Self {
            reader: Reader::WebSocket(stream),
            writer: Writer::new(WriteTo::WebSocket(sink)),
        })
    }

    /// Takes a stream that carries plain frames.
    pub fn plain(stream: impl transport::Stream + 'static) -> Self {
        let stream: Io = Box::new(stream);
        let (read, write) = tokio::io::split(stream);
        Self {
            reader: Reader::Plain {
                io: read,
                decoder: Decoder::new(),
                buffer: vec![0; READ].into(),
            },
            writer: Writer::new(WriteTo::Plain(write)),
        }
    }

    /// The next message; `None` when the other side has hung up. Cancel safe.
    ///
    /// # Errors
    /// It broke, or the other side said what is no message. Nothing follows.
    pub async fn receive(&mut self) -> Result<Option<Kind>, ConnectionError> {
        self.reader.receive().await
    }

    /// Sends one message, and waits until it is out.
    ///
    /// # Errors
    /// It broke, or the message is none that the other side would read.
    pub async fn send(&mut self, kind: &Kind) -> Result<(), ConnectionError> {
        self.writer.queue(kind)?;
        self.writer.flush().await
    }

    /// Hangs up, as the protocol wants it; what is not out by then is lost.
    pub async fn close(mut self) {
        self.writer.close().await;
    }
}

/// The half that hears.
pub(super) enum Reader {
    WebSocket(SplitStream<WebSocketStream<Io>>),
    Plain {
        io: ReadHalf<Io>,
        decoder: Decoder,
        buffer: Box<[u8]>,
    },
}

impl Reader {
    /// As [`Connection::receive`]. Cancel safe.
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

/// The half that says: what waits to go out, in its order.
pub(super) struct Writer {
    to: WriteTo,
    waiting: VecDeque<Bytes>,
    /// Bytes in `waiting`.
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

    /// Puts one message behind the others.
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

    /// Bytes that wait.
    pub(super) fn queued(&self) -> usize {
        self.queued
    }

    /// Whether everything is out.
    pub(super) fn is_flushed(&self) -> bool {
        self.is_flushed
    }

    /// Writes all that waits. Cancel safe: what was begun goes on with the next call.
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

    /// Hangs up: a close frame with the reason that the protocol names, or the end of the stream.
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
        // Whoever is gone already, or does not read, needs no good-bye.
        drop(timeout(CLOSE, ending).await);
    }
}

fn failed(error: tungstenite::Error) -> ConnectionError {
    match error {
        tungstenite::Error::Http(response) => {
            let body = response.body().as_deref().unwrap_or_default();
            ConnectionError::Refused(Problem::parse(response.status().as_u16(), body))
        }
        tungstenite::Error::Io(error) => ConnectionError::Network(error),
        // A line that breaks ends without a close, or before the answer.
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

/// One read: what a terminal shows in a burst.
const READ: usize = 16 * 1024;

/// An engine asks the agent, and that one answers: two round trips over bad links.
const ANSWER: Duration = Duration::from_secs(10);

/// A good-bye is one small write.
const CLOSE: Duration = Duration::from_secs(1);

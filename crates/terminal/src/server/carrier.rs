//! Message connections: a WebSocket, or a stream with a length before each message.

use std::collections::VecDeque;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use futures_util::{Sink as _, Stream as _, StreamExt as _};
use tokio::io::{AsyncRead as _, AsyncReadExt as _, AsyncWrite as _, AsyncWriteExt as _, ReadBuf};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout_at};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error as WsError, Message, error::CapacityError};
use tty::frame;
use tty::message::{self, Kind, limits::MAX_MESSAGE};
use tty::session::CLOSE_DEADLINE;

/// A connection that carries messages in both directions, polled by one task.
pub(crate) struct Carrier {
    wire: Wire,
    /// Number of bytes that were queued but not sent yet.
    queued_bytes: usize,
    /// Permit that limits the number of connections.
    _permit: OwnedSemaphorePermit,
}

enum Wire {
    Plain(Box<PlainCarrier>),
    WebSocket(Box<WebSocketStream<Io>>),
}

/// Any byte stream.
pub(crate) type Io = Box<dyn transport::Stream>;

struct PlainCarrier {
    io: Io,
    decoder: frame::Decoder,
    out: VecDeque<Bytes>,
    is_flushed: bool,
}

/// Reasons for which no message follows.
#[derive(Debug)]
pub(crate) enum CarrierError {
    /// The connection is lost, or was closed.
    Lost,
    /// The data is not a valid message; the text is for the peer.
    Invalid(String),
}

impl Carrier {
    /// A connection with messages that are prefixed with their length.
    pub(crate) fn plain(io: Io, permit: OwnedSemaphorePermit) -> Self {
        Self::new(
            Wire::Plain(Box::new(PlainCarrier {
                io,
                decoder: frame::Decoder::new(),
                out: VecDeque::new(),
                is_flushed: true,
            })),
            permit,
        )
    }

    /// A WebSocket after its handshake.
    pub(crate) async fn websocket(io: Io, permit: OwnedSemaphorePermit) -> Self {
        let config = WebSocketConfig::default()
            .read_buffer_size(READ_BUFFER)
            // Messages are sent with the next flush, which follows immediately.
            .write_buffer_size(0)
            .max_write_buffer_size(MAX_QUEUED + 2 * MAX_MESSAGE)
            .max_message_size(Some(MAX_MESSAGE))
            .max_frame_size(Some(MAX_MESSAGE));
        let socket = WebSocketStream::from_raw_socket(io, Role::Server, Some(config)).await;
        Self::new(Wire::WebSocket(Box::new(socket)), permit)
    }

    fn new(wire: Wire, permit: OwnedSemaphorePermit) -> Self {
        Self {
            wire,
            queued_bytes: 0,
            _permit: permit,
        }
    }

    /// True if everything was sent.
    pub(crate) fn is_idle(&self) -> bool {
        self.queued_bytes == 0
    }

    /// Queues a message; [`poll_flush`](Self::poll_flush) sends it.
    pub(crate) fn send(&mut self, kind: &Kind) -> Result<(), CarrierError> {
        let payload = match message::encode(kind) {
            Ok(payload) => payload,
            Err(error) => {
                tracing::error!(%error, message = kind.name(), "a message cannot be sent");
                return Err(CarrierError::Lost);
            }
        };
        self.queued_bytes += payload.len();
        if self.queued_bytes > MAX_QUEUED {
            return Err(CarrierError::Lost);
        }
        match &mut self.wire {
            Wire::Plain(plain) => {
                plain.is_flushed = false;
                plain.out.push_back(frame::wrap(&payload));
                Ok(())
            }
            Wire::WebSocket(socket) => Pin::new(socket.as_mut())
                .start_send(Message::Binary(payload))
                .map_err(|_| CarrierError::Lost),
        }
    }

    /// Sends the queued messages.
    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), CarrierError>> {
        if self.queued_bytes == 0 {
            return Poll::Ready(Ok(()));
        }
        let sent = match &mut self.wire {
            Wire::Plain(plain) => ready!(plain.poll_flush(cx)).map_err(|_| CarrierError::Lost),
            Wire::WebSocket(socket) => {
                ready!(Pin::new(socket.as_mut()).poll_flush(cx)).map_err(|_| CarrierError::Lost)
            }
        };
        self.queued_bytes = 0;
        Poll::Ready(sent)
    }

    /// The next message.
    pub(crate) fn poll_message(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Kind, CarrierError>> {
        match &mut self.wire {
            Wire::Plain(plain) => plain.poll_message(cx),
            Wire::WebSocket(socket) => poll_websocket(socket, cx),
        }
    }

    /// Closes the connection as its transport requires: sends the queue, lets the peer close, then
    /// closes this side. Takes at most [`CLOSE_DEADLINE`]. Returns `true` if the peer closed after
    /// it had received everything.
    pub(crate) async fn finish(mut self) -> bool {
        let deadline = Instant::now() + CLOSE_DEADLINE;
        let finish = async {
            if std::future::poll_fn(|cx| self.poll_flush(cx))
                .await
                .is_err()
            {
                return false;
            }
            match self.wire {
                Wire::Plain(plain) => plain.finish().await,
                Wire::WebSocket(mut socket) => {
                    let frame = CloseFrame {
                        code: CloseCode::Normal,
                        reason: "finished".into(),
                    };
                    let mut is_closed = false;
                    if socket.close(Some(frame)).await.is_ok() {
                        while let Some(Ok(message)) = socket.next().await {
                            is_closed |= message.is_close();
                        }
                    }
                    is_closed
                }
            }
        };
        // A peer that does not close in time is disconnected.
        timeout_at(deadline, finish).await.unwrap_or_default()
    }
}

impl PlainCarrier {
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(first) = self.out.front_mut() {
            let wrote = ready!(Pin::new(&mut self.io).poll_write(cx, first))?;
            if wrote == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            first.advance(wrote);
            if first.is_empty() {
                self.out.pop_front();
            }
        }
        if !self.is_flushed {
            ready!(Pin::new(&mut self.io).poll_flush(cx))?;
            self.is_flushed = true;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<Result<Kind, CarrierError>> {
        let mut space = [MaybeUninit::uninit(); READ_BUFFER];
        loop {
            match self.decoder.next() {
                Ok(Some(kind)) => return Poll::Ready(Ok(kind)),
                Ok(None) => {}
                Err(error) => return Poll::Ready(Err(CarrierError::Invalid(error.to_string()))),
            }
            let mut buffer = ReadBuf::uninit(&mut space);
            match ready!(Pin::new(&mut self.io).poll_read(cx, &mut buffer)) {
                Ok(()) if !buffer.filled().is_empty() => self.decoder.push(buffer.filled()),
                Ok(()) | Err(_) => return Poll::Ready(Err(CarrierError::Lost)),
            }
        }
    }

    async fn finish(mut self) -> bool {
        let mut ignored = vec![0; READ_BUFFER];
        let is_closed = loop {
            match self.io.read(&mut ignored).await {
                Ok(0) => break true,
                Ok(_) => {}
                Err(_) => break false,
            }
        };
        self.io.shutdown().await.unwrap_or_default();
        is_closed
    }
}

fn poll_websocket(
    socket: &mut WebSocketStream<Io>,
    cx: &mut Context<'_>,
) -> Poll<Result<Kind, CarrierError>> {
    loop {
        let read = ready!(Pin::new(&mut *socket).poll_next(cx));
        let bad = |what: &str| Poll::Ready(Err(CarrierError::Invalid(what.to_owned())));
        match read {
            Some(Ok(Message::Binary(payload))) => {
                let read = message::decode(payload);
                return Poll::Ready(read.map_err(|error| CarrierError::Invalid(error.to_string())));
            }
            Some(Ok(Message::Text(_))) => return bad("a text message"),
            // The library answers pings and closes.
            Some(Ok(_)) => {}
            Some(Err(WsError::Capacity(CapacityError::MessageTooLong { .. }))) => {
                return bad("message is too large");
            }
            Some(Err(_)) | None => return Poll::Ready(Err(CarrierError::Lost)),
        }
    }
}

/// Size of the read buffer: a screen of text, and far more than anyone types.
const READ_BUFFER: usize = 16 * 1024;

/// Maximum of queued bytes. Output of the command is sent one message at a time; a client that
/// resumes gets its missing output, which is a quarter of this.
const MAX_QUEUED: usize = 1024 * 1024 + 64 * 1024;

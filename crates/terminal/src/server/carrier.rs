//! What carries messages: a WebSocket, or a stream with a length before each message.

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
    /// Something was given to be sent and is not out yet.
    waiting: usize,
    /// Bounds how many there are.
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

/// Why nothing more comes.
#[derive(Debug)]
pub(crate) enum CarrierError {
    /// The connection is gone, or was closed.
    Lost,
    /// What came is no message; the peer is told.
    Bad(String),
}

impl Carrier {
    /// Messages with their length before them.
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

    /// A WebSocket whose handshake is over.
    pub(crate) async fn websocket(io: Io, permit: OwnedSemaphorePermit) -> Self {
        let config = WebSocketConfig::default()
            .read_buffer_size(READ)
            // What is sent goes out with the next flush, and that comes at once.
            .write_buffer_size(0)
            .max_write_buffer_size(MAX_WAITING + 2 * MAX_MESSAGE)
            .max_message_size(Some(MAX_MESSAGE))
            .max_frame_size(Some(MAX_MESSAGE));
        let socket = WebSocketStream::from_raw_socket(io, Role::Server, Some(config)).await;
        Self::new(Wire::WebSocket(Box::new(socket)), permit)
    }

    fn new(wire: Wire, permit: OwnedSemaphorePermit) -> Self {
        Self {
            wire,
            waiting: 0,
            _permit: permit,
        }
    }

    /// Whether everything that was to be sent is out.
    pub(crate) fn is_idle(&self) -> bool {
        self.waiting == 0
    }

    /// Takes a message to be sent; [`poll_flush`](Self::poll_flush) sends it.
    pub(crate) fn send(&mut self, kind: &Kind) -> Result<(), CarrierError> {
        let payload = match message::encode(kind) {
            Ok(payload) => payload,
            Err(error) => {
                tracing::error!(%error, message = kind.name(), "a message cannot be sent");
                return Err(CarrierError::Lost);
            }
        };
        self.waiting += payload.len();
        if self.waiting > MAX_WAITING {
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

    /// Sends what waits.
    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), CarrierError>> {
        if self.waiting == 0 {
            return Poll::Ready(Ok(()));
        }
        let sent = match &mut self.wire {
            Wire::Plain(plain) => ready!(plain.poll_flush(cx)).map_err(|_| CarrierError::Lost),
            Wire::WebSocket(socket) => {
                ready!(Pin::new(socket.as_mut()).poll_flush(cx)).map_err(|_| CarrierError::Lost)
            }
        };
        self.waiting = 0;
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

    /// Hangs up as the transport has it: what waits is sent, then the peer may hang up, then this
    /// side does. Takes at most [`CLOSE_DEADLINE`]. `true` where the peer hung up after all that.
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
                        while let Some(Ok(said)) = socket.next().await {
                            is_closed |= said.is_close();
                        }
                    }
                    is_closed
                }
            }
        };
        // Who does not hang up in time is hung up on.
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
        let mut space = [MaybeUninit::uninit(); READ];
        loop {
            match self.decoder.next() {
                Ok(Some(kind)) => return Poll::Ready(Ok(kind)),
                Ok(None) => {}
                Err(error) => return Poll::Ready(Err(CarrierError::Bad(error.to_string()))),
            }
            let mut buffer = ReadBuf::uninit(&mut space);
            match ready!(Pin::new(&mut self.io).poll_read(cx, &mut buffer)) {
                Ok(()) if !buffer.filled().is_empty() => self.decoder.push(buffer.filled()),
                Ok(()) | Err(_) => return Poll::Ready(Err(CarrierError::Lost)),
            }
        }
    }

    async fn finish(mut self) -> bool {
        let mut ignored = vec![0; READ];
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
        let bad = |what: &str| Poll::Ready(Err(CarrierError::Bad(what.to_owned())));
        match read {
            Some(Ok(Message::Binary(payload))) => {
                let read = message::decode(payload);
                return Poll::Ready(read.map_err(|error| CarrierError::Bad(error.to_string())));
            }
            Some(Ok(Message::Text(_))) => return bad("a text message"),
            // The library answers pings, and a close.
            Some(Ok(_)) => {}
            Some(Err(WsError::Capacity(CapacityError::MessageTooLong { .. }))) => {
                return bad("message is too large");
            }
            Some(Err(_)) | None => return Poll::Ready(Err(CarrierError::Lost)),
        }
    }
}

/// What is read at once: a screen of text, and far more than anybody types.
const READ: usize = 16 * 1024;

/// Bytes that may wait to be sent. The output of a command is one message at a time; a client that
/// comes back gets what it missed, which is a quarter of this.
const MAX_WAITING: usize = 1024 * 1024 + 64 * 1024;

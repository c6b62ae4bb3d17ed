//! The stream of an HTTP/2 visitor after an extended CONNECT (RFC 8441).

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use h2::{Reason, RecvStream, SendStream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::keep_alive::LastReceived;

/// A stream of bytes in both directions. Dropping it before [`shutdown`] resets it.
///
/// [`shutdown`]: tokio::io::AsyncWriteExt::shutdown
pub(in crate::edge) struct UpgradedStream {
    sender: SendStream<Bytes>,
    receiver: RecvStream,
    /// Bytes that were received and not read.
    unread: Bytes,
    last_received: Arc<LastReceived>,
}

impl UpgradedStream {
    pub(super) fn new(
        sender: SendStream<Bytes>,
        receiver: RecvStream,
        last_received: Arc<LastReceived>,
    ) -> Self {
        Self {
            sender,
            receiver,
            unread: Bytes::new(),
            last_received,
        }
    }

    /// Waits until the connection has sent what was written, or [`FLUSH_LIMIT`]. A reset would
    /// discard it.
    pub(super) async fn flush_before_reset(&mut self) {
        let (sender, sent) = oneshot::channel();
        // The connection drops an empty frame when it has sent the frames before it.
        let marker = Bytes::from_owner(FlushMarker { _sender: sender });
        if self.sender.send_data(marker, false).is_ok() {
            timeout(FLUSH_LIMIT, sent).await.ok();
        }
    }
}

/// Time for a visitor to read the last bytes before a reset: as long as for a lost segment or two.
const FLUSH_LIMIT: Duration = Duration::from_secs(2);

/// Empty data. The receiver is notified when it is dropped.
struct FlushMarker {
    _sender: oneshot::Sender<()>,
}

impl AsRef<[u8]> for FlushMarker {
    fn as_ref(&self) -> &[u8] {
        &[]
    }
}

impl AsyncRead for UpgradedStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        while this.unread.is_empty() {
            match ready!(this.receiver.poll_data(cx)) {
                Some(Ok(data)) => {
                    this.last_received.update();
                    this.unread = data;
                }
                None => return Poll::Ready(Ok(())),
                Some(Err(error)) => {
                    return Poll::Ready(match error.reason() {
                        // The visitor has closed the stream.
                        Some(Reason::NO_ERROR | Reason::CANCEL) => Ok(()),
                        _ => Err(to_io(error)),
                    });
                }
            }
        }
        let length = this.unread.len().min(buf.remaining());
        let (taken, _) = this.unread.split_at(length);
        buf.put_slice(taken);
        this.unread.advance(length);
        // An error means that the stream has ended.
        this.receiver.flow_control().release_capacity(length).ok();
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for UpgradedStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let sender = &mut self.get_mut().sender;
        // One byte of the connection's window is reserved, because a stream that waits for its own
        // window would occupy it. `send_data` reserves the rest.
        sender.reserve_capacity(1);
        while sender.capacity() == 0 {
            match ready!(sender.poll_capacity(cx)) {
                Some(Ok(_)) => {}
                Some(Err(error)) => return Poll::Ready(Err(to_io(error))),
                None => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            }
        }
        let sent = sender.send_data(Bytes::copy_from_slice(bytes), false);
        Poll::Ready(sent.map(|()| bytes.len()).map_err(to_io))
    }

    /// The connection sends the bytes as soon as the visitor's window admits them.
    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let sender = &mut self.get_mut().sender;
        sender.reserve_capacity(0);
        // An error means that the stream has ended, also by an earlier call.
        sender.send_data(Bytes::new(), true).ok();
        Poll::Ready(Ok(()))
    }
}

fn to_io(error: h2::Error) -> io::Error {
    if error.is_io() {
        error
            .into_io()
            .unwrap_or_else(|| io::ErrorKind::BrokenPipe.into())
    } else {
        io::Error::other(error)
    }
}

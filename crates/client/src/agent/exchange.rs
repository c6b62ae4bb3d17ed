//! Streams that carry consecutive HTTP exchanges (extension `exchange/1`).
//!
//! Servers close idle connections, and a request may be on its way at that moment. The engine may
//! send such a request again, whatever its method, if none of its bytes reached the service. Only
//! the agent can know that: it reads no more of the stream once the service has closed, and reports
//! the number of bytes that it has read.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The engine's side of a stream. If the stream carries exchanges, it ends with the service's
/// connection.
pub(super) struct ExchangeStream<'s, S> {
    stream: &'s mut S,
    /// The engine asked for the rules of this module.
    enabled: bool,
    /// Bytes that were read, and may have reached the service.
    delivered: u64,
    /// Bytes were read since the service last sent some.
    awaits_response: bool,
    service_closed: bool,
    end: Option<StreamEnd>,
}

/// The regular ends of a stream that carries exchanges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamEnd {
    /// The engine closed the stream after a complete exchange.
    Complete,
    /// The service closed its connection while it was idle. Bytes of a further request had been
    /// sent by then, and are discarded.
    NotDelivered,
    /// The service closed its connection without a response to the bytes that it received.
    NotAnswered,
}

impl<'s, S> ExchangeStream<'s, S> {
    pub(super) fn new(stream: &'s mut S, enabled: bool) -> Self {
        Self {
            stream,
            enabled,
            delivered: 0,
            awaits_response: false,
            service_closed: false,
            end: None,
        }
    }

    /// The regular end, if there was one.
    pub(super) fn end(&self) -> Option<StreamEnd> {
        self.end
    }

    /// Bytes that may have reached the service. `None` if the engine has not asked for them.
    pub(super) fn delivered(&self) -> Option<u64> {
        self.enabled.then_some(self.delivered)
    }
}

impl<S: transport::Stream> ExchangeStream<'_, S> {
    /// Waits for the engine after the service has closed; always ready with an end of the stream.
    fn poll_late(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.end.is_none() && self.awaits_response {
            self.end = Some(StreamEnd::NotAnswered);
        }
        if self.end.is_none() {
            let mut byte = [0; 1];
            let mut buf = ReadBuf::new(&mut byte);
            let read = ready!(Pin::new(&mut *self.stream).poll_read(cx, &mut buf));
            self.end = Some(if read.is_ok() && !buf.filled().is_empty() {
                StreamEnd::NotDelivered
            } else {
                StreamEnd::Complete
            });
        }
        Poll::Ready(())
    }
}

impl<S: transport::Stream> AsyncRead for ExchangeStream<'_, S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.service_closed {
            return this.poll_late(cx).map(Ok);
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut *this.stream).poll_read(cx, buf))?;
        let read = buf.filled().len() - before;
        if read > 0 {
            this.delivered += read as u64;
            this.awaits_response = true;
        } else if this.enabled && buf.remaining() > 0 {
            // An error ends both directions, so the service's connection closes as well.
            this.end = Some(StreamEnd::Complete);
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: transport::Stream> AsyncWrite for ExchangeStream<'_, S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = ready!(Pin::new(&mut *this.stream).poll_write(cx, buf))?;
        this.awaits_response &= written == 0;
        Poll::Ready(Ok(written))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.service_closed |= this.enabled;
        Pin::new(&mut *this.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    #[tokio::test]
    async fn a_request_after_the_services_close_is_not_delivered() {
        let (mut engine, mut near) = duplex(64);
        let mut stream = ExchangeStream::new(&mut near, true);
        engine.write_all(b"first").await.unwrap();
        let mut first = [0; 5];
        stream.read_exact(&mut first).await.unwrap();
        stream.write_all(b"answer").await.unwrap();
        stream.shutdown().await.unwrap();
        engine.write_all(b"second").await.unwrap();
        assert_eq!(stream.read(&mut first).await.unwrap(), 0);
        assert_eq!(stream.end(), Some(StreamEnd::NotDelivered));
        assert_eq!(stream.delivered(), Some(5));
    }

    #[tokio::test]
    async fn a_close_without_a_response_ends_the_stream() {
        let (mut engine, mut near) = duplex(64);
        let mut stream = ExchangeStream::new(&mut near, true);
        engine.write_all(b"first").await.unwrap();
        let mut first = [0; 5];
        stream.read_exact(&mut first).await.unwrap();
        stream.shutdown().await.unwrap();
        assert_eq!(stream.read(&mut first).await.unwrap(), 0);
        assert_eq!(stream.end(), Some(StreamEnd::NotAnswered));
    }

    #[tokio::test]
    async fn other_streams_may_end_in_one_direction() {
        let (mut engine, mut near) = duplex(64);
        let mut stream = ExchangeStream::new(&mut near, false);
        stream.shutdown().await.unwrap();
        engine.write_all(b"later").await.unwrap();
        engine.shutdown().await.unwrap();
        let mut later = Vec::new();
        stream.read_to_end(&mut later).await.unwrap();
        assert_eq!((later.as_slice(), stream.end()), (&b"later"[..], None));
        assert_eq!(stream.delivered(), None);
    }

    #[tokio::test]
    async fn the_engine_closes_after_a_complete_exchange() {
        let (engine, mut near) = duplex(64);
        let mut stream = ExchangeStream::new(&mut near, true);
        drop(engine);
        assert!(stream.read(&mut [0; 1]).await.is_err());
        assert_eq!(stream.end(), Some(StreamEnd::Complete));
    }
}

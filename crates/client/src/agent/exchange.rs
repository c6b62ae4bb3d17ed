//! Streams that carry consecutive HTTP exchanges (extension `exchange/1`).
//!
//! Servers close idle connections, and a request may be on its way at that moment. The engine may
//! send such a request again, whatever its method, if none of its bytes reached the service. Only
//! the agent can know that: once the service has closed, it sends no more of the stream to the
//! service, and reports the number of bytes that it had read. Only the engine, which parses the
//! responses, can know whether one is missing: the agent waits for the engine's next bytes or its
//! end. A service may also reset its connection after a complete response. The agent then resets
//! the stream, and the engine's end shows whether that was a failure.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::timeout;
use wire::pool::REPORT_REQUEST;

/// Limit of the wait for the engine's end after a reset. The engine reads the reset of a stream in
/// use immediately, and checks its idle streams several times in this period.
const VERDICT_TIMEOUT: Duration = Duration::from_mins(1);

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
    service: ServiceState,
    end: Option<StreamEnd>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ServiceState {
    Open,
    /// The service has closed its connection.
    Closed,
    /// It has closed, and the engine does not accept its TLS session.
    Refused,
}

/// The ends of a stream that carries exchanges, if its connections do not break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamEnd {
    /// The engine closed the stream: after a complete exchange, or with a reset.
    Complete,
    /// The service closed its connection while it was idle. Bytes of a further request had been
    /// sent by then, and are discarded.
    NotDelivered,
    /// The service closed its connection, and bytes of the request that it was receiving followed.
    /// They are discarded.
    PartlyDelivered,
    /// The service closed its connection, and the engine has no response.
    NotAnswered,
}

/// The first byte of a TLS record with an alert (RFC 8446, section 5.1). No request begins with it.
const TLS_ALERT: u8 = 21;

/// The error with which a stream ends both directions after the engine's end. The service's
/// connection closes as well.
#[derive(Debug, thiserror::Error)]
#[error("the engine has closed the stream")]
struct RegularEnd;

/// True if a copy ended with this error because the engine closed the stream after a complete
/// exchange.
pub(super) fn is_regular_end(error: &io::Error) -> bool {
    let inner = error.get_ref();
    inner
        .and_then(|inner| inner.downcast_ref::<RegularEnd>())
        .is_some()
}

/// Waits for the engine's end of a stream that was reset. Returns true if its last exchange is
/// complete. `poll` is ready with true if the engine's direction is complete.
pub(super) async fn is_complete(poll: impl FnMut(&mut Context<'_>) -> Poll<bool>) -> bool {
    // Boxed like all short futures of a stream, so that it uses memory only while it runs.
    let verdict = Box::pin(timeout(VERDICT_TIMEOUT, poll_fn(poll)));
    verdict.await.unwrap_or(false)
}

impl<'s, S> ExchangeStream<'s, S> {
    pub(super) fn new(stream: &'s mut S, enabled: bool) -> Self {
        Self {
            stream,
            enabled,
            delivered: 0,
            awaits_response: false,
            service: ServiceState::Open,
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
        while self.end.is_none() {
            // The request of a report is alone, so a second byte distinguishes all others from it.
            let mut late = [0; 64];
            let mut buf = ReadBuf::new(&mut late);
            // An error is a reset, which may have a reason for the owner.
            ready!(Pin::new(&mut *self.stream).poll_read(cx, &mut buf)).ok();
            self.end = match buf.filled() {
                [] => Some(StreamEnd::Complete),
                [REPORT_REQUEST] => Some(StreamEnd::NotAnswered),
                // The engine refuses the service's TLS session. Its reason follows.
                [TLS_ALERT, ..] => {
                    self.service = ServiceState::Refused;
                    None
                }
                _ if self.service == ServiceState::Refused => None,
                _ if self.awaits_response => Some(StreamEnd::PartlyDelivered),
                _ => Some(StreamEnd::NotDelivered),
            };
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
        if this.service != ServiceState::Open {
            return this.poll_late(cx).map(Ok);
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut *this.stream).poll_read(cx, buf))?;
        let read = buf.filled().len() - before;
        if read > 0 {
            this.delivered += read as u64;
            this.awaits_response = true;
        } else if this.enabled && buf.remaining() > 0 {
            this.end = Some(StreamEnd::Complete);
            let error = io::Error::new(io::ErrorKind::ConnectionAborted, RegularEnd);
            return Poll::Ready(Err(error));
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
        if this.enabled && this.service == ServiceState::Open {
            this.service = ServiceState::Closed;
        }
        Pin::new(&mut *this.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    /// The end of a stream whose service received a request, answered it if `answers`, and closed
    /// before `late` arrived.
    async fn end_of_closed(answers: bool, late: &[u8]) -> (Option<StreamEnd>, Option<u64>) {
        let (mut engine, mut near) = duplex(64);
        let mut stream = ExchangeStream::new(&mut near, true);
        engine.write_all(b"first").await.unwrap();
        let mut first = [0; 5];
        stream.read_exact(&mut first).await.unwrap();
        if answers {
            stream.write_all(b"answer").await.unwrap();
        }
        stream.shutdown().await.unwrap();
        engine.write_all(late).await.unwrap();
        drop(engine);
        assert_eq!(stream.read(&mut first).await.unwrap(), 0);
        (stream.end(), stream.delivered())
    }

    #[tokio::test]
    async fn the_engine_determines_the_end_after_the_services_close() {
        for (answers, late, end) in [
            (true, &b"second"[..], StreamEnd::NotDelivered),
            (false, b"rest of the first", StreamEnd::PartlyDelivered),
            (true, &[REPORT_REQUEST], StreamEnd::NotAnswered),
            (false, &[REPORT_REQUEST], StreamEnd::NotAnswered),
            (true, b"\x15\x03\x03\0\x02\x02\x46", StreamEnd::Complete),
            (true, b"", StreamEnd::Complete),
            (false, b"", StreamEnd::Complete),
        ] {
            let ended = end_of_closed(answers, late).await;
            assert_eq!(ended, (Some(end), Some(5)), "{answers} {late:?}");
        }
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
        let error = stream.read(&mut [0; 1]).await.unwrap_err();
        assert!(is_regular_end(&error));
        assert_eq!(stream.end(), Some(StreamEnd::Complete));
    }
}

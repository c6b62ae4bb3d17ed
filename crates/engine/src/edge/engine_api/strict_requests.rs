//! Strict HTTP/1.1 parsing of requests before the library that serves the Engine API.
//!
//! The library accepts bare line feeds and other ambiguous forms, and rejects requests without a
//! response body. [`StrictRequests`] parses every head with `http1`, as on a tunnel's host, before
//! the library receives a byte of it. An invalid request closes the connection: a problem document
//! follows the responses in flight.

use std::io;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use futures_util::FutureExt as _;
use http_body_util::{BodyExt as _, Collected};
use http1::{
    BodyLength, BodyReader, Limits, Progress, Refusal, Slots, may_complete, parse_request,
};
use jiff::Timestamp;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use transport::Stream;
use types::problem::Problem;

use crate::edge::engine_api::event_stream;
use crate::edge::http1::buffered::BufferedStream;

/// A connection that checks requests before its reader receives them.
pub(in crate::edge) struct StrictRequests<T> {
    /// `None` once the refusal is being written.
    io: Option<BufferedStream<T>>,
    limits: Limits,
    /// Clock for the `Date` header of a rejection.
    now: Box<dyn Fn() -> Timestamp + Send>,
    state: State,
    closing: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

/// The kind of data that the next unread bytes belong to.
enum State {
    /// A head. The first `checked` bytes do not contain its end.
    Head {
        checked: usize,
    },
    /// A checked head. Its last `left` bytes are not passed on yet. The state `then` follows.
    PassHead {
        left: usize,
        then: Box<State>,
    },
    Body(BodyReader),
    /// A request for an upgrade without a response yet, and the waker of the waiting reader.
    Upgrade(Option<Waker>),
    /// The connection uses another protocol.
    Upgraded,
    Refused(Refusal),
    /// The body of a request is malformed. The reader sees a truncated body and responds itself.
    MalformedBody,
}

impl<T: Stream> StrictRequests<T> {
    pub(in crate::edge) fn new(
        io: BufferedStream<T>,
        limits: Limits,
        now: impl Fn() -> Timestamp + Send + 'static,
    ) -> Self {
        Self {
            io: Some(io),
            limits,
            now: Box::new(now),
            state: State::Head { checked: 0 },
            closing: None,
        }
    }

    /// Passes checked bytes to the reader. `None` if more bytes have to be read first.
    fn copy_checked(&mut self, buf: &mut ReadBuf<'_>) -> Option<io::Result<()>> {
        let Some(io) = &mut self.io else {
            return Some(Ok(()));
        };
        loop {
            let unread = io.unread();
            match &mut self.state {
                State::Head { checked } => {
                    if !may_complete(unread, *checked, &self.limits) {
                        *checked = unread.len();
                        return None;
                    }
                    self.state = check(unread, &self.limits);
                    if let State::Head { .. } = self.state {
                        return None;
                    }
                }
                State::PassHead { left, then } => {
                    let count = (*left).min(buf.remaining());
                    buf.put_slice(unread.get(..count).unwrap_or_default());
                    io.consume(count);
                    *left -= count;
                    if *left == 0 {
                        self.state = mem::replace(then, State::MalformedBody);
                    }
                    return Some(Ok(()));
                }
                State::Body(reader) if reader.is_done() => {
                    self.state = State::Head { checked: 0 };
                }
                State::Body(reader) => {
                    let room = unread.len().min(buf.remaining());
                    let offered = unread.get(..room).filter(|bytes| !bytes.is_empty())?;
                    match reader.advance_verbatim(offered) {
                        Ok(step) if step.consumed > 0 => {
                            buf.put_slice(offered.get(..step.consumed).unwrap_or_default());
                            io.consume(step.consumed);
                            return Some(Ok(()));
                        }
                        Ok(_) if room == unread.len() => return None,
                        // A framing line does not fit into the buffer. The reader has more space in
                        // the next call.
                        Ok(_) if buf.filled().is_empty() => self.state = State::MalformedBody,
                        Ok(_) => return Some(Ok(())),
                        Err(_) => self.state = State::MalformedBody,
                    }
                }
                // The response decides how the next bytes are interpreted.
                State::Upgrade(_) => return None,
                State::Upgraded => {
                    let count = unread.len().min(buf.remaining());
                    if count == 0 {
                        return None;
                    }
                    buf.put_slice(unread.get(..count).unwrap_or_default());
                    io.consume(count);
                    return Some(Ok(()));
                }
                // The reader sees the end of the stream.
                State::Refused(_) | State::MalformedBody => return Some(Ok(())),
            }
        }
    }

    /// Detects from the first bytes of a response if the protocol changes.
    fn on_response(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        if let State::Upgrade(waker) = &mut self.state {
            let waker = waker.take();
            self.state = if bytes.starts_with(b"HTTP/1.1 101 ") {
                State::Upgraded
            } else {
                State::Head { checked: 0 }
            };
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}

/// Parses the head at the start of the unread bytes.
fn check(unread: &[u8], limits: &Limits) -> State {
    let mut slots = Slots::new();
    match parse_request(unread, limits, &mut slots) {
        Ok(Progress::Partial) => State::Head {
            checked: unread.len(),
        },
        Ok(Progress::Complete { head, head_len }) => State::PassHead {
            left: head_len,
            then: Box::new(match head.body {
                BodyLength::Empty if head.upgrade.is_some() => State::Upgrade(None),
                body => State::Body(body.into()),
            }),
        },
        Err(refusal) => State::Refused(refusal),
    }
}

/// Writes the response to an invalid request, then closes the connection in a way that lets the
/// client read it.
async fn refuse<T: Stream>(mut io: BufferedStream<T>, refusal: Refusal, now: Timestamp) {
    let problem = Problem::new(refusal.status, refusal.code, refusal.reason);
    let mut response: Response = daemon::problem::Refusal::from(problem).into_response();
    let closes = http::HeaderValue::from_static("close");
    response
        .headers_mut()
        .insert(http::header::CONNECTION, closes);
    let (parts, body): (_, Body) = response.into_parts();
    // The body of a problem document is available immediately.
    let body = body.collect().now_or_never().and_then(Result::ok);
    let body = body.map(Collected::to_bytes).unwrap_or_default();
    let mut answer = event_stream::head(&parts, Some(body.len() as u64), now);
    answer.extend_from_slice(&body);
    let written = async {
        io.io.write_all(&answer).await?;
        io.io.flush().await
    };
    if written.await.is_ok() {
        io.close().await;
    }
}

impl<T: Stream> AsyncRead for StrictRequests<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            if let Some(passed) = this.copy_checked(buf) {
                return Poll::Ready(passed);
            }
            let Some(io) = &mut this.io else {
                return Poll::Ready(Ok(()));
            };
            if let State::Upgrade(waker) = &mut this.state {
                *waker = Some(cx.waker().clone());
                // Bytes that arrive before the response are kept. Only one read is made.
                if !io.unread().is_empty() {
                    return Poll::Pending;
                }
            }
            if !ready!(io.poll_more(cx))? {
                // An incomplete head is dropped.
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl<T: Stream + 'static> AsyncWrite for StrictRequests<T> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.on_response(bytes);
        match &mut this.io {
            Some(io) => Pin::new(io).poll_write(cx, bytes),
            None => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let first = bytes.iter().find(|bytes| !bytes.is_empty());
        this.on_response(first.map_or(&[], |first| first));
        match &mut this.io {
            Some(io) => Pin::new(io).poll_write_vectored(cx, bytes),
            None => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.io.as_ref().is_some_and(AsyncWrite::is_write_vectored)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().io {
            Some(io) => Pin::new(io).poll_flush(cx),
            None => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if let State::Refused(refusal) = this.state
            && let Some(io) = this.io.take()
        {
            this.closing = Some(Box::pin(refuse(io, refusal, (this.now)())));
        }
        if let Some(closing) = &mut this.closing {
            ready!(closing.as_mut().poll(cx));
            this.closing = None;
        }
        match &mut this.io {
            Some(io) => Pin::new(io).poll_shutdown(cx),
            None => Poll::Ready(Ok(())),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, DuplexStream, duplex};

    use super::*;

    fn strict() -> (StrictRequests<DuplexStream>, DuplexStream) {
        let (near, far) = duplex(64 * 1024);
        let limits = Limits {
            head_bytes: 4096,
            ..Limits::default()
        };
        let now = || Timestamp::UNIX_EPOCH;
        (
            StrictRequests::new(BufferedStream::new(near), limits, now),
            far,
        )
    }

    /// The bytes that the reader gets, and the bytes that the client gets.
    async fn outcome(sent: &str) -> (String, String) {
        let (mut near, mut far) = strict();
        far.write_all(sent.as_bytes()).await.unwrap();
        far.shutdown().await.unwrap();
        let mut passed = String::new();
        near.read_to_string(&mut passed).await.unwrap();
        near.shutdown().await.unwrap();
        drop(near);
        let mut answer = String::new();
        far.read_to_string(&mut answer).await.unwrap();
        (passed, answer)
    }

    #[tokio::test]
    async fn valid_requests_pass_unchanged() {
        let sent = "GET /a HTTP/1.1\r\nHost: a\r\n\r\n\
                    POST /b HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nx\ny\
                    POST /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nx\ny\r\n0\r\n\r\n\
                    GET /d HTTP/1.1\r\nHost: a\r\n\r\n";
        assert_eq!(outcome(sent).await, (sent.to_owned(), String::new()));
    }

    #[tokio::test]
    async fn ambiguous_requests_get_a_problem_document() {
        let good = "GET /a HTTP/1.1\r\nHost: a\r\n\r\n";
        let large = format!(
            "GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n",
            "x".repeat(5000)
        );
        for (bad, status) in [
            ("GET / HTTP/1.1\nHost: a\n\n", 400),
            ("GET / HTTP/1.1\r\nHost: a\nX: b\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: a\r\nX : b\r\n\r\n", 400),
            ("CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n", 501),
            (large.as_str(), 431),
        ] {
            let (passed, answer) = outcome(&format!("{good}{bad}")).await;
            assert_eq!(passed, good, "{bad}");
            assert!(
                answer.starts_with(&format!("HTTP/1.1 {status} ")),
                "{bad}: {answer}"
            );
            assert!(answer.contains("application/problem+json"), "{answer}");
            assert!(answer.contains("connection: close"), "{answer}");
            let (_, body) = answer.split_once("\r\n\r\n").unwrap();
            let problem: serde_json::Value = serde_json::from_str(body).unwrap();
            assert_eq!(problem["status"], status);
        }
    }

    #[tokio::test]
    async fn bytes_after_an_upgrade_request_are_checked_until_it_is_accepted() {
        let upgrade =
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
        for (answer, expected) in [
            ("HTTP/1.1 101 Switching Protocols\r\n\r\n", "raw\nbytes"),
            ("HTTP/1.1 400 Bad Request\r\n\r\n", ""),
        ] {
            let (mut near, mut far) = strict();
            far.write_all(upgrade.as_bytes()).await.unwrap();
            far.write_all(b"raw\nbytes").await.unwrap();
            far.shutdown().await.unwrap();
            let mut head = vec![0; upgrade.len()];
            near.read_exact(&mut head).await.unwrap();
            assert_eq!(head, upgrade.as_bytes());
            near.write_all(answer.as_bytes()).await.unwrap();
            let mut rest = String::new();
            near.read_to_string(&mut rest).await.unwrap();
            assert_eq!(rest, expected);
        }
    }

    #[tokio::test]
    async fn malformed_body_is_truncated_without_a_second_response() {
        let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        let (passed, answer) = outcome(&format!("{head}zz\nabc")).await;
        assert_eq!((passed.as_str(), answer.as_str()), (head, ""));
    }
}

//! The request body of an HTTP/2 visitor.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::RecvStream;
use http::HeaderMap;
use http::header::EXPECT;
use http_body::{Body, Frame};

use super::keep_alive::LastReceived;

/// A request body. `h2` compares its length with `Content-Length`.
#[derive(Debug)]
pub(crate) struct VisitorBody {
    stream: RecvStream,
    /// The data has ended, and trailers may follow.
    data_ended: bool,
    /// The visitor may wait for a 100 before it sends the body (RFC 9110, 10.1.1).
    expects_continue: bool,
    last_received: Arc<LastReceived>,
}

impl VisitorBody {
    /// The body of a request with these `headers`.
    pub(super) fn new(
        stream: RecvStream,
        headers: &HeaderMap,
        last_received: Arc<LastReceived>,
    ) -> Self {
        let mut expectations = headers.get_all(EXPECT).iter();
        let expects_continue = !stream.is_end_stream()
            && expectations.any(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"));
        Self {
            stream,
            data_ended: false,
            expects_continue,
            last_received,
        }
    }

    pub(in crate::edge) fn expects_continue(&self) -> bool {
        self.expects_continue
    }
}

impl Body for VisitorBody {
    type Data = Bytes;
    type Error = h2::Error;

    /// Any reset of the stream is an error, also without an error code: the body is incomplete.
    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        let this = self.get_mut();
        if !this.data_ended {
            if let Some(data) = ready!(this.stream.poll_data(cx)?) {
                // The caller holds one frame at a time, so the visitor may send the next one. An
                // error means that the stream has ended.
                this.stream.flow_control().release_capacity(data.len()).ok();
                this.last_received.update();
                return Poll::Ready(Some(Ok(Frame::data(data))));
            }
            this.data_ended = true;
        }
        let trailers = ready!(this.stream.poll_trailers(cx))?;
        this.last_received.update();
        Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.stream.is_end_stream()
    }
}

//! Request bodies for services with HTTP/2.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::sync::mpsc;

use super::visitor_body::VisitorBody;
use crate::edge::headers::identity::ReservedNames;
use crate::edge::headers::trailers;
use crate::edge::response_timeout::Progress;

/// A request body from a visitor with either HTTP version.
#[derive(Debug)]
pub(crate) enum RequestBody {
    /// The request has no body.
    Empty,
    /// Body from an HTTP/2 visitor, and the names that it may not send as trailers.
    Http2(VisitorBody, ReservedNames),
    /// Body from an HTTP/1.1 visitor, read by the visitor's task. It ends with [`BodyFrame::End`].
    /// If the sender is dropped before that, the body is truncated.
    Http1(mpsc::Receiver<BodyFrame>),
}

/// A frame of a body.
#[derive(Debug)]
pub(crate) enum BodyFrame {
    Data(Bytes),
    End,
}

/// Error of a request body.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RequestBodyError {
    /// The visitor has reset the stream, or its HTTP/2 connection has ended. The service's stream is
    /// reset with the same error code.
    #[error("the visitor has reset the stream")]
    Reset(#[source] h2::Error),
    /// The body of an HTTP/1.1 visitor is incomplete.
    #[error("the visitor has disconnected")]
    Incomplete,
}

/// A body that counts its frames and bytes when they are sent.
#[derive(Debug)]
pub(crate) struct CountingBody {
    body: RequestBody,
    counter: ByteCounter,
}

/// Progress of a [`CountingBody`].
#[derive(Clone, Debug, Default)]
pub(crate) struct ByteCounter(Arc<Count>);

#[derive(Debug, Default)]
struct Count {
    frames: AtomicU64,
    bytes: AtomicU64,
    broken: AtomicBool,
}

impl ByteCounter {
    /// Progress without a minimum rate, because gRPC may send messages rarely.
    pub(in crate::edge) fn progress(&self) -> Progress {
        Progress {
            count: self.0.frames.load(Ordering::Relaxed),
            waits_for_visitor: false,
        }
    }

    pub(in crate::edge) fn bytes(&self) -> u64 {
        self.0.bytes.load(Ordering::Relaxed)
    }

    /// True if the visitor aborted the body.
    pub(in crate::edge) fn is_broken(&self) -> bool {
        self.0.broken.load(Ordering::Relaxed)
    }
}

impl CountingBody {
    pub(crate) fn new(body: RequestBody) -> (Self, ByteCounter) {
        let counter = ByteCounter::default();
        let counted = Self {
            body,
            counter: counter.clone(),
        };
        (counted, counter)
    }
}

impl Body for CountingBody {
    type Data = Bytes;
    type Error = RequestBodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RequestBodyError>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        let count = &self.counter.0;
        match &frame {
            Some(Ok(frame)) => {
                let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
                count.frames.fetch_add(1, Ordering::Relaxed);
                count.bytes.fetch_add(bytes, Ordering::Relaxed);
            }
            Some(Err(_)) => count.broken.store(true, Ordering::Relaxed),
            None => {}
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = RequestBodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RequestBodyError>>> {
        match self.get_mut() {
            Self::Empty => Poll::Ready(None),
            Self::Http2(body, reserved) => {
                let frame = ready!(Pin::new(body).poll_frame(cx));
                Poll::Ready(frame.map(|frame| {
                    let frame = frame.map(|frame| trailers::filter(frame, reserved));
                    frame.map_err(RequestBodyError::Reset)
                }))
            }
            Self::Http1(pieces) => Poll::Ready(match ready!(pieces.poll_recv(cx)) {
                Some(BodyFrame::Data(data)) => Some(Ok(Frame::data(data))),
                Some(BodyFrame::End) => None,
                None => Some(Err(RequestBodyError::Incomplete)),
            }),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Http2(body, _) => body.is_end_stream(),
            Self::Http1(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Http2(_, _) | Self::Http1(_) => SizeHint::default(),
        }
    }
}

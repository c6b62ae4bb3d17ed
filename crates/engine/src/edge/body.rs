//! Request bodies on their way to a service that speaks HTTP/2.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::sync::mpsc;

/// A request body, whichever HTTP version it came in.
#[derive(Debug)]
pub(crate) enum UpBody {
    /// There is none.
    Empty,
    /// From an HTTP/2 visitor.
    Http2(Incoming),
    /// From an HTTP/1.1 visitor, whose task reads it. It ends with [`Piece::End`]: a sender that
    /// goes away without it has broken off.
    Http1(mpsc::Receiver<Piece>),
}

/// A piece of a body.
#[derive(Debug)]
pub(crate) enum Piece {
    Data(Bytes),
    End,
}

impl Body for UpBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        match self.get_mut() {
            Self::Empty => Poll::Ready(None),
            Self::Http2(incoming) => {
                let frame = ready!(Pin::new(incoming).poll_frame(cx));
                Poll::Ready(frame.map(|frame| frame.map_err(io::Error::other)))
            }
            Self::Http1(pieces) => Poll::Ready(match ready!(pieces.poll_recv(cx)) {
                Some(Piece::Data(data)) => Some(Ok(Frame::data(data))),
                Some(Piece::End) => None,
                None => Some(Err(io::ErrorKind::UnexpectedEof.into())),
            }),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Http2(incoming) => incoming.is_end_stream(),
            Self::Http1(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Http2(incoming) => incoming.size_hint(),
            Self::Http1(_) => SizeHint::default(),
        }
    }
}

//! Sends a body on a stream of HTTP/2.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::{Reason, SendStream};
use http_body::Body;

/// Sends a body as fast as the peer reads it.
pub(in crate::edge) struct BodySender<B: Body<Data = Bytes>> {
    stream: SendStream<Bytes>,
    body: B,
    /// Data that waits for the window of the stream, and whether it is the end of the body.
    waiting: Option<(Bytes, bool)>,
    /// The error code for an error of the body.
    reset_code: fn(&B::Error) -> Reason,
}

impl<B: Body<Data = Bytes> + Unpin> BodySender<B> {
    pub(in crate::edge) fn new(
        stream: SendStream<Bytes>,
        body: B,
        reset_code: fn(&B::Error) -> Reason,
    ) -> Self {
        Self {
            stream,
            body,
            waiting: None,
            reset_code,
        }
    }

    /// Ready at the end of the body.
    ///
    /// # Errors
    /// The peer has reset the stream, or its connection has ended.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), h2::Error>> {
        loop {
            // The task is also woken by a reset.
            if let Poll::Ready(reason) = self.stream.poll_reset(cx)? {
                return Poll::Ready(Err(reason.into()));
            }
            let waits_for_window = |(data, _): &(Bytes, bool)| !data.is_empty();
            if self.waiting.as_ref().is_some_and(waits_for_window) {
                while self.stream.capacity() == 0 {
                    match ready!(self.stream.poll_capacity(cx)) {
                        Some(Ok(_)) => {}
                        Some(Err(error)) => return Poll::Ready(Err(error)),
                        None => return Poll::Ready(Err(Reason::STREAM_CLOSED.into())),
                    }
                }
            }
            if let Some((data, is_last)) = self.waiting.take() {
                self.stream.send_data(data, is_last)?;
                if is_last {
                    return Poll::Ready(Ok(()));
                }
            }
            let frame = match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => frame,
                Some(Err(error)) => {
                    self.stream.send_reset((self.reset_code)(&error));
                    return Poll::Ready(Ok(()));
                }
                None => return Poll::Ready(self.stream.send_data(Bytes::new(), true)),
            };
            match frame.into_data() {
                Ok(data) => {
                    // One byte of the connection's window is reserved, and only if there is data. A
                    // stream that waits would otherwise occupy the window of other streams.
                    // `send_data` reserves the rest.
                    self.stream.reserve_capacity(usize::from(!data.is_empty()));
                    self.waiting = Some((data, self.body.is_end_stream()));
                }
                Err(frame) => {
                    self.stream.reserve_capacity(0);
                    let trailers = frame.into_trailers().unwrap_or_default();
                    return Poll::Ready(self.stream.send_trailers(trailers));
                }
            }
        }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Future for BodySender<B> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        // The record of the body contains the outcome, also if the peer has reset the stream.
        self.get_mut().poll_send(cx).map(drop)
    }
}

//! Request bodies for services with HTTP/2 that can be sent a second time.
//!
//! A service may end a shared connection while a request is on its way. It reports which requests it
//! has not processed, or the agent reports that nothing of a request reached it. The edge keeps the
//! data of a request on a reused connection for a few seconds, or until the service responds.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;

use super::body::{CountingBody, RequestBodyError};
use crate::edge::replay::ReplayBuffer;

/// One attempt to send a body.
#[derive(Debug)]
pub(in crate::edge) struct HeldBody {
    /// `None` if the request has no body. No lock is held for longer than a poll.
    shared: Option<Arc<Mutex<BodyState>>>,
    attempt: usize,
}

#[derive(Debug)]
struct BodyState {
    body: CountingBody,
    /// The attempt that may read the body.
    attempt: usize,
    /// A part of the body has been read.
    has_started: bool,
    /// The data that was read, if it can be sent again.
    kept: Option<ReplayBuffer>,
    /// The task of the request. It is woken when the kept data has a time limit.
    waiter: Option<Waker>,
    /// Data of the first attempt that the second one has not read.
    repeated: Bytes,
    end: Option<BodyEnd>,
}

#[derive(Debug)]
enum BodyEnd {
    Plain,
    Trailers(HeaderMap),
}

impl HeldBody {
    /// `is_kept`: the data is kept.
    pub(in crate::edge) fn new(body: CountingBody, is_kept: bool) -> Self {
        let shared = (!body.is_end_stream()).then(|| {
            Arc::new(Mutex::new(BodyState {
                body,
                attempt: 0,
                has_started: false,
                kept: is_kept.then(ReplayBuffer::new),
                waiter: None,
                repeated: Bytes::new(),
                end: None,
            }))
        });
        Self { shared, attempt: 0 }
    }

    /// The same attempt, for its sender.
    pub(in crate::edge) fn sender(&self) -> Self {
        Self {
            shared: self.shared.clone(),
            attempt: self.attempt,
        }
    }

    /// The body from its start, for another attempt. `None` if it cannot be sent again. An earlier
    /// attempt reads no more.
    pub(in crate::edge) fn again(&self) -> Option<Self> {
        let mut again = self.sender();
        if let Some(shared) = &self.shared {
            let mut shared = shared.lock();
            let kept = shared.kept.take();
            if shared.has_started {
                shared.repeated = kept?.into_bytes();
            }
            shared.attempt += 1;
            again.attempt = shared.attempt;
        }
        Some(again)
    }

    /// True if the body can be sent again.
    pub(in crate::edge) fn is_repeatable(&self) -> bool {
        let Some(shared) = &self.shared else {
            return true;
        };
        let shared = shared.lock();
        shared.kept.is_some() || !shared.has_started
    }

    /// Frees what was kept.
    pub(in crate::edge) fn release(&self) {
        if let Some(shared) = &self.shared {
            shared.lock().kept = None;
        }
    }

    /// Frees what was kept after the time for it.
    pub(in crate::edge) fn poll_expiry(&self, cx: &mut Context<'_>) {
        if let Some(shared) = &self.shared {
            shared.lock().poll_expiry(cx);
        }
    }
}

impl BodyState {
    fn poll_expiry(&mut self, cx: &mut Context<'_>) {
        let Some(kept) = &mut self.kept else {
            return;
        };
        if kept.poll_expired(cx).is_ready() {
            self.kept = None;
        } else {
            self.waiter = kept.is_small().then(|| cx.waker().clone());
        }
    }

    /// Keeps data that is being sent.
    fn keep(&mut self, data: &[u8]) {
        let Some(kept) = &mut self.kept else {
            return;
        };
        if !kept.record(data) {
            self.kept = None;
        } else if !kept.is_small()
            && let Some(waiter) = self.waiter.take()
        {
            waiter.wake();
        }
    }

    fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RequestBodyError>>> {
        if !self.repeated.is_empty() {
            let repeated = std::mem::take(&mut self.repeated);
            return Poll::Ready(Some(Ok(Frame::data(repeated))));
        }
        match &self.end {
            None => {}
            Some(BodyEnd::Plain) => return Poll::Ready(None),
            Some(BodyEnd::Trailers(trailers)) => {
                return Poll::Ready(Some(Ok(Frame::trailers(trailers.clone()))));
            }
        }
        self.has_started = true;
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        match &frame {
            Some(Ok(frame)) => {
                if let Some(trailers) = frame.trailers_ref() {
                    self.end = Some(BodyEnd::Trailers(trailers.clone()));
                }
                if let Some(data) = frame.data_ref() {
                    self.keep(data);
                }
            }
            // The visitor has aborted the request.
            Some(Err(_)) => self.kept = None,
            None => self.end = Some(BodyEnd::Plain),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.repeated.is_empty()
            && match &self.end {
                Some(end) => matches!(end, BodyEnd::Plain),
                None => self.body.is_end_stream(),
            }
    }
}

impl Body for HeldBody {
    type Data = Bytes;
    type Error = RequestBodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RequestBodyError>>> {
        let Some(shared) = &self.shared else {
            return Poll::Ready(None);
        };
        let mut shared = shared.lock();
        if shared.attempt == self.attempt {
            shared.poll_frame(cx)
        } else {
            Poll::Ready(Some(Err(RequestBodyError::Incomplete)))
        }
    }

    fn is_end_stream(&self) -> bool {
        let Some(shared) = &self.shared else {
            return true;
        };
        let shared = shared.lock();
        shared.attempt == self.attempt && shared.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::time::Duration;

    use tokio::sync::mpsc;
    use tokio::time::{Instant, timeout};

    use super::*;
    use crate::edge::http2::body::{BodyFrame, RequestBody};

    /// The frames until the end; an error is `None`.
    async fn frames(body: &mut HeldBody) -> Option<Vec<Bytes>> {
        let mut all = Vec::new();
        while let Some(frame) = poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await {
            all.push(frame.ok()?.into_data().ok()?);
        }
        Some(all)
    }

    fn body(is_kept: bool) -> (HeldBody, mpsc::Sender<BodyFrame>) {
        let (pieces, received) = mpsc::channel(8);
        let (body, _) = CountingBody::new(RequestBody::Http1(received));
        (HeldBody::new(body, is_kept), pieces)
    }

    #[tokio::test]
    async fn a_kept_body_is_sent_from_its_start() {
        let (held, pieces) = body(true);
        let mut first = held.sender();
        for piece in ["one", "two"] {
            let piece = BodyFrame::Data(Bytes::from(piece));
            pieces.send(piece).await.unwrap();
            poll_fn(|cx| Pin::new(&mut first).poll_frame(cx)).await;
        }
        let mut second = held.again().unwrap();
        pieces
            .send(BodyFrame::Data(Bytes::from("three")))
            .await
            .unwrap();
        pieces.send(BodyFrame::End).await.unwrap();
        assert_eq!(frames(&mut first).await, None, "an earlier attempt");
        let all = frames(&mut second).await.unwrap().concat();
        assert_eq!(all, b"onetwothree");
        assert!(held.again().is_none(), "a third attempt");
    }

    #[tokio::test]
    async fn a_body_that_is_not_kept_is_sent_again_only_before_it_starts() {
        let (held, pieces) = body(false);
        let again = held.again().unwrap();
        pieces
            .send(BodyFrame::Data(Bytes::from("one")))
            .await
            .unwrap();
        let mut first = again.sender();
        poll_fn(|cx| Pin::new(&mut first).poll_frame(cx)).await;
        assert!(!again.is_repeatable() && again.again().is_none());
        let (released, _pieces) = body(true);
        released.release();
        assert!(released.is_repeatable(), "nothing has been read");
    }

    /// The task of the request waits for the response while another one sends the body.
    #[tokio::test(start_paused = true)]
    async fn a_body_is_not_kept_while_its_response_is_late() {
        let (held, pieces) = body(true);
        let mut sender = held.sender();
        let piece = BodyFrame::Data(Bytes::from(vec![0; 100_000]));
        let started = Instant::now();
        let expiry = poll_fn(|cx| {
            held.poll_expiry(cx);
            if held.is_repeatable() {
                Poll::Pending
            } else {
                Poll::Ready(())
            }
        });
        let sending = async {
            pieces.send(piece).await.unwrap();
            poll_fn(|cx| Pin::new(&mut sender).poll_frame(cx)).await
        };
        let both = async { tokio::join!(expiry, sending) };
        timeout(Duration::from_mins(1), both).await.unwrap();
        assert_eq!(started.elapsed(), Duration::from_secs(5));
    }
}

//! One stream of an HTTP/2 visitor: its request, interim responses and the final response.

use std::error::Error;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use h2::ext::Protocol;
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use http::header::{CONTENT_LENGTH, DATE};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body::Body as _;
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimePrinter;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::Visitor;
use super::body_sender::BodySender;
use super::keep_alive::LastReceived;
use super::requests::DownstreamBody;
use super::upgraded_stream::UpgradedStream;
use super::visitor_body::VisitorBody;
use crate::edge::headers::translate;

/// The part of a request after its head.
pub(super) enum RequestContent {
    Body(VisitorBody),
    /// An extended CONNECT (RFC 8441). The stream follows if the response is a success.
    Upgrade(oneshot::Receiver<UpgradedStream>),
}

/// Sends interim responses (RFC 9110, 15.2) on a stream.
pub(in crate::edge) struct InterimSender {
    /// The task of the stream checks for resets between the responses. No lock is held for longer
    /// than a call.
    stream: Mutex<SendResponse<Bytes>>,
}

impl InterimSender {
    /// Sends an interim response. `h2` keeps it in memory until the visitor reads, so the caller
    /// limits number and size. On a stream that has been reset, nothing is sent.
    pub(in crate::edge) fn send(&self, cx: &mut Context<'_>, response: Response<()>) {
        let mut stream = self.stream.lock();
        if stream.poll_reset(cx).is_pending() {
            stream.send_informational(response).ok();
        }
    }

    /// Sends `100 Continue`.
    pub(in crate::edge) fn send_continue(&self, cx: &mut Context<'_>) {
        let mut response = Response::new(());
        *response.status_mut() = StatusCode::CONTINUE;
        self.send(cx, response);
    }

    /// Ready when the visitor has reset the stream.
    fn poll_reset(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.stream.lock().poll_reset(cx).map(drop)
    }
}

/// An extended CONNECT whose response has not been sent.
struct PendingUpgrade {
    receiver: RecvStream,
    upgraded: oneshot::Sender<UpgradedStream>,
    last_received: Arc<LastReceived>,
}

/// Serves the request of one stream. Dropping the future resets the stream.
pub(super) async fn serve(
    visitor: Arc<Visitor>,
    request: Request<RecvStream>,
    responses: SendResponse<Bytes>,
    last_received: Arc<LastReceived>,
) {
    let (head, receiver) = request.into_parts();
    let (content, upgrade) = if head.extensions.get::<Protocol>().is_some() {
        let (sender, upgraded) = oneshot::channel();
        let pending = PendingUpgrade {
            receiver,
            upgraded: sender,
            last_received,
        };
        (RequestContent::Upgrade(upgraded), Some(pending))
    } else {
        let body = VisitorBody::new(receiver, &head.headers, last_received);
        (RequestContent::Body(body), None)
    };
    let request = Request::from_parts(head, content);
    let interim = InterimSender {
        stream: Mutex::new(responses),
    };
    let answered = {
        let mut answering = pin!(visitor.answer(request, &interim));
        poll_fn(|cx| match answering.as_mut().poll(cx) {
            Poll::Ready(answered) => Poll::Ready(Some(answered)),
            Poll::Pending => interim.poll_reset(cx).map(|()| None),
        })
        .await
    };
    let mut stream = interim.stream.into_inner();
    match answered {
        Some(Ok(response)) => respond(&mut stream, response, upgrade).await,
        Some(Err(error)) => stream.send_reset(reset_code(&error)),
        // The visitor has reset the stream.
        None => {}
    }
}

/// Sends the final response.
async fn respond(
    stream: &mut SendResponse<Bytes>,
    response: Response<DownstreamBody>,
    upgrade: Option<PendingUpgrade>,
) {
    let (mut head, body) = response.into_parts();
    translate::remove_connection_fields(&mut head.headers);
    add_date(&mut head.headers);
    let upgrade = upgrade.filter(|_| head.status.is_success());
    // The response of the edge itself may be a success. Its body would be data of the protocol.
    let is_refused = upgrade
        .as_ref()
        .is_some_and(|upgrade| upgrade.upgraded.is_closed());
    let is_whole = is_refused || (upgrade.is_none() && body.is_end_stream());
    if !is_whole
        && upgrade.is_none()
        && let Some(length) = body.size_hint().exact()
    {
        let length = HeaderValue::from(length);
        head.headers.entry(CONTENT_LENGTH).or_insert(length);
    }
    let response = Response::from_parts(head, ());
    let Ok(sender) = stream.send_response(response, is_whole) else {
        return stream.send_reset(Reason::INTERNAL_ERROR);
    };
    match upgrade {
        _ if is_whole => {}
        Some(upgrade) => {
            let stream = UpgradedStream::new(sender, upgrade.receiver, upgrade.last_received);
            // Without a receiver the stream is reset.
            upgrade.upgraded.send(stream).ok();
        }
        None => BodySender::new(sender, body, reset_code).await,
    }
}

/// Adds the time of the response, if the service has not (RFC 9110, 6.6.1). It is left out for a
/// year that the format cannot express.
fn add_date(headers: &mut HeaderMap) {
    if !headers.contains_key(DATE)
        && let Ok(date) = DateTimePrinter::new().timestamp_to_rfc9110_string(&Timestamp::now())
        && let Ok(date) = HeaderValue::try_from(date)
    {
        headers.insert(DATE, date);
    }
}

/// The error code of a reset: that of a service with HTTP/2 if it reset the request.
fn reset_code(error: &io::Error) -> Reason {
    let mut cause = error.get_ref().map(|cause| cause as &(dyn Error + 'static));
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<h2::Error>() {
            return error.reason().unwrap_or(Reason::INTERNAL_ERROR);
        }
        cause = error.source();
    }
    Reason::INTERNAL_ERROR
}

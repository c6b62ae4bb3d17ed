//! Decoder from the bytes of a stream to exchanges. Without IO and without a clock.
//!
//! A stream is HTTP/1.1 or HTTP/2, after its TLS was removed. A decoding error is reported once, if
//! there is an exchange to report it for. After that the decoder ignores further bytes.

mod flow;
mod grpc;
mod http1;
mod http2;
mod sse;
mod websocket;

use jiff::Timestamp;

use self::{flow::Flow, http1::Http1, http2::Http2};
use crate::exchange::{Fields, Request};
use crate::store::{Origin, Store};

/// Decoder of one stream. Bytes of both directions may be split in any way, but a request must be
/// passed before its response.
pub(crate) struct Decoder {
    origin: Origin,
    state: State,
}

enum State {
    /// Too few bytes to detect the protocol.
    Detecting {
        visitor_sent: Vec<u8>,
        service_sent: Vec<u8>,
    },
    Http1(Box<Http1>),
    Http2(Box<Http2>),
    /// The stream has ended, or cannot be decoded further.
    Ended,
}

/// Reason why a stream cannot be decoded.
pub(crate) type DecodeError = &'static str;

impl Decoder {
    pub(crate) fn new(origin: Origin) -> Self {
        Self {
            origin,
            state: State::Detecting {
                visitor_sent: Vec::new(),
                service_sent: Vec::new(),
            },
        }
    }

    /// The following bytes were inside TLS, with a service of this server name.
    pub(crate) fn opened(&mut self, name: &str) {
        self.origin.tls = Some(name.into());
    }

    pub(crate) fn visitor_sent(&mut self, bytes: &[u8], store: &mut Store, now: Timestamp) {
        let result = match &mut self.state {
            State::Detecting { visitor_sent, .. } => {
                visitor_sent.extend_from_slice(bytes);
                return self.detect_protocol(store, now);
            }
            State::Http1(http1) => http1.visitor_sent(bytes, &self.origin, store, now),
            State::Http2(http2) => http2.visitor_sent(bytes, &self.origin, store, now),
            State::Ended => return,
        };
        self.handle_result(result, store, now);
    }

    pub(crate) fn service_sent(&mut self, bytes: &[u8], store: &mut Store, now: Timestamp) {
        let result = match &mut self.state {
            // An HTTP/2 service may send first.
            State::Detecting { service_sent, .. } => {
                if service_sent.len() + bytes.len() > MAX_EARLY_BYTES {
                    self.state = State::Ended;
                } else {
                    service_sent.extend_from_slice(bytes);
                }
                return;
            }
            State::Http1(http1) => http1.service_sent(bytes, store, now),
            State::Http2(http2) => http2.service_sent(bytes, store, now),
            State::Ended => return,
        };
        self.handle_result(result, store, now);
    }

    /// The stream has ended; `error` is the reason if it did not end normally.
    pub(crate) fn ended(&mut self, error: Option<&str>, store: &mut Store, now: Timestamp) {
        match std::mem::replace(&mut self.state, State::Ended) {
            State::Http1(mut http1) => http1.ended(error, store, now),
            State::Http2(mut http2) => {
                http2.ended(error.unwrap_or(http2::CONNECTION_ENDED), store, now);
            }
            State::Detecting { .. } | State::Ended => {}
        }
    }

    /// True if the stream has a request, or will never show one.
    pub(crate) fn has_request(&self) -> bool {
        match &self.state {
            State::Detecting { .. } => false,
            State::Http1(http1) => http1.has_request(),
            State::Http2(http2) => http2.has_request(),
            State::Ended => true,
        }
    }

    /// The stream ends because its service was not reached. A stream without a request counts as
    /// one, because a visitor has failed.
    pub(crate) fn unreachable(&mut self, error: &str, store: &mut Store, now: Timestamp) {
        let is_recorded = match &self.state {
            State::Http1(http1) => http1.has_request(),
            State::Http2(http2) => http2.has_request(),
            State::Detecting { .. } | State::Ended => false,
        };
        if is_recorded {
            return self.ended(Some(error), store, now);
        }
        self.state = State::Ended;
        let mut flow = Flow::begin(&self.origin, Request::unknown(), store, now);
        flow.finished(Fields::default(), Some(error), store, now);
    }

    fn detect_protocol(&mut self, store: &mut Store, now: Timestamp) {
        let State::Detecting {
            visitor_sent,
            service_sent,
        } = &mut self.state
        else {
            return;
        };
        let compared = visitor_sent.len().min(http2::PREFACE.len());
        let may_be_http2 = visitor_sent.get(..compared) == http2::PREFACE.get(..compared);
        if may_be_http2 && compared < http2::PREFACE.len() {
            return;
        }
        let visitor_sent = std::mem::take(visitor_sent);
        let service_sent = std::mem::take(service_sent);
        self.state = if may_be_http2 {
            State::Http2(Box::default())
        } else if !service_sent.is_empty() {
            // A server that sends before a request does not use HTTP/1.1.
            State::Ended
        } else {
            State::Http1(Box::default())
        };
        let unparsed = visitor_sent.get(if may_be_http2 { compared } else { 0 }..);
        self.service_sent(&service_sent, store, now);
        self.visitor_sent(unparsed.unwrap_or_default(), store, now);
    }

    fn handle_result(
        &mut self,
        result: Result<(), DecodeError>,
        store: &mut Store,
        now: Timestamp,
    ) {
        let Err(lost) = result else {
            return;
        };
        let message = format!("the rest of this connection cannot be parsed: {lost}");
        match std::mem::replace(&mut self.state, State::Ended) {
            State::Http1(mut http1) => http1.decode_failed(&message, store, now),
            State::Http2(mut http2) => http2.ended(&message, store, now),
            State::Detecting { .. } | State::Ended => {}
        }
    }
}

/// Limit of bytes that a service may send before the visitor: settings, and little more.
const MAX_EARLY_BYTES: usize = 16 * 1024;

#[cfg(test)]
mod tests;

//! One exchange while its bytes pass, for all versions of HTTP.

use jiff::Timestamp;

use super::{grpc::Frames, sse::Events};
use crate::{
    exchange::{Fields, MessageSender, Request, Response},
    store::{Origin, Store},
};

/// An exchange in progress. Without an id, it is decoded but not recorded.
#[derive(Debug, Default)]
pub(super) struct Flow {
    id: Option<u64>,
    grpc: bool,
    requests: Frames,
    responses: Frames,
    events: Option<Events>,
}

impl Flow {
    pub(super) fn begin(
        origin: &Origin,
        request: Request,
        store: &mut Store,
        now: Timestamp,
    ) -> Self {
        let kind = request.fields.content_type();
        Self {
            // In the text form, each message is base64.
            grpc: kind.starts_with("application/grpc")
                && !kind.starts_with("application/grpc-web-text"),
            id: store.begin(origin, request, now),
            ..Self::default()
        }
    }

    pub(super) fn id(&self) -> Option<u64> {
        self.id
    }

    pub(super) fn request_body(&mut self, bytes: &[u8], store: &mut Store, now: Timestamp) {
        let Some(id) = self.id else { return };
        store.request_body(id, bytes);
        if self.grpc {
            self.requests.feed(bytes, |frame| {
                store.message(id, frame.into_message(MessageSender::Visitor, now));
            });
        }
    }

    pub(super) fn request_finished(&mut self, trailers: Fields, store: &mut Store, now: Timestamp) {
        if let Some(id) = self.id {
            store.request_finished(id, trailers, now);
        }
    }

    pub(super) fn response_started(
        &mut self,
        response: Response,
        store: &mut Store,
        now: Timestamp,
    ) {
        let Some(id) = self.id else { return };
        let plain = response
            .fields
            .get("content-encoding")
            .is_none_or(|coding| coding.eq_ignore_ascii_case("identity"));
        if response.status == 200 && plain && response.fields.content_type() == EVENT_STREAM {
            self.events = Some(Events::default());
        }
        store.response_started(id, response, now);
    }

    pub(super) fn response_body(&mut self, bytes: &[u8], store: &mut Store, now: Timestamp) {
        let Some(id) = self.id else { return };
        store.response_body(id, bytes);
        if let Some(events) = &mut self.events {
            events.feed(bytes, |event| store.message(id, event.into_message(now)));
        } else if self.grpc {
            self.responses.feed(bytes, |frame| {
                store.message(id, frame.into_message(MessageSender::Service, now));
            });
        }
    }

    /// Counts bytes that are only recorded as messages.
    pub(super) fn count(&mut self, from: MessageSender, bytes: &[u8], store: &mut Store) {
        if let Some(id) = self.id {
            store.count(id, from, bytes.len() as u64);
        }
    }

    /// Ends the exchange; it is complete if there is no `error`.
    pub(super) fn finished(
        &mut self,
        trailers: Fields,
        error: Option<&str>,
        store: &mut Store,
        now: Timestamp,
    ) {
        if let Some(id) = self.id {
            store.finished(id, trailers, error, now);
        }
    }
}

const EVENT_STREAM: &str = "text/event-stream";

//! Decodes HTTP/1.1: consecutive requests, and the protocol after an upgrade.

use std::collections::VecDeque;

use http1::{
    BodyReader, BodyState, Limits, MAX_FIELDS, Progress, Slots, parse_request, parse_response,
    parse_trailers,
};
use jiff::Timestamp;

use super::{DecodeError, flow::Flow, websocket::WebSocket};
use crate::{
    exchange::{Fields, MessageSender, Request, Response, Version},
    limits::{HEAD_BYTES, PENDING_REQUESTS},
    store::{self, Origin, Store},
};

/// Both directions of a connection.
#[derive(Default)]
pub(super) struct Http1 {
    requests: Direction,
    responses: Direction,
    /// Unanswered requests, oldest first; the last one may still be incomplete.
    pending_requests: VecDeque<PendingRequest>,
    /// A request that was answered before it was complete.
    answered_early: Option<Flow>,
    upgraded: Option<UpgradedProtocol>,
    slots: Slots,
}

/// A request in progress.
struct PendingRequest {
    flow: Flow,
    /// True if its method is HEAD.
    is_head: bool,
    /// Its body is still incomplete.
    body_incomplete: bool,
    answered: bool,
}

/// The protocol after a response with status 101.
enum UpgradedProtocol {
    WebSocket(Box<WebSocket>, Flow),
    /// Counted but not decoded.
    Other(Flow),
}

/// Parser state of one direction of the connection.
#[derive(Default)]
struct Direction {
    /// Incomplete bytes of a head or a trailer section.
    buffered: Vec<u8>,
    /// Number of buffered bytes already searched for the end of a line.
    scanned: usize,
    /// `None` between messages.
    body: Option<BodyReader>,
}

impl Direction {
    /// The buffered bytes followed by the new ones.
    fn with_buffered<'b>(&mut self, bytes: &'b [u8]) -> std::borrow::Cow<'b, [u8]> {
        if self.buffered.is_empty() {
            return bytes.into();
        }
        let mut all = std::mem::take(&mut self.buffered);
        all.extend_from_slice(bytes);
        all.into()
    }

    /// Buffers the rest for the next call.
    fn buffer(&mut self, rest: &[u8], scanned: usize) {
        self.buffered = rest.to_vec();
        self.scanned = scanned;
    }
}

impl Http1 {
    pub(super) fn visitor_sent(
        &mut self,
        bytes: &[u8],
        origin: &Origin,
        store: &mut Store,
        now: Timestamp,
    ) -> Result<(), DecodeError> {
        if let Some(upgraded) = &mut self.upgraded {
            return upgraded.visitor_sent(bytes, store, now);
        }
        let all = self.requests.with_buffered(bytes);
        let mut rest: &[u8] = &all;
        while !rest.is_empty() {
            let before = rest.len();
            rest = match self.requests.body.take() {
                None => self.request_head(rest, origin, store, now)?,
                Some(body) => self.request_body(body, rest, store, now)?,
            };
            if rest.len() == before {
                break;
            }
        }
        let scanned = if self.requests.body.is_none() {
            rest.len()
        } else {
            0
        };
        self.requests.buffer(rest, scanned);
        Ok(())
    }

    pub(super) fn service_sent(
        &mut self,
        bytes: &[u8],
        store: &mut Store,
        now: Timestamp,
    ) -> Result<(), DecodeError> {
        if let Some(upgraded) = &mut self.upgraded {
            return upgraded.service_sent(bytes, store, now);
        }
        let all = self.responses.with_buffered(bytes);
        let mut rest: &[u8] = &all;
        while !rest.is_empty() {
            let before = rest.len();
            rest = match self.responses.body.take() {
                None => self.response_head(rest, store, now)?,
                Some(body) => self.response_body(body, rest, store, now)?,
            };
            if let Some(upgraded) = &mut self.upgraded {
                return upgraded.service_sent(rest, store, now);
            }
            if rest.len() == before {
                break;
            }
        }
        let scanned = if self.responses.body.is_none() {
            rest.len()
        } else {
            0
        };
        self.responses.buffer(rest, scanned);
        Ok(())
    }

    /// True if a request waits for its response.
    pub(super) fn has_request(&self) -> bool {
        !self.pending_requests.is_empty()
    }

    pub(super) fn ended(&mut self, error: Option<&str>, store: &mut Store, now: Timestamp) {
        if let Some(upgraded) = &mut self.upgraded {
            let (UpgradedProtocol::WebSocket(_, flow) | UpgradedProtocol::Other(flow)) = upgraded;
            return flow.finished(Fields::default(), error, store, now);
        }
        let until_close = matches!(self.responses.body, Some(BodyReader::UntilClose));
        for (at, mut pending) in std::mem::take(&mut self.pending_requests)
            .into_iter()
            .enumerate()
        {
            let complete = at == 0 && until_close && error.is_none();
            let broke = if pending.answered {
                RESPONSE_INCOMPLETE
            } else {
                NO_RESPONSE
            };
            let error = (!complete).then(|| error.unwrap_or(broke));
            pending.flow.finished(Fields::default(), error, store, now);
        }
    }

    /// As [`ended`](Self::ended), for bytes that cannot be decoded.
    pub(super) fn decode_failed(&mut self, message: &str, store: &mut Store, now: Timestamp) {
        self.ended(Some(message), store, now);
    }

    fn request_head<'b>(
        &mut self,
        rest: &'b [u8],
        origin: &Origin,
        store: &mut Store,
        now: Timestamp,
    ) -> Result<&'b [u8], DecodeError> {
        let scanned = std::mem::take(&mut self.requests.scanned);
        let Some(lines) = complete_lines(rest, scanned) else {
            return Ok(rest);
        };
        let head = parse_request(lines, &LIMITS, &mut self.slots).map_err(|bad| bad.reason)?;
        let Progress::Complete { head, head_len } = head else {
            return Ok(rest);
        };
        if self.pending_requests.len() >= PENDING_REQUESTS {
            return Err("too many requests are waiting for responses");
        }
        let authority = match head.authority.port() {
            Some(port) => format!("{}:{port}", head.authority.host()),
            None => head.authority.host().to_owned(),
        };
        let request = Request {
            method: head.method.as_str().to_owned(),
            path: path_and_query(&head.target),
            host: authority,
            version: version(head.version),
            fields: fields(&head.fields),
        };
        let is_head = request.method == "HEAD";
        let body: BodyReader = head.body.into();
        let mut flow = Flow::begin(origin, request, store, now);
        let body_incomplete = !body.is_done();
        if body_incomplete {
            self.requests.body = Some(body);
        } else {
            flow.request_finished(Fields::default(), store, now);
        }
        self.pending_requests.push_back(PendingRequest {
            flow,
            is_head,
            body_incomplete,
            answered: false,
        });
        Ok(rest.get(head_len..).unwrap_or_default())
    }

    fn request_body<'b>(
        &mut self,
        mut body: BodyReader,
        rest: &'b [u8],
        store: &mut Store,
        now: Timestamp,
    ) -> Result<&'b [u8], DecodeError> {
        let step = body.advance(rest).map_err(|_| "a malformed request body")?;
        let data = rest.get(step.data).unwrap_or_default();
        // The last pending request, or none if it was already answered.
        let mut pending = self
            .pending_requests
            .back_mut()
            .filter(|pending| pending.body_incomplete);
        let flow = pending.as_mut().map(|pending| &mut pending.flow);
        if let Some(flow) = flow.or(self.answered_early.as_mut()) {
            flow.request_body(data, store, now);
            let trailers = match step.state {
                BodyState::More => None,
                BodyState::Done => Some(Fields::default()),
                BodyState::Trailers(section) => {
                    let section = rest.get(section).unwrap_or_default();
                    Some(trailers(section, &mut self.slots))
                }
            };
            match trailers {
                None => self.requests.body = Some(body),
                Some(trailers) => {
                    flow.request_finished(trailers, store, now);
                    match pending {
                        Some(pending) => pending.body_incomplete = false,
                        None => self.answered_early = None,
                    }
                }
            }
        }
        Ok(rest.get(step.consumed..).unwrap_or_default())
    }

    fn response_head<'b>(
        &mut self,
        rest: &'b [u8],
        store: &mut Store,
        now: Timestamp,
    ) -> Result<&'b [u8], DecodeError> {
        let scanned = std::mem::take(&mut self.responses.scanned);
        let Some(lines) = complete_lines(rest, scanned) else {
            return Ok(rest);
        };
        let Some(pending) = self.pending_requests.front_mut() else {
            return Err("a response without a request");
        };
        let head = parse_response(lines, &LIMITS, pending.is_head, &mut self.slots);
        let Progress::Complete { head, head_len } = head.map_err(|bad| bad.reason)? else {
            return Ok(rest);
        };
        let after = rest.get(head_len..).unwrap_or_default();
        if head.status < 200 && head.status != 101 {
            return Ok(after);
        }
        let response = Response {
            status: head.status,
            reason: String::from_utf8_lossy(&head.reason).into_owned(),
            version: version(head.version),
            fields: fields(&head.fields),
        };
        pending.answered = true;
        if head.status == 101 {
            let websocket = store::is_websocket(&response.fields)
                .then(|| WebSocket::new(pending.flow.id(), &response.fields));
            pending.flow.response_started(response, store, now);
            let flow = std::mem::take(&mut pending.flow);
            for mut overtaken in self.pending_requests.drain(..).skip(1) {
                let error = Some(UPGRADED_BEFORE_RESPONSE);
                overtaken
                    .flow
                    .finished(Fields::default(), error, store, now);
            }
            self.upgraded = Some(match websocket {
                Some(websocket) => UpgradedProtocol::WebSocket(Box::new(websocket), flow),
                None => UpgradedProtocol::Other(flow),
            });
            return Ok(after);
        }
        pending.flow.response_started(response, store, now);
        let body: BodyReader = head.body.into();
        if body.is_done() {
            self.response_finished(Fields::default(), store, now);
        } else {
            self.responses.body = Some(body);
        }
        Ok(after)
    }

    fn response_body<'b>(
        &mut self,
        mut body: BodyReader,
        rest: &'b [u8],
        store: &mut Store,
        now: Timestamp,
    ) -> Result<&'b [u8], DecodeError> {
        let step = body
            .advance(rest)
            .map_err(|_| "a malformed response body")?;
        let data = rest.get(step.data).unwrap_or_default();
        if let Some(pending) = self.pending_requests.front_mut() {
            pending.flow.response_body(data, store, now);
        }
        match step.state {
            BodyState::More => self.responses.body = Some(body),
            BodyState::Done => self.response_finished(Fields::default(), store, now),
            BodyState::Trailers(section) => {
                let section = rest.get(section).unwrap_or_default();
                let trailers = trailers(section, &mut self.slots);
                self.response_finished(trailers, store, now);
            }
        }
        Ok(rest.get(step.consumed..).unwrap_or_default())
    }

    fn response_finished(&mut self, trailers: Fields, store: &mut Store, now: Timestamp) {
        let Some(mut pending) = self.pending_requests.pop_front() else {
            return;
        };
        pending.flow.finished(trailers, None, store, now);
        if pending.body_incomplete {
            self.answered_early = Some(pending.flow);
        }
    }
}

impl UpgradedProtocol {
    fn visitor_sent(
        &mut self,
        bytes: &[u8],
        store: &mut Store,
        now: Timestamp,
    ) -> Result<(), DecodeError> {
        match self {
            Self::WebSocket(websocket, flow) => {
                flow.count(MessageSender::Visitor, bytes, store);
                websocket.visitor_sent(bytes, store, now)
            }
            Self::Other(flow) => {
                flow.request_body(bytes, store, now);
                Ok(())
            }
        }
    }

    fn service_sent(
        &mut self,
        bytes: &[u8],
        store: &mut Store,
        now: Timestamp,
    ) -> Result<(), DecodeError> {
        match self {
            Self::WebSocket(websocket, flow) => {
                flow.count(MessageSender::Service, bytes, store);
                websocket.service_sent(bytes, store, now)
            }
            Self::Other(flow) => {
                flow.response_body(bytes, store, now);
                Ok(())
            }
        }
    }
}

/// The complete lines of a head; `None` if no line ends after the first `scanned` bytes. Incomplete
/// lines are not parsed, so that the result does not depend on how the stream is split into reads.
fn complete_lines(head: &[u8], scanned: usize) -> Option<&[u8]> {
    if head.len() >= LIMITS.head_bytes {
        return Some(head);
    }
    let last = head.iter().rposition(|byte| *byte == b'\n')?;
    (last >= scanned).then(|| head.get(..=last)).flatten()
}

fn version(version: http1::Version) -> Version {
    match version {
        http1::Version::Http10 => Version::Http10,
        http1::Version::Http11 => Version::Http11,
    }
}

fn path_and_query(read: &http1::RequestTarget<'_>) -> String {
    match read.query() {
        Some(query) => format!("{}?{query}", read.path()),
        None => read.path().to_owned(),
    }
}

fn fields(parsed: &http1::Fields<'_>) -> Fields {
    let mut fields = Fields::default();
    for field in parsed.iter() {
        fields.push(&field.name, &field.value);
    }
    fields
}

/// Parses a trailer section. The body reader has already validated it.
fn trailers(section: &[u8], slots: &mut Slots) -> Fields {
    parse_trailers(section, slots).map_or_else(|_| Fields::default(), |read| fields(&read))
}

/// Larger limits than those of the edge: the inspector records whatever the user's service accepts.
const LIMITS: Limits = Limits {
    head_bytes: HEAD_BYTES,
    target_bytes: HEAD_BYTES,
    headers: MAX_FIELDS,
};

const RESPONSE_INCOMPLETE: &str = "the connection ended before the response was complete";
const UPGRADED_BEFORE_RESPONSE: &str =
    "the connection was upgraded before this request was answered";
const NO_RESPONSE: &str = "the connection ended without a response";

//! The records, within their limits. Without a clock: the time is an argument.

use std::{
    collections::{VecDeque, vec_deque},
    mem,
    net::IpAddr,
    sync::{Arc, OnceLock},
    time::Duration,
};

use client::Target;
use jiff::Timestamp;

use crate::{
    Hint, Kind, Summary, Update,
    exchange::{Body, Exchange, Fields, Message, MessageKind, MessageSender, Request, Response},
    limits::{BODY_BYTES, MAX_BYTES, MAX_EXCHANGES, MESSAGE_BYTES, MESSAGES, MESSAGES_BYTES},
    mask,
};

/// The exchanges, oldest first. Calls for an exchange that was removed are ignored.
#[derive(Debug, Default)]
pub(crate) struct Store {
    exchanges: VecDeque<Exchange>,
    last_id: u64,
    bytes: usize,
    paused: bool,
    updates: Vec<Update>,
}

/// Visitor and target of a request.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    pub(crate) to: Arc<Target>,
    /// The server name, if the service uses TLS.
    pub(crate) tls: Option<Arc<str>>,
    pub(crate) source_ip: Option<IpAddr>,
    pub(crate) replay: Option<Replay>,
}

/// A replayed request.
#[derive(Clone, Debug)]
pub(crate) struct Replay {
    /// The exchange that it repeats.
    pub(crate) of: u64,
    /// Its own id, once its head has passed.
    pub(crate) id: Arc<OnceLock<u64>>,
}

impl Store {
    /// Records a request whose head has passed; `None` while recording is paused.
    pub(crate) fn begin(
        &mut self,
        origin: &Origin,
        request: Request,
        now: Timestamp,
    ) -> Option<u64> {
        // A replay is recorded even while paused, because the user wants to see its response.
        if self.paused && origin.replay.is_none() {
            return None;
        }
        self.last_id += 1;
        let id = self.last_id;
        let grpc = request
            .fields
            .content_type()
            .starts_with("application/grpc");
        let summary = Summary {
            id,
            method: request.method.as_str().into(),
            path: mask::path(&request.path).as_ref().into(),
            host: request.host.as_str().into(),
            status: None,
            began: now,
            duration: None,
            kind: if grpc { Kind::Grpc } else { Kind::Http },
            source_ip: visitor(&request.fields).or(origin.source_ip),
            hint: None,
            error: None,
            trace_id: request.fields.trace_id(),
            replay_of: origin.replay.as_ref().map(|replay| replay.of),
            request_bytes: 0,
            response_bytes: 0,
            messages: 0,
        };
        let size = request.fields.bytes() + request.path.len();
        self.exchanges.push_back(Exchange {
            summary,
            to: Arc::clone(&origin.to),
            tls: origin.tls.clone(),
            request,
            request_body: Body::default(),
            response: None,
            response_body: Body::default(),
            request_finished_at: None,
            response_started_at: None,
            messages: VecDeque::new(),
            messages_bytes: 0,
            removed_messages: 0,
        });
        self.grow(size + EXCHANGE_BYTES);
        if let Some(replay) = &origin.replay {
            // The only request of its connection.
            replay.id.get_or_init(|| id);
        }
        self.push_update(id);
        Some(id)
    }

    pub(crate) fn request_body(&mut self, id: u64, bytes: &[u8]) {
        let Some(exchange) = self.find(id) else {
            return;
        };
        exchange.summary.request_bytes += bytes.len() as u64;
        let grown = keep(&mut exchange.request_body, bytes);
        self.grow(grown);
    }

    /// The body of the request is complete.
    pub(crate) fn request_finished(&mut self, id: u64, trailers: Fields, now: Timestamp) {
        let Some(exchange) = self.find(id) else {
            return;
        };
        let grown = trailers.bytes();
        exchange.request_finished_at = Some(now);
        exchange.request_body.is_complete = true;
        exchange.request_body.trailers = trailers;
        self.grow(grown);
    }

    /// Records the head of the response.
    pub(crate) fn response_started(&mut self, id: u64, response: Response, now: Timestamp) {
        let Some(exchange) = self.find(id) else {
            return;
        };
        exchange.response_started_at = Some(now);
        exchange.summary.status = Some(response.status);
        exchange.summary.kind = match response.status {
            101 if is_websocket(&response.fields) => Kind::WebSocket,
            200 if response.fields.content_type() == "text/event-stream" => Kind::Sse,
            _ => exchange.summary.kind,
        };
        let grown = response.fields.bytes();
        exchange.response = Some(response);
        self.grow(grown);
        self.push_update(id);
    }

    pub(crate) fn response_body(&mut self, id: u64, bytes: &[u8]) {
        let Some(exchange) = self.find(id) else {
            return;
        };
        exchange.summary.response_bytes += bytes.len() as u64;
        let grown = keep(&mut exchange.response_body, bytes);
        self.grow(grown);
    }

    /// Counts bytes that are only recorded as messages.
    pub(crate) fn count(&mut self, id: u64, from: MessageSender, bytes: u64) {
        if let Some(exchange) = self.find(id) {
            match from {
                MessageSender::Visitor => exchange.summary.request_bytes += bytes,
                MessageSender::Service => exchange.summary.response_bytes += bytes,
            }
        }
    }

    /// Records a message and assigns its number.
    pub(crate) fn message(&mut self, id: u64, mut message: Message) {
        let Some(exchange) = self.find(id) else {
            return;
        };
        exchange.summary.messages += 1;
        message.number = exchange.summary.messages;
        let grown = weight(&message);
        exchange.messages_bytes += grown;
        exchange.messages.push_back(message);
        let mut freed = 0;
        while exchange.messages.len() > MESSAGES || exchange.messages_bytes - freed > MESSAGES_BYTES
        {
            let Some(oldest) = exchange.messages.pop_front() else {
                break;
            };
            freed += weight(&oldest);
            exchange.removed_messages += 1;
        }
        exchange.messages_bytes = exchange.messages_bytes.saturating_sub(freed);
        self.bytes = self.bytes.saturating_sub(freed);
        self.grow(grown);
        self.push_update(id);
    }

    /// The exchange has ended; its response is complete if there is no `error`.
    pub(crate) fn finished(
        &mut self,
        id: u64,
        trailers: Fields,
        error: Option<&str>,
        now: Timestamp,
    ) {
        let Some(exchange) = self.find(id) else {
            return;
        };
        if exchange.summary.duration.is_some() {
            return;
        }
        let grown = trailers.bytes();
        exchange.response_body.trailers = trailers;
        exchange.response_body.is_complete = error.is_none();
        exchange.summary.duration = Some(duration_between(exchange.summary.began, now));
        exchange.summary.error = error.map(Arc::from);
        exchange.summary.hint = Hint::of(exchange);
        self.grow(grown);
        self.push_update(id);
    }

    pub(crate) fn get(&self, id: u64) -> Option<&Exchange> {
        let at = self.position(id)?;
        self.exchanges.get(at)
    }

    pub(crate) fn iter(&self) -> vec_deque::Iter<'_, Exchange> {
        self.exchanges.iter()
    }

    pub(crate) fn summaries(&self) -> Vec<Summary> {
        self.iter().map(|one| one.summary.clone()).collect()
    }

    /// Removes all exchanges.
    pub(crate) fn clear(&mut self) {
        self.exchanges.clear();
        self.bytes = 0;
        self.updates.push(Update::Removed {
            up_to: self.last_id,
        });
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.paused
    }

    pub(crate) fn pause(&mut self, paused: bool) {
        if mem::replace(&mut self.paused, paused) != paused {
            self.updates.push(Update::Paused(paused));
        }
    }

    /// Size of the records, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Changes since the last call.
    pub(crate) fn take_updates(&mut self) -> Vec<Update> {
        mem::take(&mut self.updates)
    }

    fn find(&mut self, id: u64) -> Option<&mut Exchange> {
        let at = self.position(id)?;
        self.exchanges.get_mut(at)
    }

    /// Position of an exchange. Ids have no gaps after the oldest one.
    fn position(&self, id: u64) -> Option<usize> {
        let oldest = self.exchanges.front()?.summary.id;
        usize::try_from(id.checked_sub(oldest)?).ok()
    }

    fn push_update(&mut self, id: u64) {
        let summary = self.get(id).map(|exchange| exchange.summary.clone());
        // `None` if the newest exchange was the one that had to be removed.
        self.updates.extend(summary.map(Update::Exchange));
    }

    fn grow(&mut self, bytes: usize) {
        self.bytes += bytes;
        let mut left = None;
        while self.bytes > MAX_BYTES || self.exchanges.len() > MAX_EXCHANGES {
            let Some(oldest) = self.exchanges.pop_front() else {
                break;
            };
            self.bytes = self.bytes.saturating_sub(held_by(&oldest));
            left = Some(oldest.summary.id);
        }
        self.updates
            .extend(left.map(|up_to| Update::Removed { up_to }));
    }
}

/// Creates a message without a number, and truncates its content.
pub(crate) fn message(
    at: Timestamp,
    from: MessageSender,
    what: MessageKind,
    mut kept: Vec<u8>,
    size: u64,
    compressed: bool,
) -> Message {
    kept.truncate(MESSAGE_BYTES);
    Message {
        number: 0,
        at,
        from,
        what,
        kept,
        size,
        compressed,
    }
}

/// The visitor's address, from the field that the engine always sets itself.
fn visitor(fields: &Fields) -> Option<IpAddr> {
    let forwarded = fields.get("x-forwarded-for")?;
    forwarded.rsplit(',').next()?.trim().parse().ok()
}

pub(crate) fn is_websocket(fields: &Fields) -> bool {
    let upgrade = fields.get("upgrade").unwrap_or_default();
    upgrade.eq_ignore_ascii_case("websocket")
}

/// Appends up to the limit, and returns the number of appended bytes.
fn keep(body: &mut Body, bytes: &[u8]) -> usize {
    body.size += bytes.len() as u64;
    let capacity = BODY_BYTES.saturating_sub(body.kept.len());
    let kept = bytes.get(..capacity).unwrap_or(bytes);
    body.kept.extend_from_slice(kept);
    kept.len()
}

fn weight(message: &Message) -> usize {
    message.kept.len() + size_of::<Message>()
}

fn held_by(exchange: &Exchange) -> usize {
    let response = exchange.response.as_ref();
    EXCHANGE_BYTES
        + exchange.request.path.len()
        + exchange.request.fields.bytes()
        + exchange.request_body.kept.len()
        + exchange.request_body.trailers.bytes()
        + response.map_or(0, |response| response.fields.bytes())
        + exchange.response_body.kept.len()
        + exchange.response_body.trailers.bytes()
        + exchange.messages_bytes
}

/// The duration between two times; zero if the clock was set back.
pub(crate) fn duration_between(from: Timestamp, to: Timestamp) -> Duration {
    to.duration_since(from).try_into().unwrap_or_default()
}

/// Fixed cost of an exchange: the struct, and the allocations of about twenty fields.
const EXCHANGE_BYTES: usize = 2048;

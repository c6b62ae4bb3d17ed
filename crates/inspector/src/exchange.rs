//! Recorded data of an exchange.

pub(crate) mod content;
pub(crate) mod hint;

use std::{borrow::Cow, collections::VecDeque, net::IpAddr, sync::Arc, time::Duration};

use client::Target;
use jiff::Timestamp;
use serde::{Serialize, Serializer};
use types::trace::TraceId;

use crate::Hint;

/// One line of a list of exchanges. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Counts from 1 in the order in which exchanges started, and is never reused.
    pub id: u64,
    /// As sent; empty if the request was not received before its service failed.
    #[serde(serialize_with = "serialize_arc")]
    pub method: Arc<str>,
    /// Path and query; secrets in the query are masked.
    #[serde(serialize_with = "serialize_arc")]
    pub path: Arc<str>,
    /// The requested host, as the service sees it.
    #[serde(serialize_with = "serialize_arc")]
    pub host: Arc<str>,
    /// Absent until the service responds.
    pub status: Option<u16>,
    /// Time when the head of the request had passed.
    pub began: Timestamp,
    /// Duration from there to the end of the response; absent while it is in progress. In JSON:
    /// milliseconds.
    #[serde(rename = "took_ms", serialize_with = "millis")]
    pub duration: Option<Duration>,
    /// Kind of exchange.
    pub kind: Kind,
    /// The visitor's address, as the engine reports it.
    pub source_ip: Option<IpAddr>,
    /// A problem with the publication of the service that the response indicates.
    pub hint: Option<Hint>,
    /// Reason why the exchange was truncated, or cannot be decoded further.
    #[serde(serialize_with = "serialize_optional_arc")]
    pub error: Option<Arc<str>>,
    /// The trace that the request belongs to (`traceparent`).
    pub trace_id: Option<TraceId>,
    /// The exchange that this one repeats.
    pub replay_of: Option<u64>,
    /// Bytes of the request's body, as transferred.
    pub request_bytes: u64,
    /// Bytes of the response's body, as transferred.
    pub response_bytes: u64,
    /// Messages of WebSocket, server-sent events or gRPC, in both directions.
    pub messages: u64,
}

/// Kind of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A request and a response.
    Http,
    /// An upgrade, then messages in both directions.
    WebSocket,
    /// A response with a stream of events.
    Sse,
    /// Length-prefixed messages.
    Grpc,
}

impl Kind {
    /// The kind as text.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::WebSocket => "websocket",
            Self::Sse => "sse",
            Self::Grpc => "grpc",
        }
    }
}

/// All recorded data of an exchange. Only the path in its summary is masked.
#[derive(Clone, Debug)]
pub(crate) struct Exchange {
    pub(crate) summary: Summary,
    /// Target of the request.
    pub(crate) to: Arc<Target>,
    /// The server name, if the service uses TLS.
    pub(crate) tls: Option<Arc<str>>,
    pub(crate) request: Request,
    pub(crate) request_body: Body,
    pub(crate) response: Option<Response>,
    pub(crate) response_body: Body,
    /// Time when the body of the request had passed.
    pub(crate) request_finished_at: Option<Timestamp>,
    /// Time when the head of the response had passed.
    pub(crate) response_started_at: Option<Timestamp>,
    pub(crate) messages: VecDeque<Message>,
    /// Size of the messages in bytes.
    pub(crate) messages_bytes: usize,
    /// Number of messages that were removed because of the limits.
    pub(crate) removed_messages: u64,
}

/// The head of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) method: String,
    /// Path and query, as sent.
    pub(crate) path: String,
    pub(crate) host: String,
    pub(crate) version: Version,
    pub(crate) fields: Fields,
}

impl Request {
    /// A request that was not received.
    pub(crate) fn unknown() -> Self {
        Self {
            method: String::new(),
            path: String::new(),
            host: String::new(),
            version: Version::Http11,
            fields: Fields::default(),
        }
    }
}

/// The head of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) reason: String,
    pub(crate) version: Version,
    pub(crate) fields: Fields,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    Http10,
    Http11,
    Http2,
}

impl Version {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Http10 => "HTTP/1.0",
            Self::Http11 => "HTTP/1.1",
            Self::Http2 => "HTTP/2",
        }
    }
}

/// Header fields in the order in which they were sent, names as sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fields(pub(crate) Vec<(String, String)>);

impl Fields {
    /// The value of the first field with this name, ignoring case.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    /// The values of all fields with this name, ignoring case.
    fn values<'f>(&'f self, name: &'f str) -> impl Iterator<Item = &'f [u8]> {
        let fields = self.0.iter();
        let named = fields.filter(move |(known, _)| known.eq_ignore_ascii_case(name));
        named.map(|(_, value)| value.as_bytes())
    }

    /// The trace that a request with these fields belongs to.
    pub(crate) fn trace_id(&self) -> Option<TraceId> {
        TraceId::of_request(self.values("traceparent"))
    }

    /// Adds a field. Bytes that are not UTF-8 are shown as Latin-1, the traditional encoding.
    pub(crate) fn push(&mut self, name: &[u8], value: &[u8]) {
        self.0
            .push((text(name).into_owned(), text(value).into_owned()));
    }

    /// The media type of the body without its parameters, in lower case.
    pub(crate) fn content_type(&self) -> String {
        let value = self.get("content-type").unwrap_or_default();
        let essence = value.split(';').next().unwrap_or_default();
        essence.trim().to_ascii_lowercase()
    }

    pub(crate) fn bytes(&self) -> usize {
        let fields = self.0.iter();
        fields.map(|(name, value)| name.len() + value.len()).sum()
    }
}

pub(crate) fn text(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => Cow::Owned(bytes.iter().map(|byte| char::from(*byte)).collect()),
    }
}

/// The recorded part of a body, without its framing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Body {
    /// The first [`BODY_BYTES`](crate::limits::BODY_BYTES).
    pub(crate) kept: Vec<u8>,
    /// Total number of bytes.
    pub(crate) size: u64,
    /// True once the whole body has passed.
    pub(crate) is_complete: bool,
    pub(crate) trailers: Fields,
}

/// A message of a WebSocket, of an event stream, or of gRPC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    /// Number within its exchange, from 1.
    pub(crate) number: u64,
    /// Time when its end had passed.
    pub(crate) at: Timestamp,
    pub(crate) from: MessageSender,
    pub(crate) what: MessageKind,
    /// The first [`MESSAGE_BYTES`](crate::limits::MESSAGE_BYTES).
    pub(crate) kept: Vec<u8>,
    pub(crate) size: u64,
    /// True if the bytes could not be decompressed and are recorded as transferred.
    pub(crate) compressed: bool,
}

/// Sender of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum MessageSender {
    Visitor,
    Service,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub(crate) enum MessageKind {
    Text,
    Binary,
    Ping,
    Pong,
    Close {
        #[serde(skip_serializing_if = "Option::is_none")]
        code: Option<u16>,
    },
    Event {
        name: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        event_id: Option<String>,
    },
    Grpc,
    /// The last message of gRPC-Web, which contains the trailers.
    Trailers,
}

fn serialize_arc<S: Serializer>(text: &Arc<str>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(text)
}

#[expect(clippy::ref_option, reason = "the signature that the derive calls")]
fn serialize_optional_arc<S: Serializer>(
    text: &Option<Arc<str>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match text {
        Some(text) => serializer.serialize_some(&**text),
        None => serializer.serialize_none(),
    }
}

#[expect(clippy::ref_option, reason = "the signature that the derive calls")]
fn millis<S: Serializer>(took: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    match took {
        // Three decimal digits are enough for display.
        Some(took) => serializer.serialize_some(&((took.as_secs_f64() * 1e6).round() / 1e3)),
        None => serializer.serialize_none(),
    }
}

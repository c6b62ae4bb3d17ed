//! What is kept of an exchange.

use std::{net::IpAddr, sync::Arc, time::Duration};

use jiff::Timestamp;
use serde::{Serialize, Serializer};

use crate::Hint;

/// One line of a list of exchanges. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Counts from 1 in the order in which exchanges began, and is never used again.
    pub id: u64,
    /// As sent.
    pub method: Arc<str>,
    /// Path and query; secrets in the query are masked.
    pub path: Arc<str>,
    /// What the visitor asked for, as the service sees it.
    pub host: Arc<str>,
    /// Nothing until the service answers.
    pub status: Option<u16>,
    /// When the head of the request had passed.
    pub began: Timestamp,
    /// From there to the end of the answer; nothing while it goes on. In JSON: milliseconds.
    #[serde(rename = "took_ms", serialize_with = "millis")]
    pub took: Option<Duration>,
    /// What the exchange carries.
    pub kind: Kind,
    /// The visitor, as the engine told it.
    pub source_ip: Option<IpAddr>,
    /// What the answer says is wrong with how the service is published.
    pub hint: Option<Hint>,
    /// Why the exchange ended too early, or why it cannot be read further.
    pub error: Option<Arc<str>>,
    /// The exchange that this one repeats.
    pub replay_of: Option<u64>,
    /// Bytes of the request's body, as they passed.
    pub request_bytes: u64,
    /// Bytes of the answer's body, or of what came after an upgrade.
    pub response_bytes: u64,
    /// Messages of WebSocket, server-sent events or gRPC, both ways.
    pub messages: u64,
}

/// What an exchange carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A request and an answer.
    Http,
    /// An upgrade, then messages both ways.
    WebSocket,
    /// An answer that is a stream of events.
    Sse,
    /// Messages with a length before each.
    Grpc,
}

impl Kind {
    /// A word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::WebSocket => "websocket",
            Self::Sse => "sse",
            Self::Grpc => "grpc",
        }
    }
}

#[expect(clippy::ref_option, reason = "the signature that the derive calls")]
fn millis<S: Serializer>(took: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    match took {
        // Three digits are all that anybody reads.
        Some(took) => serializer.serialize_some(&((took.as_secs_f64() * 1e6).round() / 1e3)),
        None => serializer.serialize_none(),
    }
}

//! The event stream, as server-sent events or as frames of a WebSocket.

use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::Value;
use tokio::time::timeout;

use super::{ApiError, HttpError, websocket::Socket};
use crate::{ConnectError, error::Step};

/// The live events of an engine: first `state.initial`, then changes.
#[derive(Debug)]
pub struct Events {
    source: Source,
}

#[derive(Debug)]
enum Source {
    Body { body: Incoming, parser: Parser },
    Socket(Box<Socket>),
}

/// One event.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Event {
    /// The JSON as the engine wrote it.
    pub text: String,
    /// The parsed JSON.
    pub value: Value,
}

impl Events {
    pub(super) fn of_body(body: Incoming) -> Self {
        let parser = Parser::default();
        Self {
            source: Source::Body { body, parser },
        }
    }

    pub(super) fn of_socket(socket: Socket) -> Self {
        Self {
            source: Source::Socket(Box::new(socket)),
        }
    }

    /// The next event; `None` when the engine ended the stream (a drain, an expired token).
    ///
    /// # Errors
    /// The connection broke, is silent, or contains something other than events.
    ///
    /// # Cancellation
    /// Safe: bytes that were read are kept.
    pub async fn next(&mut self) -> Result<Option<Event>, ApiError> {
        let text = match &mut self.source {
            Source::Socket(socket) => socket.next().await?,
            Source::Body { body, parser } => next_of(body, parser).await?,
        };
        text.map(Event::read).transpose()
    }

    /// The engine's reason for ending the stream.
    pub fn reason(&self) -> Option<&str> {
        match &self.source {
            Source::Body { parser, .. } => parser.reason.as_deref(),
            Source::Socket(socket) => socket.reason(),
        }
    }
}

impl Event {
    /// Parses an event from the text of one message.
    ///
    /// # Errors
    /// The text is not JSON.
    pub fn read(text: String) -> Result<Self, ApiError> {
        let value = serde_json::from_str(&text)
            .map_err(|error| ApiError::Unexpected(format!("not an event: {error}")))?;
        Ok(Self { text, value })
    }
}

impl From<Value> for Event {
    fn from(value: Value) -> Self {
        let text = value.to_string();
        Self { text, value }
    }
}

async fn next_of(body: &mut Incoming, parser: &mut Parser) -> Result<Option<String>, ApiError> {
    loop {
        if let Some(text) = parser.next() {
            return Ok(Some(text));
        }
        let frame = timeout(SILENCE, body.frame())
            .await
            .map_err(|_elapsed| ConnectError::TimedOut(Step::Exchange))?;
        let Some(frame) = frame else { return Ok(None) };
        if let Some(bytes) = frame.map_err(HttpError)?.data_ref() {
            parser.push(bytes)?;
        }
    }
}

/// Splits the stream into the `data` of each event (WHATWG HTML section 9.2.6). Comments, which
/// keep the connection alive, and every field but `data` are ignored; the comment with the reason
/// of the end is kept.
#[derive(Debug, Default)]
struct Parser {
    buffer: Vec<u8>,
    scanned: usize,
    data: String,
    has_data: bool,
    reason: Option<String>,
}

impl Parser {
    fn push(&mut self, bytes: &[u8]) -> Result<(), ApiError> {
        if self.buffer.len() + bytes.len() + self.data.len() > MAX_EVENT {
            return Err(ApiError::Unexpected("an event is too long".to_owned()));
        }
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    /// The data of the next complete event.
    fn next(&mut self) -> Option<String> {
        while let Some(line) = self.line() {
            if line.is_empty() {
                if std::mem::take(&mut self.has_data) {
                    return Some(std::mem::take(&mut self.data));
                }
            } else if let Some(rest) = line.strip_prefix("data:") {
                if self.has_data {
                    self.data.push('\n');
                }
                self.data.push_str(rest.strip_prefix(' ').unwrap_or(rest));
                self.has_data = true;
            } else if let Some(reason) = line.strip_prefix(": closed: ") {
                self.reason = Some(reason.to_owned());
            }
        }
        None
    }

    /// The next complete line, without its end.
    fn line(&mut self) -> Option<String> {
        let unseen = self.buffer.get(self.scanned..).unwrap_or_default();
        let Some(found) = unseen.iter().position(|&byte| byte == b'\n') else {
            self.scanned = self.buffer.len();
            return None;
        };
        let rest = self.buffer.split_off(self.scanned + found + 1);
        let line = std::mem::replace(&mut self.buffer, rest);
        self.scanned = 0;
        let text = String::from_utf8_lossy(&line);
        Some(
            text.trim_end_matches('\n')
                .trim_end_matches('\r')
                .to_owned(),
        )
    }
}

/// Three of the comments that an engine sends every 15 s; more than two of its pings.
pub(super) const SILENCE: Duration = Duration::from_secs(45);

/// A snapshot of ten thousand tunnels has some megabytes.
pub(super) const MAX_EVENT: usize = 64 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_complete_for_any_segmentation() {
        let stream = b": hello\n\ndata: {\"a\":1}\n\nevent: x\r\ndata: {\"b\":\r\ndata: 2}\r\n\r\n";
        for size in 1..=stream.len() {
            let mut parser = Parser::default();
            let mut seen = Vec::new();
            for piece in stream.chunks(size) {
                parser.push(piece).unwrap();
                while let Some(data) = parser.next() {
                    seen.push(data);
                }
            }
            assert_eq!(seen, ["{\"a\":1}", "{\"b\":\n2}"], "in pieces of {size}");
        }
    }

    #[test]
    fn the_reason_of_an_end_is_kept() {
        let mut parser = Parser::default();
        parser
            .push(b": keep-alive\n\n: closed: the token has expired\n\n")
            .unwrap();
        assert_eq!(parser.next(), None);
        assert_eq!(parser.reason.as_deref(), Some("the token has expired"));
    }

    #[test]
    fn an_endless_event_is_refused() {
        let mut parser = Parser::default();
        let piece = vec![b'x'; 1024 * 1024];
        let refused = (0..100).any(|_| parser.push(&piece).is_err());
        assert!(refused);
    }
}

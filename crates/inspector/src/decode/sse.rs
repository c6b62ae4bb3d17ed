//! Server-sent events, parsed as in the HTML standard (§9.2.6).

use jiff::Timestamp;

use crate::{
    exchange::{Message, MessageKind, MessageSender},
    limits::MESSAGE_BYTES,
    store,
};

/// Splits a stream into events, independent of its segmentation.
#[derive(Debug, Default)]
pub(super) struct Events {
    line: Vec<u8>,
    /// Number of bytes of the line that were not recorded.
    unrecorded_bytes: u64,
    is_after_cr: bool,
    has_first_line: bool,
    event: Event,
}

/// An event.
#[derive(Debug, Default)]
pub(super) struct Event {
    name: Vec<u8>,
    id: Option<Vec<u8>>,
    data: Vec<u8>,
    size: u64,
    lines: u64,
}

impl Events {
    pub(super) fn feed(&mut self, bytes: &[u8], mut each: impl FnMut(Event)) {
        for piece in bytes.split_inclusive(|byte| matches!(byte, b'\n' | b'\r')) {
            let (end, line) = match piece.split_last() {
                Some((end @ (b'\n' | b'\r'), line)) => (Some(*end), line),
                _ => (None, piece),
            };
            // The second byte of a CRLF that was split.
            let half = self.is_after_cr && end == Some(b'\n') && line.is_empty();
            self.is_after_cr = end == Some(b'\r');
            if half {
                continue;
            }
            let capacity = LINE_BYTES.saturating_sub(self.line.len());
            let kept = line.get(..capacity).unwrap_or(line);
            self.line.extend_from_slice(kept);
            self.unrecorded_bytes += (line.len() - kept.len()) as u64;
            if end.is_some() {
                self.end_line(&mut each);
            }
        }
    }

    fn end_line(&mut self, each: &mut impl FnMut(Event)) {
        let mut line = std::mem::take(&mut self.line);
        let beyond = std::mem::take(&mut self.unrecorded_bytes);
        if !std::mem::replace(&mut self.has_first_line, true) && line.starts_with(BYTE_ORDER_MARK) {
            line.drain(..BYTE_ORDER_MARK.len());
        }
        if line.is_empty() {
            let event = std::mem::take(&mut self.event);
            if event.lines > 0 {
                each(event);
            }
            return;
        }
        let (name, value) = match line.iter().position(|byte| *byte == b':') {
            Some(at) => {
                let (name, value) = line.split_at(at);
                let value = value.strip_prefix(b":").unwrap_or(value);
                (name, value.strip_prefix(b" ").unwrap_or(value))
            }
            None => (line.as_slice(), &b""[..]),
        };
        let event = &mut self.event;
        match name {
            b"event" => event.name = truncated(value),
            b"id" => event.id = Some(truncated(value)),
            b"data" => {
                if event.lines > 0 && event.data.len() < MESSAGE_BYTES {
                    event.data.push(b'\n');
                }
                event.size += value.len() as u64 + beyond + u64::from(event.lines > 0);
                event.lines += 1;
                let capacity = MESSAGE_BYTES.saturating_sub(event.data.len());
                event
                    .data
                    .extend_from_slice(value.get(..capacity).unwrap_or(value));
            }
            // Comments, which keep connections alive, and unknown fields.
            _ => {}
        }
    }
}

impl Event {
    pub(super) fn into_message(self, at: Timestamp) -> Message {
        let words = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let what = MessageKind::Event {
            name: if self.name.is_empty() {
                "message".to_owned()
            } else {
                words(&self.name)
            },
            event_id: self.id.as_deref().map(words),
        };
        store::message(
            at,
            MessageSender::Service,
            what,
            self.data,
            self.size,
            false,
        )
    }
}

fn truncated(value: &[u8]) -> Vec<u8> {
    value.get(..NAME_BYTES).unwrap_or(value).to_vec()
}

/// Recorded bytes of a line: those of a message, and the name of the field.
const LINE_BYTES: usize = MESSAGE_BYTES + 64;

/// Names and ids are displayed on one line.
const NAME_BYTES: usize = 256;

/// A byte order mark, which may be at the start of the stream.
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

#[cfg(test)]
mod tests {
    use super::*;

    /// A line without an end is recorded up to the limit of a message plus the name of the field.
    #[test]
    fn a_line_is_limited_in_size() {
        let mut events = Events::default();
        for _ in 0..3 {
            events.feed("x".repeat(60_000).as_bytes(), |_| {
                panic!("there is no event")
            });
        }
        assert_eq!(events.line.len(), 64 * 1024 + 64);
        assert_eq!(events.line.len() as u64 + events.unrecorded_bytes, 180_000);
    }
}

//! Interpretation of the lines of the stream.

use api::link::{Cursor, Item, LinkMessage, MAX_LINE_BYTES, Platform};
use bytes::BytesMut;
use tokio_util::codec::{Decoder as _, LinesCodec, LinesCodecError};

/// Reads one connection's stream. It does no I/O: bytes in, [`LinkEvent`]s out.
#[derive(Debug)]
pub struct Reader {
    lines: LinesCodec,
    /// Bytes of the stream without a complete line.
    buffer: BytesMut,
    /// True if changes can be applied: after a snapshot, or if the request had a cursor.
    has_state: bool,
    snapshot: Option<(Platform, Vec<Item>)>,
    /// Bytes of the lines of the current snapshot.
    snapshot_bytes: usize,
}

/// The event that a line completed.
#[derive(Clone, Debug, PartialEq)]
pub enum LinkEvent {
    /// The complete state. Items missing from it no longer exist.
    Snapshot {
        /// Settings of the whole cluster.
        platform: Platform,
        /// All items.
        items: Vec<Item>,
        /// Cursor after the snapshot.
        cursor: Cursor,
    },
    /// One atomic change.
    Change {
        /// The new items, in the order of the changes.
        items: Vec<Item>,
        /// Cursor after the change.
        cursor: Cursor,
    },
    /// A line without an event.
    Ignored,
}

/// Reason why a stream cannot be read further. The text never contains data of the stream.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// A line is too long.
    #[error("a line is longer than {MAX_LINE_BYTES} bytes")]
    TooLong,
    /// A line is not text. JSON is UTF-8 (RFC 8259 section 8.1).
    #[error("a line is not UTF-8")]
    Encoding,
    /// A line is not a message. The value is the column of the error.
    #[error("a line is not a message of the link (column {0})")]
    Malformed(usize),
    /// A message in an invalid position.
    #[error("a message in an invalid position: {0}")]
    Misplaced(&'static str),
    /// A snapshot that is too large.
    #[error("a snapshot is larger than {MAX_SNAPSHOT_BYTES} bytes")]
    SnapshotTooLarge,
}

/// Bytes of a snapshot: half a million projects with their people and credentials.
pub const MAX_SNAPSHOT_BYTES: usize = 1024 * 1024 * 1024;

impl Reader {
    /// Creates a reader for a new connection. `grounded`: the request contained a cursor, so
    /// changes may arrive without a snapshot before them.
    pub fn new(has_state: bool) -> Self {
        Self {
            lines: LinesCodec::new_with_max_length(MAX_LINE_BYTES),
            buffer: BytesMut::new(),
            has_state,
            snapshot: None,
            snapshot_bytes: 0,
        }
    }

    /// True if the stream has caught up with the state at the time of the request.
    pub fn has_caught_up(&self) -> bool {
        self.has_state && self.snapshot.is_none()
    }

    /// Adds the next piece of the stream. Call [`Reader::next`] until it returns `None` before the
    /// next call: then at most one line and one piece are buffered.
    pub fn push(&mut self, piece: &[u8]) {
        self.buffer.extend_from_slice(piece);
    }

    /// The event of the next complete line; `None` if there is none.
    ///
    /// # Errors
    /// [`StreamError`]: the connection cannot be used any more.
    #[expect(
        clippy::should_implement_trait,
        reason = "`None` means later, not the end"
    )]
    pub fn next(&mut self) -> Result<Option<LinkEvent>, StreamError> {
        let Some(line) = self.lines.decode(&mut self.buffer)? else {
            return Ok(None);
        };
        self.process_line(&line).map(Some)
    }

    fn process_line(&mut self, line: &str) -> Result<LinkEvent, StreamError> {
        let message: LinkMessage =
            serde_json::from_str(line).map_err(|error| StreamError::Malformed(error.column()))?;
        match message {
            LinkMessage::SnapshotBegin { platform } => {
                // The platform may abort a snapshot and start again.
                self.snapshot = Some((platform, Vec::new()));
                self.snapshot_bytes = 0;
                Ok(LinkEvent::Ignored)
            }
            LinkMessage::Item { item } => {
                let (_, items) = self
                    .snapshot
                    .as_mut()
                    .ok_or(StreamError::Misplaced("an item outside a snapshot"))?;
                self.snapshot_bytes = self.snapshot_bytes.saturating_add(line.len());
                if self.snapshot_bytes > MAX_SNAPSHOT_BYTES {
                    return Err(StreamError::SnapshotTooLarge);
                }
                items.push(item);
                Ok(LinkEvent::Ignored)
            }
            LinkMessage::SnapshotEnd { cursor } => {
                let (platform, items) = self.snapshot.take().ok_or(StreamError::Misplaced(
                    "the end of a snapshot that did not start",
                ))?;
                self.has_state = true;
                Ok(LinkEvent::Snapshot {
                    platform,
                    items,
                    cursor,
                })
            }
            LinkMessage::Change { .. } if self.snapshot.is_some() => {
                Err(StreamError::Misplaced("a change inside a snapshot"))
            }
            LinkMessage::Change { .. } if !self.has_state => {
                Err(StreamError::Misplaced("a change before any snapshot"))
            }
            LinkMessage::Change { cursor, items } => Ok(LinkEvent::Change { items, cursor }),
            LinkMessage::Alive {} | LinkMessage::Unknown => Ok(LinkEvent::Ignored),
        }
    }
}

impl From<LinesCodecError> for StreamError {
    fn from(error: LinesCodecError) -> Self {
        match error {
            LinesCodecError::MaxLineLengthExceeded => Self::TooLong,
            LinesCodecError::Io(_) => Self::Encoding,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(reader: &mut Reader, text: &str) -> Result<Vec<LinkEvent>, StreamError> {
        read_bytes(reader, text.as_bytes())
    }

    fn read_bytes(reader: &mut Reader, piece: &[u8]) -> Result<Vec<LinkEvent>, StreamError> {
        reader.push(piece);
        let mut steps = Vec::new();
        while let Some(step) = reader.next()? {
            steps.push(step);
        }
        Ok(steps)
    }

    const BEGIN: &str = r#"{"type":"snapshot_begin","platform":{"base_url":"https://p.example","cluster_domain":"e.example"}}"#;
    const GONE: &str = r#"{"type":"item","item":{"item":"person_gone","id":"usr_1"}}"#;
    const END: &str = r#"{"type":"snapshot_end","cursor":"3.a"}"#;
    const CHANGE: &str = r#"{"type":"change","cursor":"4.a","items":[]}"#;

    #[test]
    fn a_snapshot_is_delivered_complete_before_changes() {
        let mut reader = Reader::new(false);
        let early = read(&mut reader, &format!("{BEGIN}\n{GONE}\n{GONE}\n")).unwrap();
        assert!(early.iter().all(|step| *step == LinkEvent::Ignored));
        let steps = read(&mut reader, &format!("{END}\n{CHANGE}\n")).unwrap();
        let [
            LinkEvent::Snapshot { items, cursor, .. },
            LinkEvent::Change { .. },
        ] = steps.as_slice()
        else {
            panic!("{steps:?}");
        };
        assert_eq!((items.len(), cursor.0.as_str()), (2, "3.a"));
    }

    #[test]
    fn a_restarted_snapshot_discards_earlier_items() {
        let mut reader = Reader::new(false);
        let steps = read(&mut reader, &format!("{BEGIN}\n{GONE}\n{BEGIN}\n{END}\n"));
        let Some(LinkEvent::Snapshot { items, .. }) = steps.unwrap().pop() else {
            panic!("a snapshot")
        };
        assert_eq!(items, []);
    }

    #[test]
    fn misplaced_messages_end_the_connection() {
        for (grounded, text) in [
            (true, format!("{GONE}\n")),
            (true, format!("{END}\n")),
            (false, format!("{CHANGE}\n")),
            (true, format!("{BEGIN}\n{CHANGE}\n")),
            (true, "garbage\n".to_owned()),
            (true, "\n".to_owned()),
            (true, "[]\n".to_owned()),
        ] {
            assert!(read(&mut Reader::new(grounded), &text).is_err(), "{text}");
        }
    }

    #[test]
    fn messages_of_later_versions_are_ignored() {
        let later = "{\"type\":\"song\",\"verse\":1}\n{\"type\":\"alive\",\"mood\":\"good\"}\n";
        let steps = read(&mut Reader::new(true), later).unwrap();
        assert_eq!(steps, [LinkEvent::Ignored, LinkEvent::Ignored]);
    }

    #[test]
    fn a_line_is_complete_with_its_line_feed() {
        let mut reader = Reader::new(true);
        assert_eq!(read(&mut reader, CHANGE).unwrap(), []);
        let (rest, started) = ("\n", &CHANGE[..9]);
        let steps = read(&mut reader, &format!("{rest}{CHANGE}\n{started}"));
        assert_eq!(steps.unwrap().len(), 2);
    }

    #[test]
    fn a_line_at_the_limit_passes_and_one_byte_more_does_not() {
        let line = |length: usize| format!("{CHANGE}{}", " ".repeat(length - CHANGE.len()));
        let longest = format!("{}\n", line(MAX_LINE_BYTES));
        assert_eq!(read(&mut Reader::new(true), &longest).unwrap().len(), 1);
        let too_long = line(MAX_LINE_BYTES + 1);
        for text in [format!("{too_long}\n"), too_long] {
            let refused = read(&mut Reader::new(true), &text).unwrap_err();
            assert_eq!(refused.to_string(), "a line is longer than 1048576 bytes");
        }
    }

    #[test]
    fn a_line_is_text() {
        for bytes in [
            &b"{\"type\":\"change\",\"cursor\":\"\xff\",\"items\":[]}\n"[..],
            b"{\"type\":\"alive\",\"mood\":\"\xff\"}\n",
        ] {
            let refused = read_bytes(&mut Reader::new(true), bytes);
            assert!(matches!(refused, Err(StreamError::Encoding)), "{refused:?}");
        }
    }

    proptest! {
        #[test]
        fn the_segmentation_does_not_matter(
            lines in proptest::collection::vec(
                prop_oneof![Just(BEGIN), Just(GONE), Just(END), Just(CHANGE), Just("")],
                0..9,
            ),
            grounded: bool,
            size in 1_usize..99,
        ) {
            let read = |pieces: &mut dyn Iterator<Item = &[u8]>| {
                let mut reader = Reader::new(grounded);
                let mut events = Vec::new();
                for piece in pieces {
                    reader.push(piece);
                    loop {
                        match reader.next() {
                            Ok(Some(event)) => events.push(event),
                            Ok(None) => break,
                            Err(error) => return (events, Some(error.to_string())),
                        }
                    }
                }
                (events, None)
            };
            let text = lines.join("\n");
            let whole = read(&mut std::iter::once(text.as_bytes()));
            prop_assert_eq!(read(&mut text.as_bytes().chunks(size)), whole);
        }
    }

    /// Sets the byte count directly, because reading a gibibyte takes a while.
    #[test]
    fn a_snapshot_is_limited_in_size() {
        let mut reader = Reader::new(false);
        read(&mut reader, &format!("{BEGIN}\n")).unwrap();
        reader.snapshot_bytes = (1 << 30) - GONE.len();
        read(&mut reader, &format!("{GONE}\n")).unwrap();
        let beyond = read(&mut reader, &format!("{GONE}\n"));
        assert!(
            matches!(beyond, Err(StreamError::SnapshotTooLarge)),
            "{beyond:?}"
        );
        // A new snapshot starts with the full limit.
        let mut reader = Reader::new(false);
        reader.snapshot_bytes = 1 << 30;
        read(&mut reader, &format!("{BEGIN}\n{GONE}\n{END}\n")).unwrap();
    }
}

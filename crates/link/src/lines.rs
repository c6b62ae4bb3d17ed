//! Lines of a byte stream that arrives in pieces.

use bytes::{Bytes, BytesMut};

/// Splits a stream into lines that end with LF, independent of its segmentation.
#[derive(Debug)]
pub struct Lines {
    waiting: BytesMut,
    /// Number of bytes of `waiting` that contain no LF.
    searched: usize,
    limit: usize,
}

/// A line is too long. The stream cannot be used after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a line is longer than {0} bytes")]
pub struct LineTooLong(pub usize);

impl Lines {
    /// Creates a splitter for lines of at most `limit` bytes, without the LF.
    pub fn new(limit: usize) -> Self {
        Self {
            waiting: BytesMut::new(),
            searched: 0,
            limit,
        }
    }

    /// Adds the next piece. Call [`Lines::next`] until it returns `None` before the next call: then
    /// at most one line and one piece are buffered.
    pub fn push(&mut self, piece: &[u8]) {
        self.waiting.extend_from_slice(piece);
    }

    /// The next line, without its LF; `None` until it is complete.
    ///
    /// # Errors
    /// [`LineTooLong`], as soon as it is certain.
    #[expect(
        clippy::should_implement_trait,
        reason = "`None` means later, not the end"
    )]
    pub fn next(&mut self) -> Result<Option<Bytes>, LineTooLong> {
        let unsearched = self.waiting.get(self.searched..).unwrap_or_default();
        let found = unsearched.iter().position(|byte| *byte == b'\n');
        let length = found.map_or(self.waiting.len(), |at| self.searched + at);
        if length > self.limit {
            return Err(LineTooLong(self.limit));
        }
        if found.is_none() {
            self.searched = length;
            return Ok(None);
        }
        self.searched = 0;
        let mut line = self.waiting.split_to(length + 1);
        line.truncate(length);
        Ok(Some(line.freeze()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// All lines of these pieces, and true if one was too long.
    fn lines<'p>(pieces: impl IntoIterator<Item = &'p [u8]>, limit: usize) -> (Vec<Bytes>, bool) {
        let mut lines = Lines::new(limit);
        let mut out = Vec::new();
        for piece in pieces {
            lines.push(piece);
            loop {
                match lines.next() {
                    Ok(Some(line)) => out.push(line),
                    Ok(None) => break,
                    Err(LineTooLong(_)) => return (out, true),
                }
            }
        }
        (out, false)
    }

    #[test]
    fn a_line_is_complete_with_its_line_feed() {
        assert_eq!(lines([&b"a\n\nbc"[..]], 9).0, ["a", ""]);
        assert_eq!(lines([&b"a\n\nbc"[..], b"d\n"], 9).0, ["a", "", "bcd"]);
    }

    #[test]
    fn a_line_at_the_limit_passes_and_one_byte_more_does_not() {
        assert_eq!(lines([&b"123\n"[..]], 3), (vec![Bytes::from("123")], false));
        assert_eq!(lines([&b"1234"[..]], 3), (vec![], true));
        assert_eq!(lines([&b"1234\n"[..]], 3), (vec![], true));
    }

    proptest! {
        #[test]
        fn the_segmentation_does_not_matter(
            text in proptest::collection::vec(prop_oneof![Just(b'\n'), Just(b'x')], 0..200),
            sizes in proptest::collection::vec(1_usize..9, 200),
            limit in 1_usize..20,
        ) {
            let whole = lines([text.as_slice()], limit);
            let mut rest = text.as_slice();
            let mut pieces = Vec::new();
            for size in sizes {
                let (piece, after) = rest.split_at(size.min(rest.len()));
                pieces.push(piece);
                rest = after;
            }
            pieces.push(rest);
            prop_assert_eq!(lines(pieces, limit), whole);
        }
    }
}

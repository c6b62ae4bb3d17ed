//! Detection of output that scrolls off the screen without an effect and need not be drawn.

use memchr::{memchr, memchr_iter, memrchr_iter};

/// Number of bytes at the start of `text` that only write lines: characters, tabs, carriage
/// returns, ends of lines, and attributes (SGR, ECMA-48 section 8.3.117).
pub(super) fn plain_len(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut at = 0;
    loop {
        let rest = bytes.get(at..).unwrap_or_default();
        at += rest.iter().take_while(|byte| is_plain(**byte)).count();
        let rest = bytes.get(at..).unwrap_or_default();
        match rest {
            // A control of the second set (C1), or a character with the same first byte.
            [0xc2, second, ..] if !(0x80..0xa0).contains(second) => at += 2,
            [ESCAPE, ..] => match looks_len(rest) {
                Some(len) => at += len,
                None => return at,
            },
            _ => return at,
        }
    }
}

/// A long plain text, split so that only its ends need to be drawn.
pub(super) struct TextSplit<'t> {
    /// Enough lines to move everything off a screen that scrolls as a whole.
    pub(super) begin: &'t str,
    /// Text that scrolls off the screen and need not be drawn.
    pub(super) middle: &'t str,
    /// Text that may stay on the screen or above it. It starts at the end of a line.
    pub(super) end: &'t str,
}

impl<'t> TextSplit<'t> {
    /// Splits plain text for a screen with `rows` rows, if it is long enough. The last `kept` rows
    /// are needed.
    pub(super) fn new(plain: &'t str, rows: usize, kept: usize) -> Option<Self> {
        let bytes = plain.as_bytes();
        let begin = memchr_iter(b'\n', bytes).nth(rows.checked_sub(1)?)? + 1;
        let line = memrchr_iter(b'\n', bytes).nth(kept)?;
        // The column of the next line is only known after a carriage return.
        let end = line
            .checked_sub(1)
            .filter(|at| bytes.get(*at) == Some(&b'\r'))?;
        if end < begin + MIN_SKIPPED {
            return None;
        }
        Some(Self {
            begin: plain.get(..begin)?,
            middle: plain.get(begin..end)?,
            end: plain.get(end..)?,
        })
    }

    /// Attributes that were set in the middle: later text has them.
    pub(super) fn attribute_sequences(&self) -> impl Iterator<Item = &'t str> {
        let mut rest = self.middle;
        std::iter::from_fn(move || {
            loop {
                rest = rest.get(memchr(ESCAPE, rest.as_bytes())?..)?;
                let Some(len) = looks_len(rest.as_bytes()) else {
                    rest = rest.get(1..)?;
                    continue;
                };
                let (looks, after) = rest.split_at_checked(len)?;
                rest = after;
                return Some(looks);
            }
        })
    }
}

fn is_plain(byte: u8) -> bool {
    matches!(byte, b' '..=b'~' | b'\r' | b'\n' | b'\t' | 0x80..=0xc1 | 0xc3..)
}

/// Length of the attribute sequence at the start of `bytes`, if there is one.
fn looks_len(bytes: &[u8]) -> Option<usize> {
    let rest = bytes.strip_prefix(b"\x1b[")?;
    let parameters = rest
        .iter()
        .take_while(|byte| matches!(byte, b'0'..=b'9' | b';' | b':'))
        .count();
    (rest.get(parameters) == Some(&b'm')).then_some(2 + parameters + 1)
}

const ESCAPE: u8 = 0x1b;

/// Minimum length of the middle in bytes: below it, the search costs more than drawing.
const MIN_SKIPPED: usize = 2048;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_ends_at_other_sequences() {
        for (text, plain) in [
            ("", 0),
            ("ab\r\n\tc", 6),
            ("é界🙂", 9),
            ("a\x1b[1;38:2::1:2:3mb\x1b[m", 21),
            ("a\x1b[1;3", 1),
            ("a\x1b[?1m", 1),
            ("a\x1b[1K", 1),
            ("ab\x07", 2),
            ("ab\u{7f}", 2),
            ("ab\u{9b}1m", 2),
            ("ab\u{a0}", 4),
            ("ab\x08", 2),
        ] {
            assert_eq!(plain_len(text), plain, "{text:?}");
        }
    }

    #[test]
    fn a_split_keeps_a_screen_at_both_ends() {
        let lines = (0..1000).map(|n| format!("line {n}\x1b[3{}m\r\n", n % 8));
        let text = lines.collect::<Vec<_>>().concat();
        let cut = TextSplit::new(&text, 2, 2).unwrap();
        assert_eq!(cut.begin, "line 0\x1b[30m\r\nline 1\x1b[31m\r\n");
        assert_eq!(cut.end, "\r\nline 998\x1b[36m\r\nline 999\x1b[37m\r\n");
        assert_eq!(cut.attribute_sequences().count(), 998 - 2);
        assert_eq!(cut.attribute_sequences().next(), Some("\x1b[32m"));
        // Rows above the screen are needed as well.
        let cut = TextSplit::new(&text, 2, 5).unwrap();
        assert_eq!(cut.end.lines().count(), 1 + 5);
        assert!(TextSplit::new(&text, 2, 997).is_none());
        assert!(TextSplit::new(&text, 500, 500).is_none());
        assert!(TextSplit::new(&text.replace('\r', ""), 2, 2).is_none());
        assert!(TextSplit::new("a\r\nb\r\nc\r\nd\r\n", 1, 1).is_none());
    }
}

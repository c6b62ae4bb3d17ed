//! The screen of a command, for late participants. The last bytes of the output may start in the
//! middle of anything, so a participant gets a sequence that draws the current screen, and before
//! it the rows that have scrolled off it.

mod filter;
mod lazy;
mod modes;
mod plain;
mod row;
mod scrollback;
mod snapshot;
mod style;

use std::fmt::Write as _;

use avt::Position;
use bytes::Bytes;

use self::filter::Filter;
pub(crate) use self::filter::printable;
pub use self::lazy::LazyScreen;
use self::plain::TextSplit;
pub use self::scrollback::{MAX_SCROLLBACK, MAX_SCROLLBACK_ROWS};
use self::scrollback::{Scrollback, ScrollbackObserver};
pub(crate) use self::style::{Attribute, Colour, Style, Underline};
use crate::size::Size;

/// Maximum rows of a screen, whatever size is requested: several displays on top of each other.
pub const MAX_ROWS: u16 = 300;

/// Maximum columns of a screen: several displays side by side.
pub const MAX_COLS: u16 = 600;

/// Makes a terminal start each line at its left end (LNM, ECMA-48 section 7.2.9). This is for
/// output of pipes: the kernel's terminal inserts a carriage return before the end of a line, and
/// pipes do not.
pub const SET_NEW_LINE_MODE: &str = "\x1b[20h";

/// Maximum size of a snapshot, in bytes: one message. A screen whose colours need more is drawn
/// without them.
pub const MAX_SNAPSHOT: usize = crate::message::limits::MAX_DATA;

/// The state of a terminal after the output that was fed to it. Concealed text is not in it.
pub struct Screen {
    terminal: avt::Terminal,
    text: Utf8,
    filter: Filter,
    /// The rows above the screen, if they are kept.
    scrollback: Option<Scrollback>,
}

impl Screen {
    /// Creates an empty screen of at most [`MAX_ROWS`] and [`MAX_COLS`], which keeps no rows that
    /// scroll off it.
    pub fn new(size: Size) -> Option<Self> {
        let size = bounded(size);
        let terminal = avt::Terminal::new(size.cols.into(), size.rows.into()).ok()?;
        Some(Self {
            terminal,
            text: Utf8::default(),
            filter: Filter::default(),
            scrollback: None,
        })
    }

    /// Creates an empty screen whose snapshots contain the last rows that have scrolled off it: up
    /// to [`MAX_SCROLLBACK_ROWS`] and [`MAX_SCROLLBACK`].
    pub fn with_scrollback(size: Size) -> Option<Self> {
        Some(Self {
            scrollback: Some(Scrollback::default()),
            ..Self::new(size)?
        })
    }

    /// Adds output of the command, in any pieces.
    pub fn feed(&mut self, bytes: &[u8]) {
        let text = self.text.push(bytes);
        let text = self.filter.filter(&text);
        let mut rest = &*text;
        while !rest.is_empty() {
            let (plain, other) = rest.split_at(plain::plain_len(rest));
            self.write(plain);
            // Other output is assumed to end with its line. If this is wrong, all of the following
            // text is still drawn.
            let end = memchr::memchr(b'\n', other.as_bytes()).map_or(other.len(), |end| end + 1);
            let (other, after) = other.split_at(end);
            self.draw(other);
            rest = after;
        }
    }

    /// Writes plain text, except for lines that scroll off the screen and are not kept.
    fn write(&mut self, plain: &str) {
        let (_, rows) = self.terminal.size();
        let above = match &self.scrollback {
            Some(_) => MAX_SCROLLBACK_ROWS,
            None => 0,
        };
        let Some(cut) = TextSplit::new(plain, rows, rows + above) else {
            self.draw(plain);
            return;
        };
        let top = self.terminal.anchor_at(Position {
            screen: self.terminal.active_screen_kind(),
            col: 0,
            row: 0,
        });
        self.draw(cut.begin);
        // If the text moved the screen, it was plain text and not the inside of a sequence. The
        // screen scrolls as a whole if this has removed the first row and the cursor is in the last
        // one.
        let scrolls = top.is_some_and(|top| self.terminal.resolve(&top).is_none())
            && self.terminal.cursor().row + 1 == rows;
        if scrolls {
            for looks in cut.attribute_sequences() {
                self.draw(looks);
            }
        } else {
            self.draw(cut.middle);
        }
        self.draw(cut.end);
    }

    /// Passes filtered output to the emulated terminal.
    fn draw(&mut self, text: &str) {
        match &mut self.scrollback {
            Some(scrollback) => {
                let styles = self.filter.styles();
                let observer = ScrollbackObserver::new(scrollback, styles);
                self.terminal.feed_with(text, observer);
            }
            None => self.terminal.feed(text),
        }
    }

    /// Sets the size of the terminal.
    pub fn resize(&mut self, size: Size) {
        let size = bounded(size);
        let (cols, rows) = (size.cols.into(), size.rows.into());
        match &mut self.scrollback {
            Some(scrollback) => {
                let styles = self.filter.styles();
                let observer = ScrollbackObserver::new(scrollback, styles);
                self.terminal.resize_with(cols, rows, observer);
            }
            None => self.terminal.resize(cols, rows),
        }
    }

    /// The size of the terminal.
    pub fn size(&self) -> Size {
        let (cols, rows) = self.terminal.size();
        let side = |side| u16::try_from(side).unwrap_or(u16::MAX);
        Size {
            rows: side(rows),
            cols: side(cols),
        }
    }

    /// Row and column of the cursor, from 0; `None` if it is hidden.
    pub fn cursor(&self) -> Option<(usize, usize)> {
        let place = self.terminal.cursor().position();
        place.map(|(col, row)| (row, col))
    }

    pub(crate) fn terminal(&self) -> &avt::Terminal {
        &self.terminal
    }

    /// The style of a cell of [`terminal`](Self::terminal).
    pub(crate) fn style(&self, cell: &avt::Cell) -> Style {
        let style = self.filter.styles().original(cell.pen().into());
        if cell.char() == ' ' {
            style.erased()
        } else {
            style
        }
    }

    /// A sequence that makes a terminal of this size look and behave the same. It clears a terminal
    /// that shows something else.
    pub fn snapshot(&self) -> Bytes {
        let is_too_long = |snapshot: &str| snapshot.len() + filter::MAX_END > MAX_SNAPSHOT;
        let above = self.scrollback.as_ref().filter(|rows| !rows.is_empty());
        let mut snapshot = snapshot::draw(&self.terminal, &self.filter, above);
        if is_too_long(&snapshot) && above.is_some() {
            // The colours of the screen are more important than the rows above it.
            snapshot = snapshot::draw(&self.terminal, &self.filter, None);
        }
        if is_too_long(&snapshot) {
            snapshot = self.plain();
        }
        self.filter.write_end(&mut snapshot);
        snapshot.into()
    }

    /// The rows of the screen as text.
    pub fn rows(&self) -> Vec<String> {
        let rows = self.terminal.screen().visible_lines();
        rows.map(|line| {
            let text: String = line.chars().map(printable).collect();
            text.trim_end().to_owned()
        })
        .collect()
    }

    /// The snapshot without colours and other attributes.
    fn plain(&self) -> String {
        let cursor = self.terminal.cursor();
        let position = format!("\x1b[{};{}H", cursor.row + 1, cursor.col + 1);
        let mut out = RESET.to_owned();
        for (number, row) in (1_u32..).zip(self.rows()) {
            let row: String = row.chars().filter(|c| !c.is_control()).collect();
            if out.len() + row.len() + position.len() + 16 + filter::MAX_END > MAX_SNAPSHOT {
                break;
            }
            out.extend(["\x1b[", &number.to_string(), ";1H", &row]);
        }
        out + &position
    }
}

impl std::fmt::Debug for Screen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Screen({:?})", self.terminal.size())
    }
}

/// Decodes UTF-8 that was split at any byte. Invalid bytes become U+FFFD.
#[derive(Debug, Default)]
pub(crate) struct Utf8 {
    /// Start of an incomplete character, at most three bytes.
    incomplete: Vec<u8>,
}

impl Utf8 {
    /// All characters that are complete with these bytes.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> String {
        let joined;
        let bytes = if self.incomplete.is_empty() {
            bytes
        } else {
            joined = [&self.incomplete, bytes].concat();
            &joined
        };
        let mut text = String::with_capacity(bytes.len());
        let mut started = Vec::new();
        let mut chunks = bytes.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            text.push_str(chunk.valid());
            let invalid = chunk.invalid();
            if chunks.peek().is_none() && is_begin(invalid) {
                started = invalid.to_vec();
            } else if !invalid.is_empty() {
                text.push(char::REPLACEMENT_CHARACTER);
            }
        }
        self.incomplete = started;
        text
    }

    /// The replacement for an incomplete character at the end.
    pub(crate) fn finish(&mut self) -> &'static str {
        if std::mem::take(&mut self.incomplete).is_empty() {
            ""
        } else {
            "\u{fffd}"
        }
    }
}

/// True if these bytes are the start of a character.
fn is_begin(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

fn bounded(size: Size) -> Size {
    Size {
        rows: size.rows.clamp(1, MAX_ROWS),
        cols: size.cols.clamp(1, MAX_COLS),
    }
}

/// Writes formatted text, which never fails for a string.
fn put(out: &mut String, what: std::fmt::Arguments<'_>) {
    let _written = out.write_fmt(what);
}

/// RIS: resets a terminal to its initial state.
const RESET: &str = "\x1bc";

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    fn screen(rows: u16, cols: u16) -> Screen {
        Screen::new(Size { rows, cols }).unwrap()
    }

    fn restored(original: &Screen, rows: u16, cols: u16) -> Screen {
        let mut restored = screen(rows, cols);
        // The terminal shows something else when it receives the snapshot.
        restored.feed(b"\x1b[?1049h\x1b[31mother things\x1b[2;3r\x1b]0;");
        restored.feed(&original.snapshot());
        restored
    }

    #[test]
    fn late_participants_see_the_alternate_and_the_main_screen() {
        let mut original = screen(4, 20);
        original.feed(b"$ vim\r\n\x1b[?1049h\x1b[H\x1b[1;31m~ text");
        let mut late = restored(&original, 4, 20);
        assert_eq!(late.rows()[0], "~ text");
        for screen in [&mut original, &mut late] {
            screen.feed(b"\x1b[?1049l");
            assert_eq!(screen.rows()[0], "$ vim");
        }
    }

    #[test]
    fn a_split_sequence_or_character_continues_after_the_snapshot() {
        for (before, after) in [(&b"a\x1b[3"[..], &b"1mb"[..]), (b"a\x1b]0;ti", b"tle\x07b")] {
            let mut original = screen(2, 20);
            original.feed(before);
            let mut late = restored(&original, 2, 20);
            original.feed(after);
            late.feed(after);
            assert_eq!(original.rows(), late.rows());
            assert_eq!(late.rows()[0], "ab");
        }
        let mut screen = screen(2, 20);
        for byte in "é界".bytes() {
            screen.feed(&[byte]);
        }
        assert_eq!(screen.rows()[0], "é界");
    }

    #[test]
    fn lines_that_do_not_scroll_away_are_drawn() {
        let lines = |count: usize| "a\r\n".repeat(count);
        let text = lines(1000) + "the longest line\r\n" + &lines(1000);
        // Below the scrolling region, lines overwrite each other.
        let mut screen = screen(5, 20);
        screen.feed(format!("\x1b[1;3r\x1b[5;1H{text}").as_bytes());
        assert_eq!(screen.rows(), ["", "", "", "", "ahe longest line"]);
    }

    #[test]
    fn a_size_and_a_snapshot_are_bounded() {
        let largest = Size {
            rows: u16::MAX,
            cols: u16::MAX,
        };
        let mut screen = Screen::with_scrollback(largest).unwrap();
        screen.resize(largest);
        screen.feed("above\r\n".repeat(2000).as_bytes());
        // Each cell has its own colour.
        for row in 1..=MAX_ROWS / 4 {
            let mut line = format!("\x1b[{row};1H");
            for col in 0..MAX_COLS {
                let colour = format!("\x1b[38;2;{};{};7mx", row % 256, col % 256);
                line.extend([colour]);
            }
            screen.feed(line.as_bytes());
        }
        let snapshot = screen.snapshot();
        assert!(snapshot.len() <= MAX_SNAPSHOT, "{}", snapshot.len());
        let mut late = Screen::new(largest).unwrap();
        late.feed(&snapshot);
        assert_eq!(late.rows(), screen.rows());
    }

    /// WT-2: late participants see no concealed text, neither earlier nor later text.
    #[test]
    fn wt_2_a_snapshot_contains_no_concealed_text() {
        let mut original = screen(3, 30);
        original.feed(b"Password: \x1b[8mhunter2");
        let snapshot = original.snapshot();
        let text = String::from_utf8_lossy(&snapshot);
        assert!(!text.contains("hunter2"), "{text:?}");
        assert!(text.ends_with("\x1b[8m"), "{text:?}");
        let mut late = restored(&original, 3, 30);
        for screen in [&mut original, &mut late] {
            screen.feed(b"and more\x1b[m\r\nwelcome");
            assert_eq!(screen.rows(), ["Password:", "welcome", ""]);
        }
    }

    #[test]
    fn a_snapshot_has_all_attributes_and_no_padding() {
        let mut original = screen(4, 40);
        original.feed(
            b"\x1b[38:2::255:165:0morange\x1b[m plain\r\n\x1b[4:3;58;2;1;2;3mcurly\x1b[m \x1b[53;21mover\
              \x1b[m\r\n\x1b[7m  \x1b[K\x1b[44m\x1b[K\x1b[?2004h\x1b[?1006h",
        );
        let snapshot = original.snapshot();
        assert_eq!(
            String::from_utf8_lossy(&snapshot),
            "\x1bc\x1b[0;38;2;255;165;0morange\x1b[m plain\r\n\x1b[0;4:3;58;2;1;2;3mcurly\x1b[m \
             \x1b[0;53;4:2mover\r\n\x1b[0;7m  \x1b[0;48;5;4m\x1b[K\x1b[m\x1b[3;3H\x1b[0;7;48;5;4m\
             \x1b[?1006h\x1b[?2004h"
        );
        assert_eq!(restored(&original, 4, 40).snapshot(), snapshot);
        // A narrower window does not wrap lines that are shorter.
        let mut original = screen(4, 40);
        original.feed(b"one\r\ntwo");
        let mut late = restored(&original, 4, 40);
        late.resize(Size { rows: 4, cols: 20 });
        assert_eq!(late.rows(), ["one", "two", "", ""]);
    }

    /// Valid output of programs, mixed with invalid bytes.
    pub(crate) fn output() -> impl Strategy<Value = Vec<u8>> {
        let sequence = prop_oneof![
            prop::collection::vec(any::<u8>(), 0..12),
            "[ -~]{0,12}".prop_map(String::into_bytes),
            "[é界🙂\u{300}]{0,4}".prop_map(String::into_bytes),
            "\x1b\\[[0-9;?:]{0,9}[@A-Za-z`]".prop_map(String::into_bytes),
            "\x1b[ -~]".prop_map(String::into_bytes),
            "\x1b[\\]P_^X][ -~]{0,9}(\x07|\x1b\\\\)?".prop_map(String::into_bytes),
            prop::sample::select(vec![
                "\x1b[?1049h",
                "\x1b[?1049l",
                "\x1b[?6h",
                "\x1b[2;3r",
                "\x1b7",
                "\x1b8",
                "\r\n",
                "\x1b[?25l",
                "\x1b[4h",
                "\x1b(0",
                "\x0e",
                "\x1bH",
                "\x1b[3g",
                "\x1b[!p",
                "\x1b[8m",
                "\x1b[28m",
                "\x1bc",
            ])
            .prop_map(|text| text.as_bytes().to_vec()),
        ];
        prop::collection::vec(sequence, 0..40).prop_map(|parts| parts.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_snapshot_restores_the_screen_and_its_behaviour(
            before in output(),
            resized in prop::option::of((1..8_u16, 1..20_u16)),
            between in output(),
            after in output(),
        ) {
            let (mut rows, mut cols) = (5, 12);
            let mut original = screen(rows, cols);
            original.feed(&before);
            if let Some((new_rows, new_cols)) = resized {
                (rows, cols) = (new_rows, new_cols);
                original.resize(Size { rows, cols });
            }
            original.feed(&between);
            // An incomplete character is not on the screen yet.
            original.text.finish();
            let mut late = restored(&original, rows, cols);
            prop_assert_eq!(original.rows(), late.rows());
            prop_assert_eq!(original.snapshot(), late.snapshot());
            original.feed(&after);
            late.feed(&after);
            prop_assert_eq!(original.rows(), late.rows());
        }

        #[test]
        fn lines_that_scroll_off_the_screen_need_not_be_drawn(
            before in output(),
            parts in prop::collection::vec((0..3_usize, output()), 1..4),
            after in output(),
        ) {
            let size = Size { rows: 5, cols: 12 };
            let (mut skimmed, mut drawn) = (screen(5, 12), screen(5, 12));
            let mut flood = before;
            for (kind, between) in parts {
                for line in 0..700 {
                    let line = match kind {
                        0 => format!("line {line}\r\n"),
                        1 => format!("\x1b[3{}mé界 {line}\t{line}\x1b[4{}m\r\n", line % 8, line % 5),
                        _ => format!("a line of more than one row {line}\r\n\r"),
                    };
                    flood.extend_from_slice(line.as_bytes());
                }
                flood.extend_from_slice(&between);
            }
            flood.extend_from_slice(&after);
            skimmed.feed(&flood);
            let mut text = Utf8::default();
            let text = text.push(&flood);
            let shown = drawn.filter.filter(&text).into_owned();
            drawn.terminal.feed(&shown);
            prop_assert_eq!(skimmed.size(), size);
            prop_assert_eq!(skimmed.rows(), drawn.rows());
            prop_assert_eq!(skimmed.snapshot(), drawn.snapshot());
        }

        #[test]
        fn text_is_independent_of_splits(bytes in prop::collection::vec(any::<u8>(), 0..60), cut in 1..9_usize) {
            let mut whole = Utf8::default();
            let expected = whole.push(&bytes) + whole.finish();
            let mut cuts = Utf8::default();
            let mut text: String = bytes.chunks(cut).map(|piece| cuts.push(piece)).collect();
            text.push_str(cuts.finish());
            prop_assert_eq!(text, expected.clone());
            prop_assert_eq!(expected, String::from_utf8_lossy(&bytes));
        }
    }
}

//! Rows that have scrolled off the main screen, for participants who join late.
//!
//! The emulated terminal keeps no rows above its screen: a thousand rows of 600 columns would take
//! ten megabytes as cells. A row that leaves the screen becomes text with attributes. A terminal that
//! gets these texts wraps the lines at its own width.

use std::collections::VecDeque;

use avt::parser::{EdScope, ElScope, Function};
use avt::{Cell, Line, Observation, Observer, Operation, ScreenKind, Terminal};

use super::row::{self, RowWriter};
use super::style::{Style, Styles};

/// Maximum rows above a screen: some dozen pages. More would take most of the time that is saved by
/// not drawing a large amount of output.
pub const MAX_SCROLLBACK_ROWS: usize = 1000;

/// Maximum size of these rows in memory, and in a snapshot, in bytes: more than a thousand rows of 80
/// columns with some colours. With it, a snapshot of a common screen takes about half of the queue of
/// a participant ([`VIEWER_QUEUE`](crate::managed::VIEWER_QUEUE)), and output fits behind it.
pub const MAX_SCROLLBACK: usize = 128 * 1024;

/// The rows above the main screen, from the oldest.
#[derive(Debug, Default)]
pub(super) struct Scrollback {
    rows: VecDeque<ScrollbackRow>,
    /// Size of the rows in memory, in bytes.
    bytes: usize,
}

#[derive(Debug)]
struct ScrollbackRow {
    /// It starts and ends without attributes.
    text: Box<str>,
    end: RowEnd,
    /// The first character is wide.
    starts_wide: bool,
}

/// The end of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RowEnd {
    /// The end of a line.
    Line,
    /// The line continues in the next row.
    Wrap,
    /// The line continues after a blank column, which is not in the text.
    WrapAfterBlank,
}

impl Scrollback {
    /// True if there are no rows.
    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// True if the first row of the screen continues the last one of these rows.
    pub(super) fn ends_wrapped(&self) -> bool {
        self.rows.back().is_some_and(|row| row.end != RowEnd::Line)
    }

    /// Writes all rows, before the first row of the screen. Soft-wrapped rows are joined.
    pub(super) fn write(&self, out: &mut String, first: Option<&Line>) {
        let followers = self.rows.iter().skip(1).map(|row| row.starts_wide);
        let followers = followers.chain([first.is_some_and(row::starts_wide)]);
        for (row, is_before_wide) in self.rows.iter().zip(followers) {
            out.push_str(&row.text);
            match row.end {
                RowEnd::Line => out.push_str("\r\n"),
                RowEnd::WrapAfterBlank if !is_before_wide => out.push(' '),
                RowEnd::Wrap | RowEnd::WrapAfterBlank => {}
            }
        }
    }

    /// Adds a row, and drops the oldest ones beyond the limits.
    fn push(&mut self, line: &Line, styles: &Styles) {
        let (cells, end) = match row::without_last_blank(line) {
            Some(cells) => (cells, RowEnd::WrapAfterBlank),
            None if line.is_wrapped() => (line.cells(), RowEnd::Wrap),
            None => (line.cells(), RowEnd::Line),
        };
        // Most rows are short, and a row without text is one blank: it may continue a line, whose wrap
        // happens with its first character.
        let is_used = |cell: &Cell| cell.char() != ' ' || !cell.pen().is_default();
        let used = cells.iter().rposition(is_used).map_or(1, |last| last + 2);
        let cells = match cells.get(..used) {
            Some(used) if !line.is_wrapped() => used,
            _ => cells,
        };
        let mut text = String::new();
        let mut writer = RowWriter::scrolling(&mut text, styles);
        writer.write(cells, line.is_wrapped(), self.ends_wrapped());
        writer.set(Style::default());
        let row = ScrollbackRow {
            text: text.into(),
            end,
            starts_wide: row::starts_wide(line),
        };
        self.bytes += row.size();
        self.rows.push_back(row);
        while self.rows.len() > MAX_SCROLLBACK_ROWS || self.bytes > MAX_SCROLLBACK {
            let Some(oldest) = self.rows.pop_front() else {
                break;
            };
            self.bytes -= oldest.size();
        }
    }

    /// Ends the line of the last row: the screen no longer continues it.
    fn end_line(&mut self) {
        if let Some(last) = self.rows.back_mut() {
            last.end = RowEnd::Line;
        }
    }

    fn clear(&mut self) {
        *self = Self::default();
    }
}

impl ScrollbackRow {
    /// Size in memory, which is more than that in a snapshot.
    fn size(&self) -> usize {
        self.text.len() + size_of::<Self>()
    }
}

/// Adds the rows that scroll off the main screen while a terminal gets output or another size.
pub(super) struct ScrollbackObserver<'s> {
    scrollback: &'s mut Scrollback,
    styles: &'s Styles,
    /// The operation moves rows above the screen. Others remove them.
    keeps_rows: bool,
}

impl<'s> ScrollbackObserver<'s> {
    pub(super) fn new(scrollback: &'s mut Scrollback, styles: &'s Styles) -> Self {
        Self {
            scrollback,
            styles,
            keeps_rows: false,
        }
    }

    /// Prepares for a function. The effects are those of xterm.js, which the pages use: clearing the
    /// screen, removing lines and scrolling by `SU` add no rows, and the alternate screen has none.
    fn before_function(&mut self, terminal: &Terminal, function: &Function) {
        use Function::{Ed, Lf, Nel, Print, Rep, Ris};
        self.keeps_rows = matches!(function, Print(_) | Lf | Nel | Rep(_));
        if self.keeps_rows {
            return;
        }
        let is_main = terminal.active_screen_kind() == ScreenKind::Primary;
        match function {
            Ris => self.scrollback.clear(),
            Ed(EdScope::SavedLines) if is_main => self.scrollback.clear(),
            _ if is_main && replaces_first_row(terminal, function) => self.scrollback.end_line(),
            _ => {}
        }
    }
}

impl Observer for ScrollbackObserver<'_> {
    type Output = ();

    fn before(&mut self, context: &mut Observation<'_>, operation: &Operation) {
        let terminal = context.terminal();
        match operation {
            Operation::Function(function) => self.before_function(terminal, function),
            Operation::Resize { cols, .. } => {
                self.keeps_rows = true;
                // The last row has the previous width. The first row of the screen would continue
                // it in another column.
                let (previous, _) = terminal.size();
                if *cols != previous {
                    self.scrollback.end_line();
                }
            }
        }
    }

    fn evicted(&mut self, _: &mut Observation<'_>, line: &Line) {
        if self.keeps_rows {
            self.scrollback.push(line, self.styles);
        } else {
            self.scrollback.end_line();
        }
    }

    fn end(&mut self, _: &mut Observation<'_>) {}
}

/// True if the first row of the screen may be another one after this function, or an empty one.
fn replaces_first_row(terminal: &Terminal, function: &Function) -> bool {
    use Function::{Decaln, Dl, Ed, El, Il, Ri, Sd, Su};
    let cursor = terminal.cursor();
    let (is_first_row, is_start) = (cursor.row == 0, (cursor.row, cursor.col) == (0, 0));
    match function {
        Su(_) | Sd(_) | Decaln | Ed(EdScope::Above | EdScope::All) => true,
        Ri | Il(_) | Dl(_) | El(ElScope::All) => is_first_row,
        Ed(EdScope::Below) | El(ElScope::ToRight) => is_start,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{MAX_SCROLLBACK, MAX_SCROLLBACK_ROWS, ScrollbackRow};
    use crate::screen::tests::output;
    use crate::screen::{Screen, snapshot};
    use crate::size::Size;

    fn new_screen(rows: u16, cols: u16) -> Screen {
        Screen::with_scrollback(Size { rows, cols }).unwrap()
    }

    /// The rows above the screen, as they are in a snapshot.
    fn above(screen: &Screen) -> String {
        let mut out = String::new();
        let first = screen.terminal.primary_screen().line(0);
        screen.scrollback.as_ref().unwrap().write(&mut out, first);
        out
    }

    #[test]
    fn rows_that_scroll_off_the_screen_are_kept_with_attributes() {
        let mut screen = new_screen(2, 10);
        screen.feed(
            b"\x1b[31mone\x1b[m\r\n\r\na \x1b[4:3mb\x1b[m      c\r\n\x1b[44m\x1b[K\x1b[m\r\nend",
        );
        assert_eq!(
            above(&screen),
            "\x1b[0;38;5;1mone\x1b[m\r\n\r\na \x1b[0;4:3mb\x1b[m      c\r\n"
        );
        assert_eq!(
            String::from_utf8_lossy(&screen.snapshot()),
            "\x1bc\x1b[0;38;5;1mone\x1b[m\r\n\r\na \x1b[0;4:3mb\x1b[m      c\r\n\
             \x1b[0;48;5;4m\x1b[K\x1b[m\r\nend\x1b[2;4H\x1b[m"
        );
    }

    #[test]
    fn the_rows_above_the_screen_leave_a_late_one() {
        let mut original = new_screen(4, 10);
        original.feed(b"one\r\ntwo\r\nthree\r\nfour\r\nfive\r\nsix\x1b[2;1H\x1b[J");
        assert_eq!(original.rows(), ["three", "", "", ""]);
        assert_eq!(above(&original), "one\r\ntwo\r\n");
        let mut late = new_screen(4, 10);
        late.feed(&original.snapshot());
        assert_eq!(late.rows(), original.rows());
        assert_eq!(late.snapshot(), original.snapshot());
        // A screen without rows above it shows the same.
        let mut late = Screen::new(original.size()).unwrap();
        late.feed(&original.snapshot());
        assert_eq!(late.rows(), original.rows());
    }

    #[test]
    fn soft_wrapped_rows_are_joined() {
        let mut screen = new_screen(2, 5);
        screen.feed("abcdefgh\r\nxyz \u{754c}!\r\nabcd  efgh\r\n1\r\n2".as_bytes());
        assert_eq!(
            above(&screen),
            "abcdefgh\r\nxyz \u{754c}!\r\nabcd  efgh\r\n"
        );
        let mut late = new_screen(2, 5);
        late.feed(&screen.snapshot());
        assert_eq!(above(&late), above(&screen));
        // The first row of the screen continues the last row above it.
        screen.feed(b"\r\n0123456789ab");
        assert!(above(&screen).ends_with("2\r\n01234"));
        let mut late = new_screen(2, 5);
        late.feed(&screen.snapshot());
        assert_eq!(late.rows(), ["56789", "ab"]);
        // It does not after a change of the width, and not after it was cleared.
        screen.resize(Size { rows: 2, cols: 7 });
        assert!(above(&screen).ends_with("01234\r\n"));
        let mut late = new_screen(2, 7);
        late.feed(&screen.snapshot());
        assert_eq!(late.rows(), screen.rows());
        let mut screen = new_screen(2, 5);
        screen.feed(b"0123456789ab\x1b[H\x1b[J$");
        assert_eq!(above(&screen), "01234\r\n");
    }

    #[test]
    fn only_scrolling_of_the_main_screen_adds_rows() {
        let mut screen = new_screen(3, 10);
        screen.feed(b"0\r\n1\r\n2\r\n3");
        assert_eq!(above(&screen), "0\r\n");
        for other in [
            // The alternate screen.
            "\x1b[?1049ha\r\nb\r\nc\r\nd\x1b[3J\x1b[?1049l",
            // Scrolling by a function, removed lines, and a cleared screen.
            "\x1b[S",
            "\x1b[H\x1b[M",
            "\x1b[2J",
        ] {
            screen.feed(other.as_bytes());
            assert_eq!(above(&screen), "0\r\n", "{other:?}");
        }
        // Lines above the end of a scrolling region.
        screen.feed(b"\x1b[Hx\r\ny\x1b[1;2r\x1b[2;1H\n");
        assert_eq!(above(&screen), "0\r\nx\r\n");
        // The commands `clear` and `reset` remove the rows.
        for clearing in ["\x1b[H\x1b[2J\x1b[3J", "\x1bc"] {
            screen.feed(format!("{clearing}\x1b[r").as_bytes());
            assert_eq!(above(&screen), "", "{clearing:?}");
            screen.feed(b"\x1b[Hz\r\n\r\n\r\n");
            assert_eq!(above(&screen), "z\r\n");
        }
    }

    #[test]
    fn a_smaller_screen_moves_rows_above_it() {
        let mut screen = new_screen(3, 10);
        screen.feed(b"abcdefgh\r\nij\r\nkl");
        screen.resize(Size { rows: 3, cols: 4 });
        assert_eq!(above(&screen), "abcd");
        assert_eq!(screen.rows(), ["efgh", "ij", "kl"]);
        screen.resize(Size { rows: 1, cols: 4 });
        assert_eq!(above(&screen), "abcdefgh\r\nij\r\n");
    }

    #[test]
    fn the_rows_above_a_screen_are_bounded() {
        let mut screen = new_screen(2, 20);
        for n in 0..2 * MAX_SCROLLBACK_ROWS {
            screen.feed(format!("{n}\r\n").as_bytes());
        }
        let rows = above(&screen);
        assert_eq!(rows.lines().count(), MAX_SCROLLBACK_ROWS);
        assert!(rows.ends_with("1998\r\n"), "{}", &rows[rows.len() - 20..]);
        let mut screen = new_screen(2, 600);
        for n in 0..100 {
            screen.feed(format!("{n}{}\r\n", "\x1b[31m-\x1b[32m-".repeat(200)).as_bytes());
        }
        let scrollback = screen.scrollback.as_ref().unwrap();
        assert!(scrollback.bytes <= MAX_SCROLLBACK);
        assert!(above(&screen).len() <= scrollback.bytes);
        assert!(scrollback.rows.len() > 10);
        let sizes = scrollback.rows.iter().map(ScrollbackRow::size);
        assert_eq!(sizes.sum::<usize>(), scrollback.bytes);
    }

    /// WT-2: late participants see no concealed text, neither on the screen nor above it.
    #[test]
    fn wt_2_the_rows_above_a_screen_have_no_concealed_text() {
        let mut screen = new_screen(2, 30);
        screen.feed(b"Password: \x1b[8mhunter2\x1b[m\r\n1\r\n2\r\n3");
        assert_eq!(above(&screen), "Password:\r\n1\r\n");
    }

    /// The beginning of a large output is not drawn, and the rest is the same.
    #[test]
    fn output_that_scrolls_off_completely_need_not_be_drawn() {
        let (mut skimmed, mut drawn) = (new_screen(5, 12), new_screen(5, 12));
        let lines = |kind: u8| {
            (0..2500).map(move |n| match kind {
                0 => format!("line {n}\r\n"),
                1 => format!(
                    "\x1b[3{}m\u{e9}\u{754c} {n}\t{n}\x1b[4{}m\r\n",
                    n % 8,
                    n % 5
                ),
                _ => format!("a line of more than one row {n}\r\n"),
            })
        };
        for kind in [0, 1, 2] {
            let flood = lines(kind).collect::<Vec<_>>().concat();
            skimmed.feed(flood.as_bytes());
            for line in lines(kind) {
                drawn.feed(line.as_bytes());
            }
            assert_eq!(skimmed.rows(), drawn.rows());
            assert_eq!(above(&skimmed), above(&drawn));
            assert_eq!(skimmed.snapshot(), drawn.snapshot());
        }
    }

    /// The snapshot without the rows above the screen.
    fn drawn(screen: &Screen) -> String {
        snapshot::draw(&screen.terminal, &screen.filter, None)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn the_screen_below_the_rows_is_the_same(
            before in output(),
            resized in prop::option::of((1..8_u16, 1..20_u16)),
            between in output(),
            after in output(),
        ) {
            let mut original = new_screen(5, 12);
            original.feed(&before);
            if let Some((rows, cols)) = resized {
                original.resize(Size { rows, cols });
            }
            original.feed(&between);
            // An incomplete character is not on the screen yet.
            original.text.finish();
            let mut late = Screen::new(original.size()).unwrap();
            late.feed(&original.snapshot());
            prop_assert_eq!(original.rows(), late.rows());
            prop_assert_eq!(drawn(&original), drawn(&late));
            original.feed(&after);
            late.feed(&after);
            prop_assert_eq!(original.rows(), late.rows());
        }
    }
}

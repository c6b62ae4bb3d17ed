//! Drawing of a remote screen on the user's own terminal.
//!
//! Output of the command is never passed to the terminal. It could request an answer from the
//! terminal, which would be sent as input, or change the clipboard, the title and the modes. It is
//! fed to a [`Screen`], whose content is drawn with a few harmless sequences: positions, colours,
//! the end of a line, and the visibility of the cursor.

use std::fmt::Write as _;

use unicode_width::UnicodeWidthChar as _;

use crate::recording::export::affects_terminal;
use crate::screen::{Attribute, Colour, Screen, Style, Underline, printable};
use crate::size::Size;

/// The content of the terminal, so that only differences are drawn.
#[derive(Debug, Default)]
pub struct Painter {
    rows: Vec<String>,
    window: Option<Size>,
    cursor: String,
    keys: Option<bool>,
}

/// Options of drawing.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// Size of the terminal. If the screen is larger, the part with the cursor is shown.
    pub window: Size,
    /// Text of the last row; the screen is above it.
    pub status: &'a str,
    /// Keys go to the command: the terminal sends them in the form that the command requested.
    pub is_typing: bool,
}

impl Painter {
    /// A painter for a terminal with unknown content.
    pub fn new() -> Self {
        Self::default()
    }

    /// Marks the content of the terminal as unknown.
    pub fn forget(&mut self) {
        *self = Self::default();
    }

    /// The sequence that makes the terminal show this screen.
    pub fn paint(&mut self, screen: &Screen, view: View<'_>) -> String {
        let mut out = String::new();
        if self.window != Some(view.window) {
            self.forget();
            self.window = Some(view.window);
            out.push_str(CLEAR);
        }
        let Part { top, left, .. } = Part::of(screen, view.window);
        let height = usize::from(view.window.rows.saturating_sub(1));
        let width = usize::from(view.window.cols);
        let lines = screen.terminal().screen();
        let mut rows: Vec<String> = lines
            .visible_lines()
            .skip(top)
            .take(height)
            .map(|line| row(screen, line.cells(), left, width))
            .collect();
        rows.resize(height, String::new());
        rows.push(status(view.status, width));
        for (number, row) in rows.iter().enumerate() {
            if self.rows.get(number) != Some(row) {
                put(&mut out, format_args!("\x1b[{};1H\x1b[0m{row}", number + 1));
                out.push_str("\x1b[0m\x1b[K");
                self.cursor.clear();
            }
        }
        self.rows = rows;
        self.place_cursor(&mut out, screen, view.window);
        let keys = view.is_typing && screen.terminal().cursor_key_app_mode();
        if self.keys.replace(keys) != Some(keys) {
            out.push_str(if keys { "\x1b[?1h" } else { "\x1b[?1l" });
        }
        out
    }

    fn place_cursor(&mut self, out: &mut String, screen: &Screen, window: Size) {
        let cursor = screen.terminal().cursor();
        let part = Part::of(screen, window);
        let shown = part.position_in_window(cursor.row, column(screen), window);
        let cursor = match shown.filter(|_| cursor.visible) {
            Some((row, col)) => format!("\x1b[{};{}H\x1b[?25h", row + 1, col + 1),
            None => "\x1b[?25l".to_owned(),
        };
        if cursor != self.cursor {
            out.push_str(&cursor);
            self.cursor = cursor;
        }
    }
}

/// The sequence that restores a terminal after drawing.
pub const RESTORE: &str = "\x1b[0m\x1b[?1l\x1b[?25h";

/// Column of the cursor. A cursor behind the last column waits for the next character, and is shown
/// in the last column.
fn column(screen: &Screen) -> usize {
    let (cols, _) = screen.terminal().size();
    screen.terminal().cursor().col.min(cols.saturating_sub(1))
}

/// The visible part of a screen: all of it if it fits, else the part around the cursor.
struct Part {
    top: usize,
    left: usize,
}

impl Part {
    fn of(screen: &Screen, window: Size) -> Self {
        let cursor = screen.terminal().cursor();
        let room = usize::from(window.rows.saturating_sub(1));
        let width = usize::from(window.cols);
        Self {
            top: (cursor.row + 1).saturating_sub(room),
            left: (column(screen) + 1).saturating_sub(width),
        }
    }

    /// Position in the window of a position on the screen.
    fn position_in_window(&self, row: usize, col: usize, window: Size) -> Option<(usize, usize)> {
        let row = row.checked_sub(self.top)?;
        let col = col.checked_sub(self.left)?;
        let fits = row + 1 < usize::from(window.rows) && col < usize::from(window.cols);
        fits.then_some((row, col))
    }
}

/// A row of the screen from column `left` on, in at most `width` columns.
fn row(screen: &Screen, cells: &[avt::Cell], left: usize, width: usize) -> String {
    let visible = cells.get(left..).unwrap_or_default();
    let visible = visible.get(..width).unwrap_or(visible);
    let blank = |cell: &&avt::Cell| cell.char() == ' ' && screen.style(cell) == Style::default();
    let len = visible.len() - visible.iter().rev().take_while(blank).count();
    let mut out = String::new();
    let mut current = None;
    let mut moved = false;
    for (col, cell) in visible.iter().take(len).enumerate() {
        // The second half of a wide character: its first half was written, or is outside the
        // window.
        let cut = (cell.width() == 0 && col == 0) || (cell.width() == 2 && col + 2 > width);
        if cell.width() == 0 && !cut {
            continue;
        }
        if moved {
            put(&mut out, format_args!("\x1b[{}G", col + 1));
        }
        let style = screen.style(cell);
        if current != Some(style) {
            attributes(&mut out, style);
            current = Some(style);
        }
        let c = if cut { ' ' } else { printable(cell.char()) };
        out.push(if affects_terminal(c) {
            char::REPLACEMENT_CHARACTER
        } else {
            c
        });
        // Terminals do not agree on the width of such a character.
        moved = !c.is_ascii();
    }
    out
}

/// SGR with these attributes, as far as all terminals have them.
fn attributes(out: &mut String, style: Style) {
    out.push_str("\x1b[0");
    let attributes = [
        (style.has(Attribute::Bold), "1"),
        (style.has(Attribute::Faint), "2"),
        (style.has(Attribute::Italic), "3"),
        (style.underline != Underline::None, "4"),
        (style.has(Attribute::Blink), "5"),
        (style.has(Attribute::Inverse), "7"),
        (style.has(Attribute::Strikethrough), "9"),
    ];
    for (_, number) in attributes.into_iter().filter(|(is_set, _)| *is_set) {
        put(out, format_args!(";{number}"));
    }
    for (colour, kind) in [(style.foreground, 38), (style.background, 48)] {
        match colour {
            Some(Colour::Indexed(index)) => put(out, format_args!(";{kind};5;{index}")),
            Some(Colour::Rgb(r, g, b)) => put(out, format_args!(";{kind};2;{r};{g};{b}")),
            None => {}
        }
    }
    out.push('m');
}

/// The last row. Its text may come from untrusted sources.
fn status(text: &str, width: usize) -> String {
    // It is one column shorter: a character at the end that a terminal treats as wider would scroll
    // the window.
    let room = width.saturating_sub(1);
    let mut out = "\x1b[0;7m".to_owned();
    let mut col = 0;
    let mut moved = false;
    for c in text
        .chars()
        .map(|c| if affects_terminal(c) { ' ' } else { c })
    {
        let columns = c.width().unwrap_or(0);
        if col + columns > room {
            break;
        }
        if moved {
            put(&mut out, format_args!("\x1b[{}G", col + 1));
        }
        out.push(c);
        col += columns;
        // Terminals do not agree on its width, as in the rows above.
        moved = !c.is_ascii();
    }
    out
}

fn put(out: &mut String, what: std::fmt::Arguments<'_>) {
    // Writing into a string does not fail.
    let _written = out.write_fmt(what);
}

const CLEAR: &str = "\x1b[0m\x1b[2J";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::screen::tests::output;

    fn size(rows: u16, cols: u16) -> Size {
        Size { rows, cols }
    }

    fn view(window: Size) -> View<'static> {
        View {
            window,
            status: "watching",
            is_typing: true,
        }
    }

    /// Checks that a frame contains only text and the few permitted sequences.
    fn only_draws(frame: &str) -> bool {
        let mut rest = frame;
        while let Some(c) = rest.chars().next() {
            rest = &rest[c.len_utf8()..];
            if c != '\x1b' {
                if affects_terminal(c) {
                    return false;
                }
                continue;
            }
            let Some(after) = rest.strip_prefix('[') else {
                return false;
            };
            let end = after.find(|c: char| !c.is_ascii_digit() && c != ';' && c != '?');
            let Some(end) = end else { return false };
            let (parameters, last) = after.split_at(end);
            let last_char = last.chars().next();
            let known = match last_char {
                Some('H' | 'G' | 'K' | 'm' | 'J') => !parameters.contains('?'),
                Some('h' | 'l') => ["?25", "?1"].contains(&parameters),
                _ => false,
            };
            if !known {
                return false;
            }
            rest = &last[1..];
        }
        true
    }

    #[test]
    fn sequences_for_the_terminal_do_not_reach_it() {
        for hostile in [
            "\x1b]52;c;cm0gLXJmIC8=\x07",
            "\x1b]52;c;cm0gLXJmIC8=",
            "\x1b[c\x1b[6n\x1b[>c\x1bZ",
            "\x1bP$q\"p\x1b\\\x1bPq#0~\x1b\\",
            "\x1b]0;title\x07\x1b]8;;file:///etc\x07here\x1b]8;;\x07",
            "\u{9b}6n\u{9d}52;c;YQ==\u{9c}",
            "\x05\x07\x0e\x1b[?1000h\x1b[?2004h\x1b[5i",
            "\u{202e}live\u{2066}",
        ] {
            let mut screen = Screen::new(size(4, 20)).unwrap();
            screen.feed(hostile.as_bytes());
            let frame = Painter::new().paint(&screen, view(size(5, 20)));
            assert!(only_draws(&frame), "{hostile:?}: {frame:?}");
        }
    }

    #[test]
    fn only_differences_are_drawn() {
        let mut screen = Screen::new(size(4, 20)).unwrap();
        screen.feed(b"one\r\ntwo");
        let mut painter = Painter::new();
        let window = view(size(5, 20));
        assert!(painter.paint(&screen, window).contains("one"));
        assert_eq!(painter.paint(&screen, window), "");
        screen.feed(b"!");
        let frame = painter.paint(&screen, window);
        assert!(
            frame.contains("two!") && !frame.contains("one"),
            "{frame:?}"
        );
        painter.forget();
        assert!(painter.paint(&screen, window).contains("one"));
    }

    #[test]
    fn the_part_of_a_larger_screen_with_the_cursor_is_shown() {
        let mut screen = Screen::new(size(40, 100)).unwrap();
        for row in 1..=40 {
            screen.feed(format!("\x1b[{row};1Hrow {row}").as_bytes());
        }
        let mut shown = Screen::new(size(5, 10)).unwrap();
        let mut painter = Painter::new();
        shown.feed(painter.paint(&screen, view(size(5, 10))).as_bytes());
        assert_eq!(
            shown.rows(),
            ["row 37", "row 38", "row 39", "row 40", "watching"]
        );
        screen.feed(b"\x1b[1;1H");
        shown.feed(painter.paint(&screen, view(size(5, 10))).as_bytes());
        assert_eq!(shown.rows()[0], "row 1");
    }

    /// Wide characters take two columns, and the last row does not continue below the window.
    #[test]
    fn the_last_row_is_truncated_by_columns() {
        let mut screen = Screen::new(size(4, 20)).unwrap();
        screen.feed("one\r\ntwo\r\nthree\r\nfour".as_bytes());
        for (status_text, expected) in [
            ("\u{8aad}".repeat(30), "\u{8aad}".repeat(4)),
            (
                format!("a{}", "\u{1f511}".repeat(30)),
                format!("a{}", "\u{1f511}".repeat(4)),
            ),
            ("x".repeat(30), "x".repeat(9)),
        ] {
            let mut shown = Screen::new(size(5, 10)).unwrap();
            let view = View {
                status: &status_text,
                ..view(size(5, 10))
            };
            shown.feed(Painter::new().paint(&screen, view).as_bytes());
            let rows = shown.rows();
            assert_eq!(rows[..4], ["one", "two", "three", "four"], "{status_text}");
            assert_eq!(rows[4], expected, "{status_text}");
        }
    }

    #[test]
    fn keys_have_the_form_that_the_command_requested() {
        let mut screen = Screen::new(size(4, 20)).unwrap();
        let mut painter = Painter::new();
        let window = view(size(5, 20));
        assert!(painter.paint(&screen, window).contains("\x1b[?1l"));
        screen.feed(b"\x1b[?1h");
        assert_eq!(painter.paint(&screen, window), "\x1b[?1h");
        let watching = View {
            is_typing: false,
            ..window
        };
        assert_eq!(painter.paint(&screen, watching), "\x1b[?1l");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn a_frame_only_draws_the_screen(
            parts in prop::collection::vec(output(), 1..4),
            rows in 2..9_u16,
            cols in 4..30_u16,
        ) {
            let mut screen = Screen::new(size(5, 12)).unwrap();
            let mut painter = Painter::new();
            let mut shown = Screen::new(size(rows, cols)).unwrap();
            for part in parts {
                screen.feed(&part);
                let frame = painter.paint(&screen, view(size(rows, cols)));
                prop_assert!(only_draws(&frame), "{:?}", frame);
                shown.feed(frame.as_bytes());
                // Drawn from scratch, it is the same.
                let mut anew = Screen::new(size(rows, cols)).unwrap();
                anew.feed(Painter::new().paint(&screen, view(size(rows, cols))).as_bytes());
                prop_assert_eq!(anew.rows(), shown.rows());
                if rows > 5 && cols >= 12 {
                    for (row, original) in screen.rows().iter().enumerate() {
                        let harmless = crate::recording::export::sanitized(original);
                        prop_assert_eq!(&shown.rows()[row], harmless.trim_end());
                    }
                }
            }
        }
    }
}

//! A terminal that is drawn anew.

use std::{
    fmt::Write as _,
    io::{self, Stdout, Write},
};

use super::closed;
use crate::failure::Failure;

/// The second screen of the terminal, for as long as this lives: what was on the first one comes
/// back, whatever happens.
pub(crate) struct Screen {
    out: Stdout,
}

impl Screen {
    /// Switches to it, without a cursor.
    pub(crate) fn enter() -> Result<Self, Failure> {
        let mut screen = Self { out: io::stdout() };
        screen.write("\x1b[?1049h\x1b[?25l").map_err(closed)?;
        Ok(screen)
    }

    /// Shows these lines, as many as fit, and a last one at the bottom of them.
    pub(crate) fn draw(&mut self, lines: &[String], last: &str) -> Result<(), Failure> {
        let (_, height) = size().unwrap_or((80, 24));
        // An empty line and the last one.
        let room = height.saturating_sub(2).max(1);
        let shown = if lines.len() > room {
            room - 1
        } else {
            lines.len()
        };
        let mut text = String::from("\x1b[H");
        for line in lines.iter().take(shown) {
            text.push_str(line);
            text.push_str("\x1b[K\r\n");
        }
        if shown < lines.len() {
            // Writing into a string does not fail.
            let _written = write!(text, "… and {} more\x1b[K\r\n", lines.len() - shown);
        }
        let _written = write!(text, "\x1b[K\r\n{last}\x1b[K\x1b[J");
        self.write(&text).map_err(closed)
    }

    fn write(&mut self, text: &str) -> io::Result<()> {
        self.out.write_all(text.as_bytes())?;
        self.out.flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing back.
        drop(self.write("\x1b[?25h\x1b[?1049l"));
    }
}

/// The width of the terminal that stdout is, in columns.
pub(crate) fn width() -> Option<usize> {
    size().map(|(width, _)| width)
}

/// Columns and lines.
fn size() -> Option<(usize, usize)> {
    let (width, height) = terminal_size::terminal_size_of(io::stdout())?;
    // A terminal that does not know says 0.
    let known = |size: u16, usual| if size == 0 { usual } else { usize::from(size) };
    Some((known(width.0, 80), known(height.0, 24)))
}

//! A terminal screen that is redrawn in place.

use std::{
    fmt::Write as _,
    io::{self, Stdout, Write},
};

use super::write_failure;
use crate::failure::Failure;

/// The alternate screen of the terminal. Dropping it restores the main screen.
pub(crate) struct Screen {
    out: Stdout,
}

impl Screen {
    /// Switches to the alternate screen and hides the cursor.
    pub(crate) fn enter() -> Result<Self, Failure> {
        let mut screen = Self { out: io::stdout() };
        screen
            .write("\x1b[?1049h\x1b[?25l")
            .map_err(write_failure)?;
        Ok(screen)
    }

    /// Draws as many of these lines as fit, and a status line below them.
    pub(crate) fn draw(&mut self, lines: &[String], last: &str) -> Result<(), Failure> {
        let (_, height) = size().unwrap_or((80, 24));
        // Space for an empty line and the status line.
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
            // Writing to a string cannot fail.
            let _written = write!(text, "… and {} more\x1b[K\r\n", lines.len() - shown);
        }
        let _written = write!(text, "\x1b[K\r\n{last}\x1b[K\x1b[J");
        self.write(&text).map_err(write_failure)
    }

    fn write(&mut self, text: &str) -> io::Result<()> {
        self.out.write_all(text.as_bytes())?;
        self.out.flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Errors are ignored, because the terminal may be closed.
        drop(self.write("\x1b[?25h\x1b[?1049l"));
    }
}

/// The width of the terminal of stdout, in columns.
pub(crate) fn width() -> Option<usize> {
    size().map(|(width, _)| width)
}

/// Columns and lines.
fn size() -> Option<(usize, usize)> {
    let (width, height) = terminal_size::terminal_size_of(io::stdout())?;
    // An unknown size is reported as 0.
    let known = |size: u16, usual| if size == 0 { usual } else { usize::from(size) };
    Some((known(width.0, 80), known(height.0, 24)))
}

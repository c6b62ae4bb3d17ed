//! A terminal that is drawn anew.

use std::io::{self, Write};

use super::closed;
use crate::failure::Failure;

/// The second screen of the terminal, for as long as this lives: what was on the first one comes
/// back, whatever happens.
pub(crate) struct Screen(());

impl Screen {
    /// Switches to it, without a cursor.
    pub(crate) fn enter() -> Result<Self, Failure> {
        write("\x1b[?1049h\x1b[?25l")?;
        Ok(Self(()))
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
            text.push_str(&format!("… and {} more\x1b[K\r\n", lines.len() - shown));
        }
        text.push_str(&format!("\x1b[K\r\n{last}\x1b[K\x1b[J"));
        write(&text)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing back.
        drop(write("\x1b[?25h\x1b[?1049l"));
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

fn write(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(closed)
}

//! The terminal of a user that watches a session or a recording: displays a screen and reads keys.

use std::{
    io::{self, Write, stdout},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, Stdin, stdin},
    time::{Instant, sleep_until},
};
use tty::{
    draw::{Painter, RESTORE, View},
    screen::Screen,
    size::Size,
};

use super::signals::ResizeEvents;
use crate::{
    commands::forward::panel::screen::{self, is_available},
    failure::Failure,
    output::write_failure,
};

/// The terminal in use. Dropping it restores the terminal.
pub(super) struct TerminalView {
    _terminal: screen::Screen,
    painter: Painter,
    keys: Stdin,
    resized: ResizeEvents,
    /// True if the screen is out of date.
    stale: bool,
    next: Instant,
}

/// An event of the user or the terminal.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum UiEvent {
    /// Key presses, as sent by the terminal.
    Keys(Vec<u8>),
    /// The window has a new size.
    Resized(Size),
    /// The screen may be redrawn.
    Due,
    /// The terminal was closed.
    Closed,
}

impl TerminalView {
    /// Takes over the terminal.
    pub(super) fn enter() -> Result<Self, Failure> {
        if !is_available() {
            return Err(Failure::usage("this command needs a terminal").named("no_terminal"));
        }
        let cannot = |error| Failure::from_error("cannot switch the terminal to raw mode", error);
        Ok(Self {
            resized: ResizeEvents::listen().map_err(cannot)?,
            _terminal: screen::Screen::enter().map_err(cannot)?,
            painter: Painter::new(),
            keys: stdin(),
            stale: true,
            next: Instant::now(),
        })
    }

    /// Marks the screen as out of date.
    pub(super) fn mark_stale(&mut self) {
        self.stale = true;
    }

    /// Waits for input, or for the time of the next frame. Cancel safe.
    pub(super) async fn next(&mut self) -> Result<UiEvent, Failure> {
        let mut keys = [0; 1024];
        tokio::select! {
            read = self.keys.read(&mut keys) => match read {
                Ok(0) => Ok(UiEvent::Closed),
                Ok(read) => Ok(UiEvent::Keys(keys.get(..read).unwrap_or_default().to_vec())),
                Err(error) => Err(Failure::from_error("the terminal cannot be read", error)),
            },
            is_continued = self.resized.next() => {
                if is_continued {
                    self.painter.forget();
                }
                self.stale = true;
                Ok(UiEvent::Resized(window_size()))
            }
            () = sleep_until(self.next), if self.stale => Ok(UiEvent::Due),
        }
    }

    /// Draws the screen, and a status row below it.
    pub(super) fn draw(
        &mut self,
        screen: &Screen,
        status: &str,
        typing: bool,
    ) -> Result<(), Failure> {
        let view = View {
            window: window_size(),
            status,
            is_typing: typing,
        };
        let frame = self.painter.paint(screen, view);
        self.stale = false;
        self.next = Instant::now() + FRAME;
        write(&frame).map_err(write_failure)
    }
}

impl Drop for TerminalView {
    fn drop(&mut self) {
        // Errors are ignored, because the terminal may be closed.
        write(RESTORE).ok();
    }
}

/// The size of the window.
pub(super) fn window_size() -> Size {
    let size = terminal_size::terminal_size_of(io::stdout());
    let (cols, rows) = size.map_or((80, 24), |(width, height)| (width.0, height.0));
    // An unknown size is reported as 0. At least two rows are needed for the display.
    Size {
        rows: if rows == 0 { 24 } else { rows.max(2) },
        cols: if cols == 0 { 80 } else { cols },
    }
}

fn write(text: &str) -> io::Result<()> {
    let mut out = stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Interval between frames. A shorter one is not visible.
const FRAME: Duration = Duration::from_millis(16);

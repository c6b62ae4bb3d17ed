//! The terminal of whoever watches a session or a recording: it shows a screen, and gives keys.

use std::{
    io::{self, Write, stdout},
    time::Duration,
};

use daemon::signals::{Signal, Signals};
use tokio::{
    io::{AsyncReadExt as _, Stdin, stdin},
    time::{Instant, sleep_until},
};
use tty::{
    draw::{LEAVE, Painter, View},
    screen::Screen,
    size::Size,
};

use crate::{
    commands::forward::panel::screen::{self, is_there},
    failure::Failure,
    output::closed,
};

/// The terminal, taken over. Dropped, it is as it was.
pub(super) struct TerminalView {
    _terminal: screen::Screen,
    painter: Painter,
    keys: Stdin,
    resized: Signals,
    /// What is shown is not what is known.
    stale: bool,
    next: Instant,
}

/// What a person at the terminal did.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum UiEvent {
    /// Pressed keys, as the terminal sends them.
    Keys(Vec<u8>),
    /// Made the window another size.
    Resized(Size),
    /// What is known may be drawn.
    Due,
    /// Went.
    Gone,
}

impl TerminalView {
    /// Takes the terminal.
    pub(super) fn enter() -> Result<Self, Failure> {
        if !is_there() {
            return Err(Failure::usage("this needs a terminal to show it on").named("no_terminal"));
        }
        let cannot = |error| Failure::of("the terminal cannot be taken", error);
        Ok(Self {
            resized: Signals::of(Signal::WindowChange).map_err(cannot)?,
            _terminal: screen::Screen::enter().map_err(cannot)?,
            painter: Painter::new(),
            keys: stdin(),
            stale: true,
            next: Instant::now(),
        })
    }

    /// Something is to be drawn.
    pub(super) fn touch(&mut self) {
        self.stale = true;
    }

    /// Waits for what the person does, or for the time to draw. Cancel safe.
    pub(super) async fn next(&mut self) -> Result<UiEvent, Failure> {
        let mut keys = [0; 1024];
        tokio::select! {
            read = self.keys.read(&mut keys) => match read {
                Ok(0) => Ok(UiEvent::Gone),
                Ok(read) => Ok(UiEvent::Keys(keys.get(..read).unwrap_or_default().to_vec())),
                Err(error) => Err(Failure::of("the terminal cannot be read", error)),
            },
            () = self.resized.recv() => {
                self.stale = true;
                Ok(UiEvent::Resized(window()))
            }
            () = sleep_until(self.next), if self.stale => Ok(UiEvent::Due),
        }
    }

    /// Draws the screen, and a last row below it.
    pub(super) fn draw(
        &mut self,
        screen: &Screen,
        status: &str,
        typing: bool,
    ) -> Result<(), Failure> {
        let view = View {
            window: window(),
            status,
            typing,
        };
        let frame = self.painter.paint(screen, view);
        self.stale = false;
        self.next = Instant::now() + FRAME;
        write(&frame).map_err(closed)
    }
}

impl Drop for TerminalView {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing back.
        write(LEAVE).ok();
    }
}

/// How large the window is.
pub(super) fn window() -> Size {
    let size = terminal_size::terminal_size_of(io::stdout());
    let (cols, rows) = size.map_or((80, 24), |(width, height)| (width.0, height.0));
    // A terminal that does not know says 0; below two rows nothing is left to show.
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

/// Between two drawings: more of them nobody sees.
const FRAME: Duration = Duration::from_millis(16);

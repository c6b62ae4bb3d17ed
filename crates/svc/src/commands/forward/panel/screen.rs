//! The terminal while the panel has it, and how it is given back whatever happens.

use std::{
    io::{self, BufWriter, IsTerminal, Stdout, Write, stderr, stdin, stdout},
    sync::{
        Once,
        atomic::{AtomicBool, Ordering},
    },
};

use crossterm::{
    clipboard::CopyToClipboard,
    cursor::{Hide, Show},
    execute,
    terminal::{
        Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode,
        enable_raw_mode,
    },
};
use parking_lot::Mutex;
use ratatui::{Frame, Terminal, backend::CrosstermBackend};

use super::{job, messages::Messages};

/// The terminal, taken over. Dropped, it is as it was.
pub(crate) struct Screen {
    terminal: Terminal<CrosstermBackend<BufWriter<Stdout>>>,
}

/// Whether there is a terminal that a panel could have: one that reads keys and shows what is
/// drawn, and whose foreground this program is. (In the background it would be stopped.)
pub(crate) fn is_there() -> bool {
    let dumb =
        cfg!(unix) && std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    !dumb && stdout().is_terminal() && stdin().is_terminal() && job::is_foreground()
}

/// Whether colours are wanted: <https://no-color.org>.
pub(crate) fn has_colours() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

impl Screen {
    /// Takes the terminal.
    pub(crate) fn enter() -> io::Result<Self> {
        restore_on_panic();
        let screen = Self {
            terminal: Terminal::new(CrosstermBackend::new(BufWriter::new(stdout())))?,
        };
        take()?;
        Ok(screen)
    }

    /// Draws what has changed. False: something else has given the terminal back.
    pub(crate) fn draw(&mut self, with: impl FnOnce(&mut Frame<'_>)) -> io::Result<bool> {
        if !SHOWN.load(Ordering::Acquire) {
            return Ok(false);
        }
        self.terminal.draw(with)?;
        Ok(true)
    }

    /// Draws everything anew the next time. (The library's own way asks the terminal where its
    /// cursor is, and the answer would be read as keys.)
    pub(crate) fn redraw(&mut self) -> io::Result<()> {
        execute!(stdout(), Clear(ClearType::All))?;
        self.terminal = Terminal::new(CrosstermBackend::new(BufWriter::new(stdout())))?;
        Ok(())
    }

    /// Puts a text on the clipboard of whoever sits at the terminal (OSC 52).
    pub(crate) fn copy(&mut self, text: &str) -> io::Result<()> {
        execute!(
            self.terminal.backend_mut(),
            CopyToClipboard::to_clipboard_from(text)
        )
    }

    /// Gives the terminal to the shell, and stops with all of the job as it would have.
    pub(crate) fn suspend() -> io::Result<()> {
        leave();
        job::stop()
    }

    /// Takes the terminal again after [`suspend`](Self::suspend).
    pub(crate) fn resume(&mut self) -> io::Result<()> {
        take()?;
        self.redraw()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        leave();
    }
}

/// Gives the terminal back, once.
pub(crate) fn leave() {
    if !SHOWN.swap(false, Ordering::AcqRel) {
        return;
    }
    // Each by itself: what fails must not keep the next from being tried, and nobody can be told.
    drop(disable_raw_mode());
    drop(execute!(stdout(), LeaveAlternateScreen, Show));
    drop(stdout().flush());
    if let Some(messages) = MESSAGES.lock().take() {
        messages.end();
    }
}

fn take() -> io::Result<()> {
    // What is said on stderr would be drawn over.
    let messages = stderr().is_terminal().then(Messages::begin).transpose()?;
    *MESSAGES.lock() = messages;
    SHOWN.store(true, Ordering::Release);
    let taken = enable_raw_mode().and_then(|()| execute!(stdout(), EnterAlternateScreen, Hide));
    if taken.is_err() {
        leave();
    }
    taken
}

/// The newest line that was said on stderr since the last call.
pub(crate) fn message() -> Option<String> {
    MESSAGES.lock().as_ref().and_then(Messages::newest)
}

/// A panic is told on a terminal that can be read.
fn restore_on_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let tell = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            leave();
            tell(panic);
        }));
    });
}

/// Whether the terminal is the panel's.
static SHOWN: AtomicBool = AtomicBool::new(false);

static MESSAGES: Mutex<Option<Messages>> = Mutex::new(None);

#[cfg(test)]
mod tests {
    use std::{
        fs::File,
        io::Read,
        num::NonZero,
        process::{Command, Stdio},
    };

    use nix::{
        pty::{Winsize, openpty},
        sys::termios::{LocalFlags, tcgetattr},
    };

    use super::*;

    /// Set where this test runs itself, on a terminal of its own.
    const PANICS: &str = "SVC_TEST_PANICS";

    #[test]
    fn a_panic_is_told_on_a_terminal_that_was_given_back() {
        if std::env::var_os(PANICS).is_some() {
            let _screen = Screen::enter().unwrap();
            eprintln!("said meanwhile");
            panic!("a defect");
        }
        let size = |cells| NonZero::new(cells).unwrap();
        let window = Winsize {
            ws_row: 24,
            ws_col: 80,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let pty = openpty(Some(&window), None).unwrap();
        let end = || Stdio::from(pty.slave.try_clone().unwrap());
        let test = "a_panic_is_told_on_a_terminal_that_was_given_back";
        let name = format!("commands::forward::panel::screen::tests::{test}");
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &name, "--nocapture"])
            .env(PANICS, "")
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .unwrap();
        let mut shown = File::from(pty.master);
        let mut screen = vt100::Parser::new(size(24), size(80), 100);
        let mut was_taken = false;
        while !screen.screen().contents().contains("a defect") {
            let mut buffer = [0; 1];
            // Byte by byte: when the text is there, nothing behind it was looked at.
            shown.read_exact(&mut buffer).unwrap();
            screen.process(&buffer);
            was_taken |= screen.screen().alternate_screen();
        }
        assert!(was_taken && !screen.screen().alternate_screen());
        assert!(!screen.screen().hide_cursor());
        let text = screen.screen().contents();
        let told = text.find("said meanwhile").unwrap();
        assert!(told < text.find("a defect").unwrap(), "{text}");
        assert!(!child.wait().unwrap().success());
        let flags = tcgetattr(&pty.slave).unwrap().local_flags;
        assert!(flags.contains(LocalFlags::ICANON | LocalFlags::ECHO));
    }
}

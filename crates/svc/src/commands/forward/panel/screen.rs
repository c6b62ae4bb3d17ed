//! Takes over the terminal for the panel and always restores it.

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

/// The terminal in use by the panel. Dropping it restores the terminal.
pub(crate) struct Screen {
    terminal: Terminal<CrosstermBackend<BufWriter<Stdout>>>,
}

/// True if the panel can use the terminal: stdin and stdout are terminals, and the program is in
/// the foreground. (In the background it would be stopped.)
pub(crate) fn is_available() -> bool {
    let dumb =
        cfg!(unix) && std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    !dumb && stdout().is_terminal() && stdin().is_terminal() && job::is_foreground()
}

/// True if colours are enabled: <https://no-color.org>.
pub(crate) fn has_colours() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

impl Screen {
    /// Takes over the terminal.
    pub(crate) fn enter() -> io::Result<Self> {
        restore_on_panic();
        let screen = Self {
            terminal: Terminal::new(CrosstermBackend::new(BufWriter::new(stdout())))?,
        };
        take_over()?;
        Ok(screen)
    }

    /// Draws changes. Returns false if the terminal was already restored elsewhere.
    pub(crate) fn draw(&mut self, with: impl FnOnce(&mut Frame<'_>)) -> io::Result<bool> {
        if !SHOWN.load(Ordering::Acquire) {
            return Ok(false);
        }
        self.terminal.draw(with)?;
        Ok(true)
    }

    /// Requests a full redraw at the next frame. (The library's own function queries the cursor
    /// position, and the terminal's reply would be read as keys.)
    pub(crate) fn redraw(&mut self) -> io::Result<()> {
        execute!(stdout(), Clear(ClearType::All))?;
        self.terminal = Terminal::new(CrosstermBackend::new(BufWriter::new(stdout())))?;
        Ok(())
    }

    /// Copies a text to the clipboard of the terminal's user (OSC 52).
    pub(crate) fn copy(&mut self, text: &str) -> io::Result<()> {
        execute!(
            self.terminal.backend_mut(),
            CopyToClipboard::to_clipboard_from(text)
        )
    }

    /// Restores the terminal and stops the whole job, as Ctrl-Z does.
    pub(crate) fn suspend() -> io::Result<()> {
        restore();
        job::stop()
    }

    /// Takes over the terminal again after [`suspend`](Self::suspend).
    pub(crate) fn resume(&mut self) -> io::Result<()> {
        take_over()?;
        self.redraw()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

/// Restores the terminal, once.
pub(crate) fn restore() {
    if !SHOWN.swap(false, Ordering::AcqRel) {
        return;
    }
    // Each step runs even if a previous one failed, and errors cannot be reported.
    drop(disable_raw_mode());
    drop(execute!(stdout(), LeaveAlternateScreen, Show));
    drop(stdout().flush());
    if let Some(messages) = MESSAGES.lock().take() {
        messages.end();
    }
}

fn take_over() -> io::Result<()> {
    // Messages on stderr would be overwritten by the panel.
    let messages = stderr().is_terminal().then(Messages::begin).transpose()?;
    *MESSAGES.lock() = messages;
    SHOWN.store(true, Ordering::Release);
    let taken = enable_raw_mode().and_then(|()| execute!(stdout(), EnterAlternateScreen, Hide));
    if taken.is_err() {
        restore();
    }
    taken
}

/// The newest line on stderr since the last call.
pub(crate) fn message() -> Option<String> {
    MESSAGES.lock().as_ref().and_then(Messages::newest)
}

/// Restores the terminal before a panic is printed.
fn restore_on_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let tell = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore();
            tell(panic);
        }));
    });
}

/// True while the panel has the terminal.
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

    /// Set when this test runs itself on its own terminal.
    const PANICS: &str = "SVC_TEST_PANICS";

    #[test]
    fn a_panic_restores_the_terminal_first() {
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
        let test = "a_panic_restores_the_terminal_first";
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
            // Reads single bytes, so that nothing after the text is consumed.
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

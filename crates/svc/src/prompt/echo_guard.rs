//! A terminal without echo, while a secret is read from it.

use std::io::stdin;
use std::sync::OnceLock;

use nix::libc;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, raise, sigaction};
use nix::sys::termios::{
    _POSIX_VDISABLE, LocalFlags, SetArg, SpecialCharacterIndices, Termios, tcgetattr, tcsetattr,
};

use crate::failure::Failure;

/// A terminal without echo. Dropping it enables echo again, and so does a signal that ends the
/// process.
pub(super) struct EchoGuard {
    before: Termios,
    /// Dropped after the terminal was restored.
    _signals: EndingSignals,
}

impl EchoGuard {
    pub(super) fn begin() -> Result<Self, Failure> {
        let failed = |error| Failure::from_error("cannot turn off terminal echo", error);
        let before = tcgetattr(stdin()).map_err(failed)?;
        let mut quiet = before.clone();
        let started = Self {
            _signals: EndingSignals::handle(&before).map_err(failed)?,
            before,
        };
        // The key that interrupts is read as a character, and ends the line. The caller decides how
        // the program ends.
        quiet
            .local_flags
            .remove(LocalFlags::ECHO | LocalFlags::ISIG);
        let end_of_line = SpecialCharacterIndices::VEOL as usize;
        if let Some(interrupt) = started.interrupt_byte()
            && let Some(end_of_line) = quiet.control_chars.get_mut(end_of_line)
        {
            *end_of_line = interrupt;
        }
        tcsetattr(stdin(), SetArg::TCSAFLUSH, &quiet).map_err(failed)?;
        Ok(started)
    }

    /// The character of the key that interrupts, usually Ctrl+C. `None` if there is no such key.
    pub(super) fn interrupt_byte(&self) -> Option<u8> {
        let index = SpecialCharacterIndices::VINTR as usize;
        let byte = self.before.control_chars.get(index).copied();
        byte.filter(|byte| *byte != _POSIX_VDISABLE)
    }
}

impl Drop for EchoGuard {
    fn drop(&mut self) {
        // Errors are ignored, because the terminal may be closed.
        tcsetattr(stdin(), SetArg::TCSANOW, &self.before).ok();
    }
}

/// Ends the process by SIGINT, so that a shell or a script also stops.
pub(super) fn interrupt() {
    // An error is ignored, because the caller ends the process with a failure then.
    raise(Signal::SIGINT).ok();
}

/// Handlers of the signals that end the process. They restore the terminal first. Dropping it
/// restores the earlier actions of the signals.
///
/// The program may have handlers that only set a flag for its runtime. The runtime waits for the
/// answer, so such a signal would have no effect during a prompt.
struct EndingSignals {
    earlier: Vec<(Signal, SigAction)>,
}

impl EndingSignals {
    /// Installs the handlers, for a terminal with this state.
    fn handle(before: &Termios) -> nix::Result<Self> {
        // Further prompts of the process find the state that the earlier ones restored.
        TERMINAL.get_or_init(|| before.clone().into());
        let handler = SigHandler::Handler(restore_and_end);
        let action = SigAction::new(handler, SaFlags::empty(), SigSet::all());
        let mut handled = Self {
            earlier: Vec::with_capacity(ENDING.len()),
        };
        for signal in ENDING {
            let earlier = replace(signal, &action)?;
            // As under `nohup`. Such a signal does not end the process.
            if matches!(earlier.handler(), SigHandler::SigIgn) {
                replace(signal, &earlier)?;
            } else {
                handled.earlier.push((signal, earlier));
            }
        }
        Ok(handled)
    }
}

impl Drop for EndingSignals {
    fn drop(&mut self) {
        for (signal, earlier) in &self.earlier {
            // These signals can be handled, so there is no error.
            replace(*signal, earlier).ok();
        }
    }
}

#[expect(unsafe_code, reason = "sigaction(2) is unsafe for its handlers")]
fn replace(signal: Signal, action: &SigAction) -> nix::Result<SigAction> {
    // SAFETY: the action is that of `restore_and_end`, which is allowed in a handler, or one that
    // this process had before.
    unsafe { sigaction(signal, action) }
}

/// Restores the terminal, and lets the signal end the process. All signals are blocked meanwhile,
/// also SIGTTOU, which would stop a process in the background that changes its terminal.
#[expect(unsafe_code, reason = "a handler of a signal may only call the system")]
extern "C" fn restore_and_end(signal: libc::c_int) {
    // It is set before the first handler is installed, so this is a read without a lock.
    if let Some(before) = TERMINAL.get() {
        // SAFETY: tcsetattr(3) is allowed in a handler (POSIX.1-2017, 2.4.3), and only reads the
        // state, which is never changed.
        unsafe {
            libc::tcsetattr(libc::STDIN_FILENO, libc::TCSANOW, before);
        }
    }
    // SAFETY: both are allowed in a handler. The default action happens when the handler returns.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
    }
}

/// State of the terminal before the first prompt.
static TERMINAL: OnceLock<libc::termios> = OnceLock::new();

/// The signals with which terminals, shells and supervisors end a process.
const ENDING: [Signal; 4] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
];

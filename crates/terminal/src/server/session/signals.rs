//! Signals of the protocol on this host.

use tty::message::Signal;

/// Converts a signal: messages use the numbers of Linux, which may differ on this host.
pub(super) fn host_signal(signal: Signal) -> Option<pty::Signal> {
    Some(match signal {
        Signal::Unspecified => return None,
        Signal::Hangup => pty::Signal::SIGHUP,
        Signal::Interrupt => pty::Signal::SIGINT,
        Signal::Quit => pty::Signal::SIGQUIT,
        Signal::Kill => pty::Signal::SIGKILL,
        Signal::User1 => pty::Signal::SIGUSR1,
        Signal::User2 => pty::Signal::SIGUSR2,
        Signal::Terminate => pty::Signal::SIGTERM,
        Signal::Continue => pty::Signal::SIGCONT,
        Signal::Stop => pty::Signal::SIGTSTP,
    })
}

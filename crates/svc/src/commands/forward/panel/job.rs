//! The job of a shell that the program is in. Where there is no such thing, the program is alone at
//! its terminal.

use std::io;

/// Whether the terminal is this program's, and not that of the shell that put it in the background.
#[cfg(unix)]
pub(super) fn is_foreground() -> bool {
    use nix::unistd::{getpgrp, tcgetpgrp};

    // A terminal that controls nobody has no background.
    tcgetpgrp(io::stdin()).map_or(true, |group| group == getpgrp())
}

/// Stops all of the job, until the shell has it go on.
#[cfg(unix)]
pub(super) fn stop() -> io::Result<()> {
    use nix::{
        sys::signal::{Signal, kill},
        unistd::Pid,
    };

    kill(Pid::from_raw(0), Signal::SIGSTOP)?;
    Ok(())
}

#[cfg(not(unix))]
pub(super) fn is_foreground() -> bool {
    true
}

#[cfg(not(unix))]
pub(super) fn stop() -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

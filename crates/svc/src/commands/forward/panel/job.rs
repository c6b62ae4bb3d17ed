//! Job control of the shell that runs the program. Systems without job control always have the
//! program in the foreground.

use std::io;

/// True if the program is in the foreground of its terminal.
#[cfg(unix)]
pub(super) fn is_foreground() -> bool {
    use nix::unistd::{getpgrp, tcgetpgrp};

    // A terminal that is not a controlling terminal has no background.
    tcgetpgrp(io::stdin()).map_or(true, |group| group == getpgrp())
}

/// Stops the whole job until the shell continues it.
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

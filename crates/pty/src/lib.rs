//! Terminals and processes of this host: the one place with unsafe code.
//!
//! [`Spec::start`] starts a command in a session of its own, with a terminal or with pipes, as this
//! account or as another; [`Process`] is what runs. Nothing here knows what a client is: bytes,
//! sizes and signals come in, bytes and an exit come out. A [`Process`] that is dropped takes all
//! that it started with it.

#![cfg(unix)]

mod account;
mod members;
mod process;
mod start;

pub use account::{Account, AccountError};
pub use process::{Exit, Output, Process};
pub use start::{Directory, Size, Spec, StartError};

/// The signals that [`Process::signal`] takes.
pub use nix::sys::signal::Signal;

/// The name of this host and the release of its kernel, as uname(2) tells them.
pub fn host() -> Option<(String, String)> {
    let told = nix::sys::utsname::uname().ok()?;
    let text = |part: &std::ffi::OsStr| part.to_string_lossy().into_owned();
    Some((text(told.nodename()), text(told.release())))
}

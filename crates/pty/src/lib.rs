//! Terminals and processes of this host. The unsafe code of the project is concentrated here.
//!
//! [`Spec::start`] starts a command in its own session, with a terminal or with pipes, as this
//! account or as another. [`Process`] is the running command. This crate is independent of clients:
//! its inputs are bytes, sizes and signals, its outputs are bytes and an exit. Dropping a
//! [`Process`] kills everything that it started.

#![cfg(unix)]

mod account;
mod members;
mod process;
mod size;
mod start;

pub use account::{Account, AccountError};
pub use process::{Exit, Output, Process};
pub use size::Size;
pub use start::{Directory, Spec, StartError};

/// The signals for [`Process::signal`].
pub use nix::sys::signal::Signal;

/// The name of this host and the release of its kernel, from uname(2).
pub fn host() -> Option<(String, String)> {
    let system = nix::sys::utsname::uname().ok()?;
    let text = |part: &std::ffi::OsStr| part.to_string_lossy().into_owned();
    Some((text(system.nodename()), text(system.release())))
}

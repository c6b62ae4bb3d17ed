//! Open sockets of other processes: received from systemd at the start, or over a Unix socket.
//!
//! A descriptor that arrives is a number without an owner. This module is the only place that turns
//! it into one.

mod channel;
mod inherited;

use std::os::fd::{FromRawFd as _, OwnedFd, RawFd};

pub(crate) use self::channel::send_once;
pub use self::channel::{Frame, FrameReader, FrameWriter, MAX_DESCRIPTORS, MAX_PAYLOAD, frames};
pub use self::inherited::{InheritError, InheritedSockets};

#[expect(
    unsafe_code,
    reason = "a descriptor from another process has no owner yet"
)]
fn take_ownership(descriptor: RawFd) -> OwnedFd {
    // SAFETY: the callers pass descriptors that the system has just opened for this process, each
    // once, and that nothing else in it uses.
    unsafe { OwnedFd::from_raw_fd(descriptor) }
}

//! Messages on stderr on systems where stderr cannot be redirected. They are printed immediately,
//! and the panel is drawn over them.

use std::io;

pub(super) struct Messages;

#[expect(
    clippy::unnecessary_wraps,
    clippy::unused_self,
    reason = "same signature as the buffering version"
)]
impl Messages {
    pub(super) fn begin() -> io::Result<Self> {
        Ok(Self)
    }

    pub(super) fn newest(&self) -> Option<String> {
        None
    }

    pub(super) fn end(self) {}
}

//! What is said on stderr while the panel has the terminal, on systems where stderr is not led
//! elsewhere: it is said at once, and the panel is drawn over it.

use std::io;

pub(super) struct Messages;

#[expect(
    clippy::unnecessary_wraps,
    clippy::unused_self,
    reason = "called as the one that keeps what is said"
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

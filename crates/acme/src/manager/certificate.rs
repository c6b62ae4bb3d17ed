//! The current certificate, which handshakes share with the task that renews it.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;

use crate::chain::IssuedCertificate;

/// The current certificate, for handshakes. Clones share it.
#[derive(Clone, Default)]
pub struct Certificate {
    pub(super) issued: Arc<ArcSwapOption<IssuedCertificate>>,
    pub(super) failure: Arc<Mutex<Option<Failure>>>,
}

/// The last failure of an order.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) text: String,
    /// In seconds since 1970.
    pub(super) next_attempt: i64,
}

impl Certificate {
    /// The certificate; `None` until there is one.
    pub fn current(&self) -> Option<Arc<IssuedCertificate>> {
        self.issued.load_full()
    }

    /// Reason of the last failure, without anything secret; `None` after a success.
    pub fn problem(&self) -> Option<String> {
        let failure = self.failure.lock();
        failure.as_ref().map(|failure| failure.text.clone())
    }

    /// Time of the next attempt after a failure, in seconds since 1970; `None` after a success.
    pub fn next_attempt(&self) -> Option<i64> {
        let failure = self.failure.lock();
        failure.as_ref().map(|failure| failure.next_attempt)
    }
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let issued = self.issued.load();
        f.debug_struct("Certificate")
            .field("validity", &issued.as_ref().map(|issued| issued.validity()))
            .finish_non_exhaustive()
    }
}

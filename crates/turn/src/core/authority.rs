//! Who may allocate: asked by the core, answered by whoever knows.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use credentials::turn::{PasswordKey, Username};

/// Knows credentials and what they allow. Asked with every request that is authenticated, so it
/// answers from memory.
pub trait Authority: fmt::Debug + Send + Sync {
    /// What the password of this username comes of; `None` where nobody has such a credential.
    fn password_key(&self, username: &Username<'_>) -> Option<Arc<PasswordKey>>;

    /// Whether the holder of the credential may allocate now. The time of the username itself is
    /// not asked here.
    ///
    /// # Errors
    /// [`NotAllowedError`]
    fn admit(&self, username: &Username<'_>, unix: i64) -> Result<Account, NotAllowedError>;
}

/// The credential is good, and does not allow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAllowedError;

/// On whose account something is relayed.
#[derive(Clone, Debug)]
pub struct Account {
    /// The project: what its allocations are counted by.
    pub project: Arc<str>,
    /// Who holds the credential, with the project: what their allocations are counted by.
    pub holder: Arc<str>,
    /// What the project uses.
    pub meter: Arc<Meter>,
    /// Unix seconds at which the credential behind it ends, where that is known.
    pub until: Option<i64>,
}

/// What a project used since it was asked last.
#[derive(Debug, Default)]
pub struct Meter {
    allocations: AtomicU64,
    bytes: AtomicU64,
}

impl Meter {
    /// An allocation was made.
    pub fn allocate(&self) {
        self.allocations.fetch_add(1, Ordering::Relaxed);
    }

    /// So many bytes were relayed, in either direction.
    pub fn relay(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Allocations and bytes since the last time.
    pub fn take(&self) -> (u64, u64) {
        let take = |count: &AtomicU64| count.swap(0, Ordering::Relaxed);
        (take(&self.allocations), take(&self.bytes))
    }
}

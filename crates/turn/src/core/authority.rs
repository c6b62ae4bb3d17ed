//! Interface between the core and the directory of credentials.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use credentials::turn::{PasswordKey, Username};

/// Decides about credentials. It is called for every authenticated request, so it must answer from
/// memory.
pub trait Authority: fmt::Debug + Send + Sync {
    /// The key from which the password of this username is derived; `None` if there is no such
    /// credential.
    fn password_key(&self, username: &Username<'_>) -> Option<Arc<PasswordKey>>;

    /// Checks that the holder of the credential may allocate now. It does not check the expiry in
    /// the username.
    ///
    /// # Errors
    /// [`NotAllowedError`]
    fn admit(&self, username: &Username<'_>, unix: i64) -> Result<Account, NotAllowedError>;
}

/// The credential is valid, but does not permit allocations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAllowedError;

/// Account to which relayed data is charged.
#[derive(Clone, Debug)]
pub struct Account {
    /// The project, whose allocations are counted together.
    pub project: Arc<str>,
    /// The holder of the credential, with the project. Its allocations are counted together.
    pub holder: Arc<str>,
    /// Usage of the project.
    pub meter: Arc<Meter>,
    /// Expiry of the underlying credential in Unix seconds, if known.
    pub expires_at: Option<i64>,
}

/// Usage of a project since the last report.
#[derive(Debug, Default)]
pub struct Meter {
    allocations: AtomicU64,
    bytes: AtomicU64,
}

impl Meter {
    /// Counts an allocation.
    pub fn allocate(&self) {
        self.allocations.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts bytes that were relayed in either direction.
    pub fn relay(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Allocations and bytes since the last call.
    pub fn take(&self) -> (u64, u64) {
        let take = |count: &AtomicU64| count.swap(0, Ordering::Relaxed);
        (take(&self.allocations), take(&self.bytes))
    }
}

//! Background jobs of the platform: deleting expired data and renewing subscriptions.
//!
//! One task of each process runs all jobs every few minutes. Two processes on one database may do
//! so at the same time. Only one of them deletes ([`store::Lock::Purge`]), and one transaction
//! charges each period.

mod expiring_rows;
mod maintenance;
mod purge;

use tokio::sync::watch;

pub use self::expiring_rows::ExpiringRows;
pub(crate) use self::maintenance::run;
pub use self::maintenance::{EVERY, pass, renew};
pub(crate) use self::purge::ago;
pub use self::purge::purge;

/// Progress of the maintenance task; a part of [`crate::app::App`].
#[derive(Debug)]
pub struct Jobs(watch::Sender<u64>);

impl Default for Jobs {
    fn default() -> Self {
        Self(watch::Sender::new(0))
    }
}

impl Jobs {
    /// Number of completed passes. The receiver is notified of each new one.
    pub fn passes(&self) -> watch::Receiver<u64> {
        self.0.subscribe()
    }
}

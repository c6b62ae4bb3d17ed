//! What the platform does without being asked: it forgets what is past its time, and renews
//! subscriptions.
//!
//! One task of each process goes over everything every few minutes. Two processes on one database
//! may do so at once: a pass of forgetting is one process's ([`store::Lock::Purge`]), and a
//! period is charged by one transaction.

mod maintenance;
mod purge;
mod stale;

use tokio::sync::watch;

pub(crate) use self::maintenance::run;
pub use self::maintenance::{EVERY, pass, renew};
pub(crate) use self::purge::ago;
pub use self::purge::purge;
pub use self::stale::Stale;

/// How far the task is; a part of [`crate::app::App`].
#[derive(Debug)]
pub struct Jobs(watch::Sender<u64>);

impl Default for Jobs {
    fn default() -> Self {
        Self(watch::Sender::new(0))
    }
}

impl Jobs {
    /// How often the task has gone over everything; changes as it does again.
    pub fn passes(&self) -> watch::Receiver<u64> {
        self.0.subscribe()
    }
}

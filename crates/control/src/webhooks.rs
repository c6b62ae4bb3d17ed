//! Webhooks: endpoints of a project that receive events.
//!
//! An event becomes one delivery for each endpoint that subscribes to it, in the transaction that
//! stores the event ([`on_event`]). A task of each process claims due deliveries and sends them
//! ([`deliver_due`]). Failed deliveries are retried ([`schedule`]). An event arrives at least once:
//! a process that dies between the response and its record sends it again, with the same id.

mod deliveries;
mod event;
mod manage;
mod read;
mod routes;
mod schedule;
mod secret;
mod section;
mod send;
mod target;
mod view;
mod worker;

use tokio::sync::Notify;

pub use self::event::{MAX_WAITING, on_event};
pub use self::routes::routes;
pub use self::schedule::{DISABLED_AFTER, RETRIES};
pub use self::section::{WebhooksConfig, WebhooksSection};
use self::send::Sender;
pub use self::send::SenderError;
pub(crate) use self::send::guarded_client;
pub(crate) use self::target::Targets;
pub(crate) use self::worker::run;
pub use self::worker::{POLL, deliver_due};

/// The sender of webhooks; a part of [`crate::app::App`].
#[derive(Debug)]
pub struct Webhooks {
    sender: Sender,
    woken: Notify,
}

impl Webhooks {
    /// # Errors
    /// The file of authorities cannot be used.
    pub(crate) fn open(config: &WebhooksConfig) -> Result<Self, SenderError> {
        Ok(Self {
            sender: Sender::new(config)?,
            woken: Notify::new(),
        })
    }

    /// Wakes the task immediately. Call it after the transaction of [`on_event`] was committed. The
    /// task also polls every [`POLL`].
    pub fn wake(&self) {
        self.woken.notify_one();
    }
}

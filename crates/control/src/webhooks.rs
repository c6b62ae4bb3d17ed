//! Webhooks: endpoints of a project that are told of events.
//!
//! An event becomes one delivery for each endpoint that wants it, in the transaction that stores
//! the event ([`on_event`]). A task of each process takes what is due and sends it ([`deliver_due`]);
//! what fails is tried again ([`schedule`]). An event arrives at least once: a process that dies
//! between the answer and its note sends it again, under the same id.

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
pub use self::send::CannotSend;
use self::send::Sender;
pub(crate) use self::worker::run;
pub use self::worker::{POLL, deliver_due};

/// What sends webhooks; a part of [`crate::app::App`].
#[derive(Debug)]
pub struct Webhooks {
    sender: Sender,
    woken: Notify,
}

impl Webhooks {
    /// # Errors
    /// The file of authorities cannot be used.
    pub(crate) fn open(config: &WebhooksConfig) -> Result<Self, CannotSend> {
        Ok(Self {
            sender: Sender::open(config)?,
            woken: Notify::new(),
        })
    }

    /// Lets the task look at once for what is due: after the transaction of [`on_event`] was
    /// committed. It looks by itself every [`POLL`], too.
    pub fn wake(&self) {
        self.woken.notify_one();
    }
}

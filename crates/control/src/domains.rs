//! Custom domains: host names outside the platform under which projects publish.
//!
//! A project adds a domain ([`manage`]), its owner enters two records ([`records`]), and the platform
//! looks for them at the authoritative name servers ([`check`], [`dns`]). From then on the checks are
//! repeated ([`task`]), and the states follow from their findings ([`lifecycle`]).
//!
//! The ownership record is random for each domain of a project. So a record that a former project
//! left behind, or an alias that still leads to the platform, gives no other project the name.

mod certificate;
mod changes;
mod check;
mod dns;
mod expiry;
mod lifecycle;
mod manage;
mod notice;
mod read;
mod records;
mod routes;
mod rules;
mod section;
mod task;
mod view;

use types::id::UserId;

pub(crate) use self::certificate::opened_key;
use self::dns::Resolver;
pub(crate) use self::expiry::notify as notify_of_expiring_certificates;
pub use self::routes::routes;
pub use self::section::{DomainsConfig, DomainsSection};
pub use self::task::check_due;
pub(crate) use self::task::run;
use crate::people::throttle::{Limits, Throttle};

/// Access to the name servers of domains; a part of [`crate::app::App`].
#[derive(Debug)]
pub struct Domains {
    resolver: Resolver,
    /// Additions, by user.
    additions: Throttle<UserId>,
}

impl Domains {
    pub(crate) fn new(config: &DomainsConfig) -> Self {
        Self {
            resolver: Resolver::new(config),
            additions: Throttle::new(Limits::DOMAINS),
        }
    }
}

//! Questions to the authoritative name servers of custom domains.
//!
//! A cache would show the records of a former owner, or hide those that were just entered. So each
//! check starts at the root and asks the name servers of the zone itself. Users choose the zones,
//! and thereby the servers: only public addresses are asked, unless the configuration allows
//! others, and each check has limits of time and of queries.

mod exchange;
mod walk;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

pub(super) use self::walk::{Answers, LIMIT, NameServerAnswer, Walk, WalkError, addresses, text};
use super::section::DomainsConfig;
use crate::webhooks::Targets;

/// Access to authoritative name servers.
#[derive(Debug)]
pub(super) struct Resolver {
    config: DomainsConfig,
    targets: Targets,
    slots: Semaphore,
}

impl Resolver {
    pub(super) fn new(config: &DomainsConfig) -> Self {
        let any = [
            IpNet::from(Ipv4Net::default()),
            IpNet::from(Ipv6Net::default()),
        ];
        let allowed: &[IpNet] = if config.allow_private_nameservers {
            &any
        } else {
            &[]
        };
        Self {
            config: config.clone(),
            targets: Targets::new(allowed),
            slots: Semaphore::new(MAX_WALKS),
        }
    }

    /// Waits for one of the slots of checks that users request. The caller keeps it during the
    /// check. The periodic checks need none, so that users cannot stop those of other projects.
    ///
    /// # Errors
    /// [`WalkError::Busy`] after [`LIMIT`].
    pub(super) async fn slot(&self) -> Result<SemaphorePermit<'_>, WalkError> {
        let slot = timeout(LIMIT, self.slots.acquire()).await;
        // The semaphore is never closed.
        slot.ok().and_then(Result::ok).ok_or(WalkError::Busy)
    }

    /// The resolution for one check. The caller ends it after [`LIMIT`].
    pub(super) fn walk(&self) -> Walk<'_> {
        Walk::new(&self.config, &self.targets)
    }
}

/// Checks at the same time that users request. Each has at most six open sockets.
const MAX_WALKS: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_number_of_checks_is_limited() {
        let resolver = Resolver::new(&DomainsConfig::default());
        let mut slots = Vec::new();
        for _ in 0..MAX_WALKS {
            slots.push(resolver.slot().await.unwrap());
        }
        assert_eq!(resolver.slot().await.err(), Some(WalkError::Busy));
        slots.pop();
        assert!(resolver.slot().await.is_ok());
    }
}

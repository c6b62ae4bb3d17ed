//! Limits for requests of password resets.

use std::net::IpAddr;

use super::email::Email;
use super::throttle::{Limits, Throttle};

/// Password resets that were requested, by account and by source address.
#[derive(Debug)]
pub struct ResetThrottle {
    pub(super) accounts: Throttle<Email>,
    pub(super) networks: Throttle<IpAddr>,
}

impl Default for ResetThrottle {
    fn default() -> Self {
        Self {
            accounts: Throttle::new(Limits::MAIL),
            networks: Throttle::new(Limits::ADDRESS),
        }
    }
}

//! The metrics listener (MX-1 to MX-3) and the health routes beside it.

use std::net::SocketAddr;

use crate::config::SecretString;

/// What the metrics listener is to do.
#[derive(Clone, Debug)]
pub struct MetricsConfig {
    /// Whether metrics are emitted at all (MX-1).
    pub enabled: bool,
    /// Where to listen; without it no listener starts (MX-1).
    pub listen_addr: Option<SocketAddr>,
    /// The path of the scrape, always with a leading slash (MX-2).
    pub path: MetricsPath,
    /// What a scraper must present; required off loopback (MX-3).
    pub bearer_token: Option<SecretString>,
}

/// A path with a leading slash (MX-2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricsPath(String);

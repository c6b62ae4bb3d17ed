//! Configuration of the metrics listener, and its validation.

use std::io;
use std::net::SocketAddr;

use metrics_exporter_prometheus::BuildError;

use super::responder::{HEALTH_PATH, READY_PATH};
use crate::config::{SecretString, Warning};

/// Configuration of the metrics listener.
#[derive(Clone, Debug, Default)]
pub struct MetricsConfig {
    /// True to emit metrics at all (MX-1).
    pub enabled: bool,
    /// Listen address; without it no listener starts (MX-1).
    pub listen_addr: Option<SocketAddr>,
    /// The path of the scrape (MX-2).
    pub path: MetricsPath,
    /// The token that a scraper must send; required off loopback (MX-3).
    pub bearer_token: Option<SecretString>,
}

impl MetricsConfig {
    /// The listen address, if a listener starts (MX-1).
    pub fn listener(&self) -> Option<SocketAddr> {
        self.listen_addr.filter(|_| self.enabled)
    }

    /// A warning if metrics are collected, but cannot be read.
    pub fn inspect(&self) -> Option<Warning> {
        let message = "metrics are enabled, but no listener is configured; set an address";
        (self.enabled && self.listen_addr.is_none())
            .then(|| Warning::new("metrics.prometheus.listen_addr", message))
    }

    /// Checks that the listener may start with this configuration.
    ///
    /// # Errors
    /// The bearer token is missing although MX-3 requires one, or cannot be sent in a header.
    pub fn check(&self) -> Result<(), MetricsError> {
        let Some(address) = self.listener() else {
            return Ok(());
        };
        match &self.bearer_token {
            Some(token) if token.expose().is_empty() => Err(MetricsError::UnusableToken),
            Some(token) if !token.expose().bytes().all(|byte| byte.is_ascii_graphic()) => {
                Err(MetricsError::UnusableToken)
            }
            Some(_) => Ok(()),
            // `::ffff:127.0.0.1` is also loopback.
            None if address.ip().to_canonical().is_loopback() => Ok(()),
            None => Err(MetricsError::BearerRequired { address }),
        }
    }
}

/// The path of the scrape: starts with a slash (MX-2), has no query, and is not a health route.
/// `/metrics` by default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricsPath(String);

impl MetricsPath {
    /// Converts a configured path; a missing leading slash is added (MX-2).
    ///
    /// # Errors
    /// It is not a valid request path, or it is a health route.
    pub fn new(path: &str) -> Result<Self, MetricsError> {
        let path = match path.strip_prefix('/') {
            Some(_) => path.to_owned(),
            None => format!("/{path}"),
        };
        let valid = path
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && !b"?#".contains(&byte));
        if !valid || [HEALTH_PATH, READY_PATH].contains(&path.as_str()) {
            return Err(MetricsError::UnusablePath(path));
        }
        Ok(Self(path))
    }

    /// The path with its slash.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for MetricsPath {
    fn default() -> Self {
        Self("/metrics".to_owned())
    }
}

/// Reason why metrics are not served; each ends the process at start.
#[derive(Debug, thiserror::Error)]
pub enum MetricsError {
    /// MX-3.
    #[error(
        "the metrics listener would be open to the network on {address}: \
         set metrics.prometheus.bearer_token, or listen on a loopback address"
    )]
    BearerRequired {
        /// The configured address.
        address: SocketAddr,
    },
    /// No client could send this token.
    #[error("the bearer token must be visible ASCII characters, and at least one")]
    UnusableToken,
    /// No client could request this path.
    #[error("{0:?} cannot be the path of the metrics")]
    UnusablePath(String),
    /// The address is in use, or does not belong to this machine.
    #[error("the metrics listener cannot bind {address}: {source}")]
    Bind {
        /// The configured address.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// A bound listener cannot be used.
    #[error("the metrics listener cannot be used: {source}")]
    Listener {
        /// The system's error.
        source: io::Error,
    },
    /// The recorder could not be installed.
    #[error("the metrics recorder cannot be installed: {0}")]
    Recorder(BuildError),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(address: &str, token: Option<&str>) -> Result<(), MetricsError> {
        MetricsConfig {
            enabled: true,
            listen_addr: Some(address.parse().unwrap()),
            bearer_token: token.map(SecretString::new),
            ..MetricsConfig::default()
        }
        .check()
    }

    /// MX-3.
    #[test]
    fn mx_3_off_loopback_a_bearer_token_is_required() {
        for open in [
            "0.0.0.0:9090",
            "[::]:9090",
            "10.0.0.1:9090",
            "[::ffff:10.0.0.1]:9090",
        ] {
            let error = check(open, None).unwrap_err();
            assert!(
                matches!(error, MetricsError::BearerRequired { .. }),
                "{open}"
            );
            assert!(
                error
                    .to_string()
                    .contains("metrics.prometheus.bearer_token")
            );
            check(open, Some("token")).unwrap();
        }
        for loopback in [
            "127.0.0.1:9090",
            "127.8.8.8:9090",
            "[::1]:9090",
            "[::ffff:127.0.0.1]:1",
        ] {
            check(loopback, None).unwrap();
        }
    }

    /// MX-3.
    #[test]
    fn mx_3_a_token_that_cannot_be_sent_is_refused() {
        for token in ["", " ", "a b", "a\n", "é"] {
            assert!(matches!(
                check("0.0.0.0:1", Some(token)),
                Err(MetricsError::UnusableToken)
            ));
        }
    }

    /// MX-1.
    #[test]
    fn mx_1_without_a_listener_nothing_is_checked() {
        let open = MetricsConfig {
            listen_addr: Some("0.0.0.0:9090".parse().unwrap()),
            ..MetricsConfig::default()
        };
        open.check().unwrap();
        assert_eq!(open.listener(), None);
        assert_eq!(
            MetricsConfig {
                enabled: true,
                ..MetricsConfig::default()
            }
            .listener(),
            None
        );
    }

    /// MX-2.
    #[test]
    fn mx_2_a_missing_leading_slash_is_added() {
        assert_eq!(MetricsPath::default().as_str(), "/metrics");
        assert_eq!(MetricsPath::new("metrics").unwrap().as_str(), "/metrics");
        assert_eq!(MetricsPath::new("/a/b").unwrap().as_str(), "/a/b");
        assert_eq!(MetricsPath::new("").unwrap().as_str(), "/");
        for unusable in ["/a b", "a?b", "#", "/é", "healthz", "/readyz"] {
            assert!(MetricsPath::new(unusable).is_err(), "{unusable}");
        }
    }
}

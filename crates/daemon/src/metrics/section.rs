//! `metrics` of a configuration file, the same for every service.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{MetricsConfig, MetricsError, MetricsPath};
use crate::config::{ConfigError, SecretString, values};

/// Metrics of the process.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MetricsSection {
    /// Metrics in the Prometheus text format, with `/healthz` and `/readyz` on the same listener.
    prometheus: PrometheusSection,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct PrometheusSection {
    /// True to emit metrics.
    enabled: bool,
    /// Address and port of the metrics listener. Without it no listener starts.
    #[schemars(example = "127.0.0.1:9090")]
    listen_addr: Option<String>,
    /// The path of the scrape; a missing leading slash is added.
    #[schemars(example = "/metrics")]
    path: String,
    /// The bearer token that a scraper must send. Required if `listen_addr` is not a loopback
    /// address: the process refuses to start without it.
    #[schemars(example = "a-random-text")]
    bearer_token: Option<SecretString>,
}

impl Default for PrometheusSection {
    fn default() -> Self {
        Self {
            enabled: false,
            listen_addr: None,
            path: "/metrics".to_owned(),
            bearer_token: None,
        }
    }
}

impl MetricsSection {
    /// The checked values (MX-1, MX-2, MX-3).
    ///
    /// # Errors
    /// The error, with its key.
    pub fn check(self) -> Result<MetricsConfig, ConfigError> {
        let section = self.prometheus;
        let key = |name: &str| format!("metrics.prometheus.{name}");
        let address =
            |value: String| values::address(&key("listen_addr"), &value, "127.0.0.1:9090");
        let config = MetricsConfig {
            enabled: section.enabled,
            listen_addr: section.listen_addr.map(address).transpose()?,
            path: MetricsPath::new(&section.path)
                .map_err(|error| ConfigError::new(key("path"), error.to_string()))?,
            bearer_token: section.bearer_token,
        };
        config.check().map_err(|error| {
            let name = match &error {
                MetricsError::BearerRequired { .. } => "listen_addr",
                _ => "bearer_token",
            };
            ConfigError::new(key(name), error.to_string())
        })?;
        Ok(config)
    }
}

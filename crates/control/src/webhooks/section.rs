//! `webhooks` of the configuration.

use std::path::PathBuf;

use daemon::config::ConfigError;
use ipnet::IpNet;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::config::{network, path};

/// Where webhooks may go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WebhooksConfig {
    /// Networks beside the public ones.
    pub allowed_targets: Vec<IpNet>,
    /// Authorities beside the system's.
    pub ca_file: Option<PathBuf>,
}

/// The section as it is written.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WebhooksSection {
    /// Addresses and networks (CIDR) that webhooks may go to although they are not public, such as
    /// those of a closed network. Whoever may add a webhook can then send requests there.
    #[schemars(example = &["10.20.0.0/16"])]
    allowed_targets: Vec<String>,
    /// File of certificates (PEM) of authorities that are trusted beside the system's when webhooks
    /// are sent.
    ca_file: Option<String>,
}

impl WebhooksSection {
    pub(crate) fn check(self) -> Result<WebhooksConfig, ConfigError> {
        let targets = self.allowed_targets.iter().enumerate();
        let allowed_targets = targets
            .map(|(index, value)| network(&format!("webhooks.allowed_targets.{index}"), value))
            .collect::<Result<_, _>>()?;
        let ca_file = self.ca_file;
        Ok(WebhooksConfig {
            allowed_targets,
            ca_file: ca_file
                .map(|value| path("webhooks.ca_file", value))
                .transpose()?,
        })
    }
}

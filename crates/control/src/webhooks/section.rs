//! The `webhooks` section of the configuration.

use std::path::PathBuf;

use daemon::config::ConfigError;
use daemon::config::values::optional_path;
use ipnet::IpNet;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::config::network;

/// Permitted targets of webhooks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WebhooksConfig {
    /// Networks that are permitted in addition to public addresses.
    pub allowed_targets: Vec<IpNet>,
    /// Certificate authorities that are trusted in addition to the system's.
    pub ca_file: Option<PathBuf>,
}

/// The section as it is written in the file.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WebhooksSection {
    /// Addresses and networks (CIDR) that webhooks may be sent to although they are not public,
    /// such as those of a closed network. Every user who may add a webhook can then send requests
    /// there. The same is true for metadata documents of OAuth clients (`oauth.client_id_metadata`).
    #[schemars(example = &["10.20.0.0/16"])]
    allowed_targets: Vec<String>,
    /// File of certificates (PEM) of authorities that are trusted for webhooks, and for metadata
    /// documents of OAuth clients, in addition to the system's.
    ca_file: Option<String>,
}

impl WebhooksSection {
    pub(crate) fn check(self) -> Result<WebhooksConfig, ConfigError> {
        let targets = self.allowed_targets.iter().enumerate();
        let allowed_targets = targets
            .map(|(index, value)| network(&format!("webhooks.allowed_targets.{index}"), value))
            .collect::<Result<_, _>>()?;
        Ok(WebhooksConfig {
            allowed_targets,
            ca_file: optional_path("webhooks.ca_file", self.ca_file)?,
        })
    }
}

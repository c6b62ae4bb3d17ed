//! A client: one live agent connection, as the Engine API shows it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::id::ClientId;
use crate::tunnel::Status;
pub use crate::tunnel::labels::{
    Labels, MAX_LABEL_KEY_BYTES, MAX_LABEL_VALUE_BYTES, MAX_LABELS, check_labels,
};

/// A live agent connection. Fields without a value are left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Client {
    /// Server-assigned id of the control channel.
    #[schema(value_type = String, example = "cli_01h455vb4pex5vsknk084sn02q")]
    pub id: ClientId,
    /// Status of the control channel.
    pub status: Status,
    /// Owner: the user of the agent's credential.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub user_id: Option<String>,
    /// Workspace of the project, on managed engines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub workspace_id: Option<String>,
    /// Project that the client belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub project_id: Option<String>,
    /// Cluster that serves the client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub cluster_id: Option<String>,
    /// Plan of the project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub plan: Option<String>,
    /// Provider of the project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub provider: Option<String>,
    /// Region of the project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub region: Option<String>,
    /// Name of the agent program, as the agent reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub agent: Option<String>,
    /// Release channel of the agent program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub channel: Option<String>,
    /// Version of the agent program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub version: Option<String>,
    /// Operating system of the agent's host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub os: Option<String>,
    /// Processor architecture of the agent's host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub arch: Option<String>,
    /// Version of the agent protocol that the client uses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub protocol_version: Option<String>,
    /// Labels that the agent set for itself.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = BTreeMap<String, String>, required = false)]
    // The type is spelled out because the schema is derived from it; an alias would not work.
    pub labels: BTreeMap<String, String>,
}

impl Client {
    /// Returns an online client without any other information.
    pub fn online(id: ClientId) -> Self {
        Self {
            id,
            status: Status::Online,
            user_id: None,
            workspace_id: None,
            project_id: None,
            cluster_id: None,
            plan: None,
            provider: None,
            region: None,
            agent: None,
            channel: None,
            version: None,
            os: None,
            arch: None,
            protocol_version: None,
            labels: Labels::new(),
        }
    }

    /// The object of the Engine API. Clients have no field with a second spelling.
    pub fn to_json(&self) -> serde_json::Value {
        // Strings and maps with string keys always serialise.
        serde_json::to_value(self).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_flat_and_reads_back() {
        let mut client = Client::online(ClientId::new(1, [1; 10]));
        insta::assert_json_snapshot!("bare", client.to_json());
        client.user_id = Some("u1".to_owned());
        client.project_id = Some("default".to_owned());
        client.agent = Some("svc".to_owned());
        client.channel = Some("stable".to_owned());
        client.version = Some("0.1.0".to_owned());
        client.os = Some("linux".to_owned());
        client.arch = Some("x86_64".to_owned());
        client.protocol_version = Some("1.4.5".to_owned());
        client.labels.insert("rack".to_owned(), "7".to_owned());
        insta::assert_json_snapshot!("full", client.to_json());
        assert_eq!(
            serde_json::from_value::<Client>(client.to_json()).unwrap(),
            client
        );
    }
}

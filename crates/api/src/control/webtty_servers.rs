//! Registered `WebTTY` servers of a project (CP-12): their identity, their keys and the policies of
//! their sessions. The Engine API covers their live state.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::json;
use types::permission::{Permission, Rule};
use types::webtty::{AccessPolicy, EncryptionPolicy, RecordingPolicy, ServerStatus};
use utoipa::ToSchema;

use super::{
    Access, Body, Method, Operation, PAGE, PAGE_SIZE, Parameter, Schemas, SuccessResponse, add,
    not_null, page,
};

/// The registered servers of a project.
pub const LIST: &Operation = &Operation {
    query: &[
        Parameter::text("q", "Part of a name, case-insensitive."),
        Parameter::one_of(
            "status",
            "Only servers with this status.",
            &["pending_enrollment", "active", "suspended"],
        ),
        PAGE,
        PAGE_SIZE,
    ],
    ..Operation::get(
        "list_project_webtty_servers",
        "/api/projects/tunnels/{project_id}/webtty/servers",
        "List the registered WebTTY servers of a project",
        READ,
        "WebttyServerList",
    )
};

/// Registers a server.
pub const CREATE: &Operation = &Operation {
    body: Some(Body::required(
        "CreateWebttyServer",
        || json!({"name": "build-7", "recordingPolicy": "recorded"}),
    )),
    refusals: &[409],
    ..Operation::new(
        "create_project_webtty_server",
        Method::Post,
        "/api/projects/tunnels/{project_id}/webtty/servers",
        "Register a WebTTY server; it must be enrolled before use",
        write(&[rule(&["create"])]),
        SuccessResponse::json(201, "CreatedWebttyServer"),
    )
};

/// One registered server.
pub const GET: &Operation = &Operation::get(
    "get_project_webtty_server",
    "/api/projects/tunnels/{project_id}/webtty/servers/{server_id}",
    "Get a registered WebTTY server",
    READ,
    "WebttyServer",
);

/// Changes a server.
pub const UPDATE: &Operation = &Operation {
    id: "update_project_webtty_server",
    method: Method::Patch,
    summary: "Change a registered WebTTY server, suspend or resume it",
    body: Some(Body::required(
        "UpdateWebttyServer",
        || json!({"status": "suspended"}),
    )),
    access: UPDATES,
    refusals: &[409],
    ..*GET
};

/// Removes a server.
pub const DELETE: &Operation = &Operation {
    id: "delete_project_webtty_server",
    method: Method::Delete,
    summary: "Delete a registered WebTTY server; its tunnel and its sessions end",
    access: write(&[rule(&["delete"])]),
    answer: SuccessResponse::NO_CONTENT,
    ..*GET
};

/// Enrols a server with its keys.
pub const ENROLL: &Operation = &Operation {
    id: "enroll_project_webtty_server",
    method: Method::Post,
    path: "/api/projects/tunnels/{project_id}/webtty/servers/{server_id}/enroll",
    summary: "Enroll a registered WebTTY server with its public keys, once",
    access: UPDATES,
    body: Some(Body::required("EnrollWebttyServer", || {
        json!({
            "serverPublicKey": "DuPSE26HMCLVpRJHQIoC5ihUsYN6e9T4mgaRvUfczWw",
            "serverSigningKeyId": "QbJ00rswa_R6CSTOuV1J-RtSW4W067y-4P2Bx6Cl59g",
            "serverSigningPublicKey": "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEwfwhhfiL6dNdhypCNgmCNdcQ4HlzoSH-m4H6J8P17fxFXSXSWdndUtGPcGXvWsyrjWcXlJ7pit0JL9uAlQy7KQ",
            "serverKeyAlgorithm": "webtty-x25519-hpke-v1",
        })
    })),
    refusals: &[409],
    ..*GET
};

/// The operations of this module.
pub const OPERATIONS: &[&Operation] = &[LIST, CREATE, GET, UPDATE, DELETE, ENROLL];

pub(super) fn schemas(schemas: &mut Schemas) {
    add::<WebttyServerList>(schemas);
    add::<CreatedWebttyServer>(schemas);
    add::<CreateWebttyServer>(schemas);
    add::<UpdateWebttyServer>(schemas);
    add::<EnrollWebttyServer>(schemas);
}

const READ: Access =
    Access::Permitted(Permission::NetworkWebttyServersReadOnly, &[rule(&["read"])]);
const UPDATES: Access = write(&[rule(&["update"])]);

const fn write(rules: &'static [Rule]) -> Access {
    Access::Permitted(Permission::NetworkWebttyServersReadWrite, rules)
}

/// The part of the permission that an operation uses.
const fn rule(actions: &'static [&'static str]) -> Rule {
    Rule {
        resource: "webttyServers",
        actions,
    }
}

/// Maximum number of words in one list of capabilities.
pub const MAX_CAPABILITIES: usize = 16;
/// Maximum length of one of these words, in bytes.
pub const MAX_CAPABILITY_BYTES: usize = 64;

/// A registered server. Members without a value are left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct WebttyServer {
    /// Id.
    #[schema(example = "wsv_01h455vb4pex5vsknk084sn02q")]
    pub id: String,
    /// The workspace that the project belongs to.
    pub workspace_id: String,
    /// The project of the server.
    pub project_id: String,
    /// Name, unique in the project.
    pub name: String,
    /// Description by its owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub description: Option<String>,
    /// Enrolment status.
    pub status: ServerStatus,
    /// Recording policy of its sessions.
    pub recording_policy: RecordingPolicy,
    /// Encryption policy of its sessions.
    pub encryption_policy: EncryptionPolicy,
    /// Users that may use it.
    pub access_policy: AccessPolicy,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// The capabilities that the server declared at its enrolment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub capabilities: Option<WebttyServerCapabilities>,
    /// The encryption key that clients seal to: X25519, base64url.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub server_public_key: Option<String>,
    /// Id of the signing key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub server_signing_key_id: Option<String>,
    /// The signing key: P-256 as DER, base64url.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub server_signing_public_key: Option<String>,
    /// The fingerprint for manual comparison: `sha256:` and base64url.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub server_fingerprint: Option<String>,
    /// Algorithm of the encryption key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub server_key_algorithm: Option<String>,
    /// Time of the enrolment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, format = DateTime)]
    pub enrolled_at: Option<String>,
    /// User that registered it.
    pub created_by_user_id: String,
    /// Creation time.
    #[schema(format = DateTime)]
    pub created_at: String,
    /// Time of the last change.
    #[schema(format = DateTime)]
    pub updated_at: String,
}

/// Capabilities that a server declared.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WebttyServerCapabilities {
    /// Transports of its messages.
    pub transports: Vec<String>,
    /// Modes in which it starts commands.
    pub execution_modes: Vec<String>,
    /// Supported encryption.
    pub encryption: Vec<String>,
    /// Labels of its host.
    pub labels: BTreeMap<String, String>,
}

page! {
    /// One page of registered servers.
    #[derive(PartialEq, Eq)]
    pub struct WebttyServerList {
        /// The servers of the page.
        pub servers: Vec<WebttyServer>,
        /// Position of this page in the list.
        pub paging: Paging,
    }
}

/// A newly registered server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CreatedWebttyServer {
    /// The server.
    pub server: WebttyServer,
}

/// Properties of a new server.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateWebttyServer {
    /// Name, unique in the project.
    #[schema(min_length = 1, max_length = 100)]
    pub name: String,
    /// Description.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 1000)]
    pub description: Option<String>,
    /// Recording policy of its sessions; `recorded` if absent.
    #[serde(default, with = "not_null", skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub recording_policy: Option<RecordingPolicy>,
    /// Encryption policy of its sessions, which cannot be changed later; `disabled` if absent.
    /// `workspace_managed` is not available here.
    #[serde(default, with = "not_null", skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub encryption_policy: Option<EncryptionPolicy>,
    /// Users that may use it; `project_members` if absent.
    #[serde(default, with = "not_null", skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub access_policy: Option<AccessPolicy>,
    /// Labels.
    #[serde(default, with = "not_null", skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub labels: Option<BTreeMap<String, String>>,
}

/// New status of an enrolled server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum WebttyServerChange {
    /// The server may serve again.
    Active,
    /// The server may not serve: its tunnel is closed and its sessions end immediately.
    Suspended,
}

/// A change to a server. Absent members stay unchanged.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UpdateWebttyServer {
    /// Name, unique in the project.
    #[serde(default, with = "not_null", skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, min_length = 1, max_length = 100)]
    pub name: Option<String>,
    /// Description; `null` removes it.
    #[serde(default, with = "not_null", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, max_length = 1000)]
    pub description: Option<Option<String>>,
    /// New status.
    #[serde(default, with = "not_null", skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub status: Option<WebttyServerChange>,
    /// Recording policy, which takes effect with the next session.
    #[serde(default, with = "not_null", skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub recording_policy: Option<RecordingPolicy>,
    /// Users that may use it, effective immediately.
    #[serde(default, with = "not_null", skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub access_policy: Option<AccessPolicy>,
    /// Labels, which replace all current ones.
    #[serde(default, with = "not_null", skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub labels: Option<BTreeMap<String, String>>,
}

/// The public keys of a server. They cannot be replaced: a host that lost its keys must be
/// registered as another server.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EnrollWebttyServer {
    /// The encryption key that clients seal to: X25519, base64url.
    pub server_public_key: String,
    /// Id of the signing key.
    pub server_signing_key_id: String,
    /// The signing key: P-256 as DER, base64url.
    pub server_signing_public_key: String,
    /// The fingerprint for manual comparison; derived from the keys if absent.
    #[serde(default, with = "not_null", skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub server_fingerprint: Option<String>,
    /// Algorithm of the encryption key: `webtty-x25519-hpke-v1`.
    pub server_key_algorithm: String,
    /// Capabilities of the server, as it declares them.
    #[serde(default, with = "not_null", skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub capabilities: Option<DeclareWebttyServerCapabilities>,
}

/// Capabilities in the request of a server. An absent member is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DeclareWebttyServerCapabilities {
    /// Transports of its messages.
    #[serde(default)]
    #[schema(max_items = 16)]
    pub transports: Vec<String>,
    /// Modes in which it starts commands.
    #[serde(default)]
    #[schema(max_items = 16)]
    pub execution_modes: Vec<String>,
    /// Supported encryption.
    #[serde(default)]
    #[schema(max_items = 16)]
    pub encryption: Vec<String>,
    /// Labels of its host.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

impl From<DeclareWebttyServerCapabilities> for WebttyServerCapabilities {
    fn from(declared: DeclareWebttyServerCapabilities) -> Self {
        Self {
            transports: declared.transports,
            execution_modes: declared.execution_modes,
            encryption: declared.encryption,
            labels: declared.labels,
        }
    }
}

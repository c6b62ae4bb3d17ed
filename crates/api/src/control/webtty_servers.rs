//! Registered `WebTTY` servers of a project (CP-12): who they are, which keys they have, and what
//! holds for their sessions. What is live of them is the Engine API's.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::json;
use types::permission::{Permission, Rule};
use types::webtty::{AccessPolicy, EncryptionPolicy, RecordingPolicy, ServerStatus};
use utoipa::ToSchema;

use super::{
    Access, Answer, Body, Method, Operation, Paging, Parameter, Schemas, Shape, add, given,
};

/// The registered servers of a project.
pub const LIST: &Operation = &Operation {
    query: &[
        Parameter {
            name: "q",
            description: "Part of a name, in any case.",
            shape: Shape::Text,
        },
        Parameter {
            name: "status",
            description: "Servers with this status alone.",
            shape: Shape::OneOf(&["pending_enrollment", "active", "suspended"]),
        },
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
    id: "create_project_webtty_server",
    method: Method::Post,
    path: "/api/projects/tunnels/{project_id}/webtty/servers",
    summary: "Register a WebTTY server; it serves when it is enrolled",
    access: write(&[rule(&["create"])]),
    stable: false,
    query: &[],
    body: Some(Body {
        schema: "CreateWebttyServer",
        required: true,
        example: || json!({"name": "build-7", "recordingPolicy": "recorded"}),
    }),
    answer: Answer::json(201, "CreatedWebttyServer"),
    refusals: &[409],
};

/// One registered server.
pub const GET: &Operation = &Operation {
    ..Operation::get(
        "get_project_webtty_server",
        "/api/projects/tunnels/{project_id}/webtty/servers/{server_id}",
        "Get a registered WebTTY server",
        READ,
        "WebttyServer",
    )
};

/// Changes a server.
pub const UPDATE: &Operation = &Operation {
    id: "update_project_webtty_server",
    method: Method::Patch,
    summary: "Change a registered WebTTY server, suspend or resume it",
    body: Some(Body {
        schema: "UpdateWebttyServer",
        required: true,
        example: || json!({"status": "suspended"}),
    }),
    access: UPDATES,
    refusals: &[409],
    ..*GET
};

/// Removes a server.
pub const DELETE: &Operation = &Operation {
    id: "delete_project_webtty_server",
    method: Method::Delete,
    summary: "Remove a registered WebTTY server; its tunnel and its sessions end",
    access: write(&[rule(&["delete"])]),
    answer: Answer::NO_CONTENT,
    ..*GET
};

/// Gives a server its keys.
pub const ENROLL: &Operation = &Operation {
    id: "enroll_project_webtty_server",
    method: Method::Post,
    path: "/api/projects/tunnels/{project_id}/webtty/servers/{server_id}/enroll",
    summary: "Enroll a registered WebTTY server with its public keys, once",
    access: UPDATES,
    body: Some(Body {
        schema: "EnrollWebttyServer",
        required: true,
        example: || {
            json!({
                "serverPublicKey": "DuPSE26HMCLVpRJHQIoC5ihUsYN6e9T4mgaRvUfczWw",
                "serverSigningKeyId": "QbJ00rswa_R6CSTOuV1J-RtSW4W067y-4P2Bx6Cl59g",
                "serverSigningPublicKey": "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEwfwhhfiL6dNdhypCNgmCNdcQ4HlzoSH-m4H6J8P17fxFXSXSWdndUtGPcGXvWsyrjWcXlJ7pit0JL9uAlQy7KQ",
                "serverKeyAlgorithm": "webtty-x25519-hpke-v1",
            })
        },
    }),
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

const fn rule(actions: &'static [&'static str]) -> Rule {
    Rule {
        resource: "webttyServers",
        actions,
    }
}

const PAGE: Parameter = Parameter {
    name: "page",
    description: "The page, from 1.",
    shape: Shape::Integer(1, 1_000_000),
};
const PAGE_SIZE: Parameter = Parameter {
    name: "pageSize",
    description: "Items of a page; 20 where it is absent.",
    shape: Shape::Integer(1, 100),
};

/// Words in one list of capabilities.
pub const MAX_CAPABILITIES: usize = 16;
/// Longest of these words, in bytes.
pub const MAX_CAPABILITY_BYTES: usize = 64;

/// A registered server. What has no value is left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct WebttyServer {
    /// Id.
    #[schema(example = "wsv_01h455vb4pex5vsknk084sn02q")]
    pub id: String,
    /// The workspace that the project belongs to.
    pub workspace_id: String,
    /// The project that it is in.
    pub project_id: String,
    /// Name, unique in the project.
    pub name: String,
    /// What its owner wrote about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub description: Option<String>,
    /// How far it is.
    pub status: ServerStatus,
    /// Whether its sessions are recorded.
    pub recording_policy: RecordingPolicy,
    /// How its sessions are encrypted.
    pub encryption_policy: EncryptionPolicy,
    /// Who may use it.
    pub access_policy: AccessPolicy,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// What it said at its enrollment that it can do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub capabilities: Option<WebttyServerCapabilities>,
    /// The key that is sealed to: X25519, base64url.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub server_public_key: Option<String>,
    /// Names the key that signs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub server_signing_key_id: Option<String>,
    /// The key that signs: P-256 as DER, base64url.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub server_signing_public_key: Option<String>,
    /// What people compare: `sha256:` and base64url.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub server_fingerprint: Option<String>,
    /// What the first key is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub server_key_algorithm: Option<String>,
    /// When it was enrolled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, format = DateTime)]
    pub enrolled_at: Option<String>,
    /// Who registered it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub created_by_user_id: Option<String>,
    /// When.
    #[schema(format = DateTime)]
    pub created_at: String,
    /// When it last changed.
    #[schema(format = DateTime)]
    pub updated_at: String,
}

/// What a server can do, in its own words.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WebttyServerCapabilities {
    /// What carries its messages.
    #[serde(default)]
    #[schema(required = false, max_items = 16)]
    pub transports: Vec<String>,
    /// How it starts commands.
    #[serde(default)]
    #[schema(required = false, max_items = 16)]
    pub execution_modes: Vec<String>,
    /// How it encrypts.
    #[serde(default)]
    #[schema(required = false, max_items = 16)]
    pub encryption: Vec<String>,
    /// Its host.
    #[serde(default)]
    #[schema(required = false)]
    pub labels: BTreeMap<String, String>,
}

/// One page of registered servers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct WebttyServerList {
    /// The servers of the page.
    pub servers: Vec<WebttyServer>,
    /// Where in the list this page is.
    #[serde(flatten)]
    pub paging: Paging,
}

/// A server that was registered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CreatedWebttyServer {
    /// The server.
    pub server: WebttyServer,
}

/// A server to be.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateWebttyServer {
    /// Name, unique in the project.
    #[schema(min_length = 1, max_length = 100)]
    pub name: String,
    /// What there is to say about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 1000)]
    pub description: Option<String>,
    /// Whether its sessions are recorded; `recorded` where it is absent.
    #[serde(
        default,
        deserialize_with = "given",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(nullable = false)]
    pub recording_policy: Option<RecordingPolicy>,
    /// How its sessions are encrypted, for good; `disabled` where it is absent.
    /// `workspace_managed` is not available here.
    #[serde(
        default,
        deserialize_with = "given",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(nullable = false)]
    pub encryption_policy: Option<EncryptionPolicy>,
    /// Who may use it; `project_members` where it is absent.
    #[serde(
        default,
        deserialize_with = "given",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(nullable = false)]
    pub access_policy: Option<AccessPolicy>,
    /// Labels.
    #[serde(
        default,
        deserialize_with = "given",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(nullable = false)]
    pub labels: Option<BTreeMap<String, String>>,
}

/// What can be made of a server that is enrolled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum WebttyServerChange {
    /// It may serve again.
    Active,
    /// It may not: its tunnel is closed and its sessions end at once.
    Suspended,
}

/// A change to a server: what is absent stays.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UpdateWebttyServer {
    /// Name, unique in the project.
    #[serde(
        default,
        deserialize_with = "given",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(nullable = false, min_length = 1, max_length = 100)]
    pub name: Option<String>,
    /// What there is to say about it; `null` removes it.
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<String>, max_length = 1000)]
    pub description: Option<Option<String>>,
    /// Whether it may serve.
    #[serde(
        default,
        deserialize_with = "given",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(nullable = false)]
    pub status: Option<WebttyServerChange>,
    /// Whether its sessions are recorded, from the next one on.
    #[serde(
        default,
        deserialize_with = "given",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(nullable = false)]
    pub recording_policy: Option<RecordingPolicy>,
    /// Who may use it, from now on.
    #[serde(
        default,
        deserialize_with = "given",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(nullable = false)]
    pub access_policy: Option<AccessPolicy>,
    /// Labels, instead of all that it has.
    #[serde(
        default,
        deserialize_with = "given",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(nullable = false)]
    pub labels: Option<BTreeMap<String, String>>,
}

/// The public keys of a server. It has them for good: a host that lost its keys is another server.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EnrollWebttyServer {
    /// The key that is sealed to: X25519, base64url.
    pub server_public_key: String,
    /// Names the key that signs.
    pub server_signing_key_id: String,
    /// The key that signs: P-256 as DER, base64url.
    pub server_signing_public_key: String,
    /// What people compare; made of the keys where it is absent.
    #[serde(
        default,
        deserialize_with = "given",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(nullable = false)]
    pub server_fingerprint: Option<String>,
    /// What the first key is for: `webtty-x25519-hpke-v1`.
    pub server_key_algorithm: String,
    /// What the server can do, in its own words.
    #[serde(
        default,
        deserialize_with = "given",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(nullable = false)]
    pub capabilities: Option<WebttyServerCapabilities>,
}

/// Tells a member that is `null` (`Some(None)`) from one that is absent (`None`).
#[expect(clippy::option_option, reason = "three states")]
fn present<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Option<String>>, D::Error> {
    Option::deserialize(from).map(Some)
}

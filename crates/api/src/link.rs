//! The engine link: updates from a platform to its engines, and reports from the engines.
//!
//! An engine keeps one request to [`CHANGES`] open and reads one [`LinkMessage`] per line. The
//! stream starts with everything that the engine serves, unless the engine sends the cursor of an
//! earlier stream. Changes follow. The engine sends its reports in batches to [`REPORTS`]. Both
//! requests are authenticated with the cluster's enrolment secret as a bearer token, and neither is
//! part of the public interface.
//!
//! Items are complete: each replaces the previous item with its id, so an item that arrives twice
//! changes nothing. Items contain hashes, public keys and boundaries, but nothing that could be
//! used as a credential. There are two exceptions. The keys of TURN credentials are sent to relays
//! only, which authenticate with a secret of their own instead of the engines' secret. The private
//! keys of certificates that projects uploaded for their domains ([`DomainCertificate`]) are sent
//! only to the engines that serve these domains.

mod certificate_order;
mod credential_use;
mod domain_certificate;
mod engine_certificates;
mod session_ended;
mod sign_in;
mod tunnel_closed;

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::certificate_order::{CertificateOrderRecord, MAX_PROBLEM_BYTES};
pub use self::credential_use::{CREDENTIAL_USE_SECONDS, CredentialUseRecord};
pub use self::domain_certificate::DomainCertificate;
pub use self::engine_certificates::{EngineCertificate, EngineCertificatesRecord};
pub use self::session_ended::{EDGE_SESSION, EDGE_SESSION_SECONDS, SessionEndedRecord};
pub use self::sign_in::{SIGN_IN, SIGN_IN_TYPE, SignIn, SignInClaims};
pub use self::tunnel_closed::TunnelClosedRecord;
use crate::control::domains::DomainCertificateValidation;
use crate::control::settings::ProjectSettings;

/// Path of the update stream: `GET`, with `since=<cursor>` if the engine has one;
/// `application/x-ndjson`.
pub const CHANGES: &str = "/link/v1/changes";
/// Path for reports: `POST` with a [`Report`]; the response is a [`Receipt`].
pub const REPORTS: &str = "/link/v1/reports";

/// Maximum length of a line of the stream, in bytes: one project with all of its addresses,
/// domains and settings.
pub const MAX_LINE_BYTES: usize = 1024 * 1024;
/// Maximum size of a report, in bytes.
pub const MAX_REPORT_BYTES: usize = 4 * 1024 * 1024;
/// Maximum number of records in one report.
pub const MAX_RECORDS: usize = 1_000;
/// Maximum number of seconds between two lines. A link that is silent for three times as long
/// counts as broken.
pub const ALIVE_SECONDS: u64 = 5;
/// Version of these types: header `svc-link-version` of both requests.
pub const VERSION: &str = "1";

/// One line of the stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum LinkMessage {
    /// A full snapshot follows; items missing from it no longer exist. The previous state remains
    /// effective until [`LinkMessage::SnapshotEnd`].
    SnapshotBegin {
        /// Settings of the whole cluster.
        platform: Platform,
    },
    /// A part of the snapshot.
    Item {
        /// The item.
        item: Item,
    },
    /// The snapshot is complete and takes effect.
    SnapshotEnd {
        /// Cursor after the snapshot.
        cursor: Cursor,
    },
    /// One atomic change, with its items in order.
    Change {
        /// Cursor after the change.
        cursor: Cursor,
        /// The new items.
        items: Vec<Item>,
    },
    /// Keep-alive: nothing changed.
    Alive {},
    /// A line of a later version, which this version ignores.
    #[serde(other)]
    Unknown,
}

/// Position of an engine in the stream of changes: `<version>.<mark>`, opaque to the engine. The
/// mark distinguishes two histories with the same version, for example after a database was
/// restored.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Cursor(pub String);

/// Settings of the whole cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Platform {
    /// Address of the platform, for sign-in and as the issuer of tokens.
    pub base_url: String,
    /// Domain of the projects: `<endpoint>.<cluster_domain>`.
    pub cluster_domain: String,
}

/// One replicated object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "item", rename_all = "snake_case")]
pub enum Item {
    /// The platform's public keys.
    Keys(Keys),
    /// A project of the cluster.
    Project(Box<Project>),
    /// The project is no longer served here.
    ProjectGone {
        /// Its id.
        id: String,
    },
    /// A user with a membership in a workspace with a project of the cluster.
    Person(Person),
    /// The user has no membership in any of these workspaces any more, or may not use the platform.
    PersonGone {
        /// Id of the user.
        id: String,
    },
    /// An active long-lived credential.
    Credential(Box<Credential>),
    /// The credential was revoked, has expired, or has no access to anything here.
    CredentialGone {
        /// Its id.
        id: String,
    },
    /// A registered `WebTTY` server of a project of the cluster.
    WebttyServer(Box<WebttyServer>),
    /// The server was deleted.
    WebttyServerGone {
        /// Its id.
        id: String,
    },
    /// A token or a platform session that was revoked before its expiry. Tokens minted from it are
    /// not accepted.
    Ended(EndedToken),
    /// The keys from which the passwords of TURN credentials are derived. Sent to relays only.
    RelayKeys(RelayKeys),
    /// The uploaded certificate of a custom domain. It follows its project, and ends when the
    /// project no longer lists the domain with [`CustomDomain::has_certificate`]. Never sent to
    /// relays.
    DomainCertificate(Box<DomainCertificate>),
    /// An item of a later version.
    #[serde(other)]
    Unknown,
}

/// The keys from which the passwords of TURN credentials are derived. The output of `Debug` leaves
/// them out.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelayKeys {
    /// The realm of the credentials.
    pub realm: String,
    /// The shared secret of platform and relays, base64.
    pub secret: String,
    /// The relay's private key on P-521: DER (RFC 5915), base64.
    pub private_key: String,
}

impl fmt::Debug for RelayKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RelayKeys")
            .field("realm", &self.realm)
            .finish_non_exhaustive()
    }
}

/// The platform's public keys.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Keys {
    /// A JWK set (RFC 7517), as at `/.well-known/jwks.json`.
    pub jwks: Value,
}

/// A project of the cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Project {
    /// Id.
    pub id: String,
    /// Eight lower-case hexadecimal digits: the first label of its host name.
    pub endpoint: String,
    /// The workspace that owns it.
    pub workspace_id: String,
    /// Plan, for the lists.
    pub plan: String,
    /// Provider.
    pub provider: String,
    /// Region, if the project is bound to one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// True if the project or its workspace is suspended. Nothing of it is served then.
    #[serde(default)]
    pub suspended: bool,
    /// Project-wide policy (ED-8).
    #[serde(default)]
    pub settings: ProjectSettings,
    /// Limits of the plan.
    #[serde(default)]
    pub limits: Limits,
    /// Reserved TCP ports.
    #[serde(default)]
    pub addresses: Vec<Address>,
    /// Custom domains that are served: the verified ones, and those whose records have been missing
    /// for a short time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub domains: Vec<CustomDomain>,
    /// Custom domains that the project holds and that are not served, because their records are
    /// missing: no wildcard of another project includes them. An older engine ignores them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<String>,
    /// Host names of its tunnels that an operator has taken down, in lower case: their visitors are
    /// refused. An older engine ignores them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taken_down: Vec<String>,
}

/// Limits that a plan sets for one project. If a limit is absent, only the engine's own limits
/// apply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    /// Maximum number of connected agents.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clients: Option<u32>,
    /// Maximum number of online tunnels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tunnels: Option<u32>,
    /// Requests and connections of visitors per second, over all tunnels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_per_second: Option<u32>,
    /// Requests and connections of visitors per second, to one tunnel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tunnel_requests_per_second: Option<u32>,
    /// Bytes per second in each direction, over all tunnels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_per_second: Option<u64>,
    /// Bytes per second in each direction, of one tunnel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tunnel_bytes_per_second: Option<u64>,
}

/// A reserved TCP port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// Id.
    pub id: String,
    /// Port on the engine's address.
    pub port: u16,
}

/// A custom domain of a project.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CustomDomain {
    /// Id.
    pub id: String,
    /// The name in A-labels, with the `*.` of a wildcard.
    pub hostname: String,
    /// How certificate authorities validate it.
    pub certificate_validation: DomainCertificateValidation,
    /// The project uploaded a certificate ([`DomainCertificate`]), so that the engine orders none.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_certificate: bool,
    /// Name of the record of `dns-01`, to which the owner of the domain has delegated
    /// `_acme-challenge` of the domain. Present if the domain is validated in the DNS and the
    /// platform has a zone for these names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub challenge_alias: Option<String>,
}

/// A user with a membership in a workspace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Person {
    /// Id of the user.
    pub id: String,
    /// Display name; empty if the user has not set one.
    #[serde(default)]
    pub name: String,
    /// Workspaces of the user, with the permissions of the role in each.
    pub memberships: Vec<Membership>,
    /// Unix seconds. Browser sessions at tunnels that started earlier have ended.
    #[serde(default)]
    pub sessions_after: i64,
}

/// Membership in a workspace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Membership {
    /// The workspace.
    pub workspace_id: String,
    /// Engine permissions of the role.
    pub permissions: Vec<String>,
    /// Name of the role, for services that request it. Absent from an older platform.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
}

/// An active long-lived credential.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Credential {
    /// Id.
    pub id: String,
    /// The user that owns it.
    pub user_id: String,
    /// The first credential in the chain of issuers; absent: this credential itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<String>,
    /// The only workspace that it is valid for; absent: all workspaces of its user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_id: Option<String>,
    /// Data that verifies the credential.
    pub proof: CredentialProof,
    /// Permissions; absent: not restricted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permissions: Option<Vec<String>>,
    /// Boundaries, in the form of the claim `resources`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Value>,
    /// Expiry in Unix seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<i64>,
}

/// Data that verifies a credential.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum CredentialProof {
    /// A personal access token, or a token issued to an OAuth client.
    Pat {
        /// SHA-256 of the token's text, in hexadecimal digits.
        sha256: String,
        /// Eight hexadecimal digits (`token_endpoint`), if the token has them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        token_endpoint: Option<String>,
    },
    /// An application that signs tokens itself.
    App {
        /// Its public key, PEM.
        public_key: String,
    },
    /// One client certificate.
    Certificate {
        /// SHA-256 of the certificate (DER), in hexadecimal digits.
        sha256: String,
    },
    /// Every client certificate of an authority.
    Authority {
        /// The authority's certificate, PEM.
        certificate: String,
    },
    /// A kind of a later version, which never verifies here.
    #[serde(other)]
    Unknown,
}

/// A registered `WebTTY` server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebttyServer {
    /// Id.
    pub id: String,
    /// The project of the server.
    pub project_id: String,
    /// Name, unique in the project.
    pub name: String,
    /// `pending_enrollment`, `active` or `suspended`. This and the following policies may have
    /// values of a later version. Code that depends on a policy refuses unknown values.
    pub status: String,
    /// `recorded` or `private`.
    pub recording_policy: String,
    /// `disabled` or `explicit_key`.
    pub encryption_policy: String,
    /// `project_members` or `restricted`.
    pub access_policy: String,
    /// The keys that it was enrolled with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<WebttyServerKeys>,
}

/// The public keys of a registered server, base64url.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebttyServerKeys {
    /// The encryption key, which clients seal to: X25519.
    pub encryption: String,
    /// The signing key: P-256, DER.
    pub signing: String,
}

/// A token or session that was revoked before its expiry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedToken {
    /// `jti` of a token, or id of the platform session that tokens were minted from.
    pub id: String,
    /// Unix seconds of the expiry; the entry is not needed afterwards.
    pub until: i64,
}

/// Report of an engine. Each `reporter` numbers its batches from 1. The platform acknowledges a
/// batch that it already has without counting it again, so every record is counted exactly once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Random id of this engine's spool, 32 hexadecimal digits.
    pub reporter: String,
    /// Number of the batch.
    pub sequence: u64,
    /// The records, at most [`MAX_RECORDS`].
    pub records: Vec<Record>,
}

/// One reported record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum Record {
    /// A visit: the object of `stream.summary`.
    Stream(Box<StreamRecord>),
    /// A client or a tunnel was created, changed or deleted.
    Event(Box<EventRecord>),
    /// Traffic of a project's tunnels since the previous report.
    Usage(UsageRecord),
    /// Number of clients and tunnels of a project that are online.
    Inventory(InventoryRecord),
    /// Relay usage of a project.
    TurnUsage(TurnUsageRecord),
    /// A person signed out at a tunnel.
    SessionEnded(SessionEndedRecord),
    /// A credential was used.
    CredentialUse(CredentialUseRecord),
    /// State of the certificate that the engine orders for a custom domain.
    CertificateOrder(Box<CertificateOrderRecord>),
    /// State of the certificates of the engine's own names.
    EngineCertificates(Box<EngineCertificatesRecord>),
    /// A caller of the Engine API closed a tunnel.
    TunnelClosed(Box<TunnelClosedRecord>),
    /// A record of a later version.
    #[serde(other)]
    Unknown,
}

/// A visit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StreamRecord {
    /// The project.
    pub project_id: String,
    /// The stream: 24 hexadecimal digits.
    pub stream_id: String,
    /// The tunnel of the stream, if one was found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tunnel_id: Option<String>,
    /// Name of the tunnel, if it has one. Absent from an older engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tunnel_name: Option<String>,
    /// Owner of the tunnel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_id: Option<String>,
    /// `connected`, `failed` or `denied`.
    pub outcome: String,
    /// RFC 3339.
    pub created_at: jiff::Timestamp,
    /// The complete summary.
    pub summary: Value,
}

/// An event of the live state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EventRecord {
    /// The project.
    pub project_id: String,
    /// The event, as event streams deliver it.
    pub event: Value,
}

/// Traffic of a project's tunnels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageRecord {
    /// The project.
    pub project_id: String,
    /// Start of the hour.
    pub hour: jiff::Timestamp,
    /// Started streams.
    pub streams: u64,
    /// Streams that did not reach their service.
    pub failed_streams: u64,
    /// Bytes towards the services.
    pub upstream_bytes: u64,
    /// Bytes towards the visitors.
    pub downstream_bytes: u64,
}

/// Number of clients and tunnels of a project that are online. An engine reports it after each
/// change, and all projects every five minutes. The platform drops entries that were not repeated
/// for fifteen minutes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InventoryRecord {
    /// The project.
    pub project_id: String,
    /// Agents.
    pub clients: u32,
    /// Tunnels.
    pub tunnels: u32,
}

/// Relay usage of a project.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnUsageRecord {
    /// The project.
    pub project_id: String,
    /// Start of the hour.
    pub hour: jiff::Timestamp,
    /// Allocations.
    pub allocations: u64,
    /// Relayed bytes in both directions.
    pub relayed_bytes: u64,
}

/// The response to a [`Report`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// Number of the last batch of this reporter that the platform has, with all batches before it.
    pub through: u64,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lines_match_their_documented_form() {
        let change = LinkMessage::Change {
            cursor: Cursor("7.a1".to_owned()),
            items: vec![Item::CredentialGone {
                id: "crd_1".to_owned(),
            }],
        };
        let line = json!({"type": "change", "cursor": "7.a1",
            "items": [{"item": "credential_gone", "id": "crd_1"}]});
        assert_eq!(serde_json::to_value(&change).unwrap(), line);
        assert_eq!(serde_json::from_value::<LinkMessage>(line).unwrap(), change);
    }

    #[test]
    fn debug_output_leaves_relay_keys_out() {
        let keys = Item::RelayKeys(RelayKeys {
            realm: "engine.example.com".to_owned(),
            secret: "c2VjcmV0".to_owned(),
            private_key: "cHJpdmF0ZQ==".to_owned(),
        });
        let printed = format!("{keys:?}");
        assert!(printed.contains("engine.example.com"));
        assert!(
            !printed.contains("c2Vj") && !printed.contains("cHJp"),
            "{printed}"
        );
        let line = serde_json::to_value(&keys).unwrap();
        assert_eq!(line["item"], "relay_keys");
        assert_eq!(serde_json::from_value::<Item>(line).unwrap(), keys);
    }

    #[test]
    fn values_of_later_versions_are_not_errors() {
        let later = json!({"type": "change", "cursor": "8.b2",
            "items": [{"item": "weather", "sun": true}]});
        let LinkMessage::Change { items, .. } = serde_json::from_value(later).unwrap() else {
            panic!("a change");
        };
        assert_eq!(items, [Item::Unknown]);
        let later = json!({"type": "song", "verse": 1});
        assert_eq!(
            serde_json::from_value::<LinkMessage>(later).unwrap(),
            LinkMessage::Unknown
        );
    }

    #[test]
    fn a_project_needs_only_its_identifiers() {
        let project: Project =
            serde_json::from_value(json!({"id": "prj_1", "endpoint": "e7e8a732",
            "workspace_id": "wks_1", "plan": "basic", "provider": "other"}))
            .unwrap();
        assert!(!project.suspended);
        assert_eq!(project.settings, ProjectSettings::default());
        assert_eq!(project.limits, Limits::default());
    }
}

//! The engine link: what a platform tells its engines, and what engines report.
//!
//! An engine keeps one request open, [`CHANGES`], and reads one [`Down`] a line: first everything
//! that it serves, unless it says how far it has come, then what changes. What it has to tell goes
//! the other way in batches, to [`REPORTS`]. Both are authenticated by the cluster's enrolment
//! secret as a bearer, and neither is part of the public interface.
//!
//! Items are whole: each replaces what was known under its id, and telling one twice changes
//! nothing. Hashes, public keys and boundaries travel; nothing that could be used as a credential,
//! but for the keys of TURN credentials, which relays alone are told: they show a secret of their
//! own instead of the engines'.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::control::settings::ProjectSettings;

/// Where an engine reads: `GET`, with `since=<cursor>` where it has one; `application/x-ndjson`.
pub const CHANGES: &str = "/link/v1/changes";
/// Where an engine reports: `POST`, a [`Report`], answered by a [`Receipt`].
pub const REPORTS: &str = "/link/v1/reports";
/// Where a browser is sent to sign in for a published tunnel. See [`SignIn`].
pub const SIGN_IN: &str = "/edge/sign-in";

/// Longest line of the stream, in bytes: one project with all of its addresses and settings.
pub const MAX_LINE_BYTES: usize = 1024 * 1024;
/// Largest report, in bytes.
pub const MAX_REPORT_BYTES: usize = 4 * 1024 * 1024;
/// Records in one report at most.
pub const MAX_RECORDS: usize = 1_000;
/// Seconds between two lines at most; a link that is silent for three times as long is broken.
pub const ALIVE_SECONDS: u64 = 5;
/// Version of the shapes here: header `svc-link-version` of both requests.
pub const VERSION: &str = "1";

/// One line of the stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Down {
    /// Everything follows; what is not in it is no more. What was known stays in force until
    /// [`Down::SnapshotEnd`].
    SnapshotBegin {
        /// What holds for the whole cluster.
        platform: Platform,
    },
    /// A part of the snapshot.
    Item {
        /// What there is.
        item: Item,
    },
    /// The snapshot is whole and takes force.
    SnapshotEnd {
        /// How far it goes.
        cursor: Cursor,
    },
    /// What changed in one step, in the order of the changes.
    Change {
        /// How far the engine has come with it.
        cursor: Cursor,
        /// What is so now.
        items: Vec<Item>,
    },
    /// Nothing changed; the link stands.
    Alive {},
    /// Something of a later version, which is no business of this one.
    #[serde(other)]
    Unknown,
}

/// How far an engine has come: `<version>.<mark>`, opaque to it. The mark tells two histories
/// apart that came to the same version, as after a database was restored.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Cursor(pub String);

/// What holds for the whole cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Platform {
    /// Address of the platform, for sign-in and as the issuer of tokens.
    pub base_url: String,
    /// Projects are at `<endpoint>.<cluster_domain>`.
    pub cluster_domain: String,
}

/// One thing that an engine has to know.
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
    /// Somebody who has a part in a workspace with a project of the cluster.
    Person(Person),
    /// The person has no part in any of them any more, or may not use the platform.
    PersonGone {
        /// Id of the user.
        id: String,
    },
    /// A long-lived credential that is in force.
    Credential(Box<Credential>),
    /// The credential was revoked, ended, or reaches nothing here.
    CredentialGone {
        /// Its id.
        id: String,
    },
    /// A registered `WebTTY` server of a project of the cluster.
    WebttyServer(Box<WebttyServer>),
    /// The server has no record any more.
    WebttyServerGone {
        /// Its id.
        id: String,
    },
    /// A token that was ended before its time, or a session of the platform that was: what was
    /// minted from it is not accepted.
    Ended(Ended),
    /// What makes the passwords of TURN credentials. Told to relays alone.
    RelayKeys(RelayKeys),
    /// Something of a later version.
    #[serde(other)]
    Unknown,
}

/// What makes the passwords of TURN credentials. It does not print.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelayKeys {
    /// The realm that they are for.
    pub realm: String,
    /// The secret that platform and relays share, base64.
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
    /// Eight lower-case hexadecimal digits: the first label of its address.
    pub endpoint: String,
    /// The workspace that it belongs to.
    pub workspace_id: String,
    /// Plan, provider and region, for the lists.
    pub plan: String,
    /// Provider.
    pub provider: String,
    /// Region, where it is bound to one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// Nothing of it is served: it, or its workspace, was suspended.
    #[serde(default)]
    pub suspended: bool,
    /// Project-wide policy (ED-8).
    #[serde(default)]
    pub settings: ProjectSettings,
    /// What the plan allows.
    #[serde(default)]
    pub limits: Limits,
    /// Reserved TCP ports.
    #[serde(default)]
    pub addresses: Vec<Address>,
}

/// What a plan allows to one project. What is absent is bounded by the engine alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    /// Agents that are connected at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clients: Option<u32>,
    /// Tunnels that are online at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tunnels: Option<u32>,
    /// Requests and connections of visitors in a second, over all tunnels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_per_second: Option<u32>,
    /// Requests and connections of visitors in a second, to one tunnel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tunnel_requests_per_second: Option<u32>,
    /// Bytes in a second, each way, over all tunnels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_per_second: Option<u64>,
    /// Bytes in a second, each way, of one tunnel.
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

/// Somebody who has a part in a workspace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Person {
    /// Id of the user.
    pub id: String,
    /// What others are shown; nothing where the person gave no name.
    #[serde(default)]
    pub name: String,
    /// Where, and what the role there allows.
    pub memberships: Vec<Membership>,
    /// Unix seconds: browser sessions at tunnels that began before are over.
    #[serde(default)]
    pub sessions_after: i64,
}

/// A part in a workspace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Membership {
    /// The workspace.
    pub workspace_id: String,
    /// Engine permissions that the role allows.
    pub permissions: Vec<String>,
}

/// A long-lived credential that is in force.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Credential {
    /// Id.
    pub id: String,
    /// Whose it is.
    pub user_id: String,
    /// The credential at the beginning of the chain of those that issued it; absent: itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<String>,
    /// The one workspace that it is for; absent: wherever its user may go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_id: Option<String>,
    /// How it is known.
    pub proof: CredentialProof,
    /// Permissions; absent: not narrowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permissions: Option<Vec<String>>,
    /// Boundaries, in the form of the claim `resources`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Value>,
    /// Unix seconds from which it is no longer good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<i64>,
}

/// How a credential is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum CredentialProof {
    /// A personal access token, or what an OAuth client was issued.
    Pat {
        /// SHA-256 of the token's text, in hexadecimal digits.
        sha256: String,
        /// Eight hexadecimal digits (`token_endpoint`), where it has them.
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
    /// Something of a later version, which proves nothing here.
    #[serde(other)]
    Unknown,
}

/// A registered `WebTTY` server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebttyServer {
    /// Id.
    pub id: String,
    /// The project that it is in.
    pub project_id: String,
    /// Name, unique in the project.
    pub name: String,
    /// `pending_enrollment`, `active` or `suspended`. The words of this and what follows may be
    /// those of a later version: what is not known is refused where it matters.
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
    /// What is sealed to: X25519.
    pub encryption: String,
    /// What signs: P-256, DER.
    pub signing: String,
}

/// Something that was ended before its time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// `jti` of a token, or id of the platform's session that tokens were minted from.
    pub id: String,
    /// Unix seconds after which nothing can come of it anyway.
    pub until: i64,
}

/// What an engine reports. Batches are counted from 1 by each `reporter`; one that the platform
/// has already is answered and not counted again, so every record arrives exactly once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Random id of this engine's spool, 32 hexadecimal digits.
    pub reporter: String,
    /// Number of the batch.
    pub sequence: u64,
    /// What happened, at most [`MAX_RECORDS`].
    pub records: Vec<Record>,
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum Record {
    /// A visit: the object of `stream.summary`.
    Stream(Box<StreamRecord>),
    /// A client or a tunnel came, changed or went.
    Event(Box<EventRecord>),
    /// What went through a project's tunnels since the last one.
    Usage(UsageRecord),
    /// What is online in a project now.
    Inventory(InventoryRecord),
    /// What a project used of a relay.
    TurnUsage(TurnUsageRecord),
    /// A person signed out at a tunnel.
    SessionEnded(SessionEndedRecord),
    /// Something of a later version.
    #[serde(other)]
    Unknown,
}

/// The end of a session at a tunnel. The platform tells all engines of it as [`Item::Ended`], with
/// [`EDGE_SESSION`] in front of the id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionEndedRecord {
    /// The project at whose tunnel it was.
    pub project_id: String,
    /// Its id, which is that of the code that began it.
    pub id: String,
}

/// Begins the id of a session at a tunnel among what has ended: an engine ends those and nothing
/// else.
pub const EDGE_SESSION: &str = "edge:";

/// Seconds that a session at a tunnel lasts at most.
pub const EDGE_SESSION_SECONDS: i64 = 12 * 3600;

/// A visit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StreamRecord {
    /// The project.
    pub project_id: String,
    /// The stream: 24 hexadecimal digits.
    pub stream_id: String,
    /// Its tunnel, where it found one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tunnel_id: Option<String>,
    /// Owner of the tunnel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_id: Option<String>,
    /// `connected`, `failed` or `denied`.
    pub outcome: String,
    /// RFC 3339.
    pub created_at: jiff::Timestamp,
    /// The whole summary.
    pub summary: Value,
}

/// An event of the live state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EventRecord {
    /// The project.
    pub project_id: String,
    /// The event, as watchers see it.
    pub event: Value,
}

/// What went through a project's tunnels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageRecord {
    /// The project.
    pub project_id: String,
    /// When the hour began.
    pub hour: jiff::Timestamp,
    /// Streams that began.
    pub streams: u64,
    /// Those that did not reach their service.
    pub failed_streams: u64,
    /// Bytes towards the services.
    pub upstream_bytes: u64,
    /// Bytes towards the visitors.
    pub downstream_bytes: u64,
}

/// What is online in a project. An engine reports it when it changes, and all of it every five
/// minutes: what was not repeated for fifteen is forgotten.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InventoryRecord {
    /// The project.
    pub project_id: String,
    /// Agents.
    pub clients: u32,
    /// Tunnels.
    pub tunnels: u32,
}

/// What a project used of a relay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnUsageRecord {
    /// The project.
    pub project_id: String,
    /// When the hour began.
    pub hour: jiff::Timestamp,
    /// Allocations that were made.
    pub allocations: u64,
    /// Bytes that were relayed, both ways.
    pub relayed_bytes: u64,
}

/// The answer to a [`Report`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// The platform has all batches of this reporter up to here.
    pub through: u64,
}

/// Sign-in for a published tunnel: an engine sends a browser to [`SIGN_IN`] with these in the
/// query, and gets it back at `https://<host>/.well-known/svc/callback?code=…&state=…`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignIn {
    /// Authority of the tunnel, with the port where it is not 443.
    pub host: String,
    /// SHA-256 of the secret that the browser holds in a cookie of that host, base64url. It comes
    /// back in the code, so that a code is good in the browser that asked for it alone.
    pub nonce: String,
    /// The engine's own, given back unread.
    pub state: String,
}

/// What the code of a sign-in says: claims of a JWT (`EdDSA`, the platform's keys) that is good for
/// one minute, at one host, once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignInClaims {
    /// The platform's address.
    pub iss: String,
    /// `https://<host>` of the tunnel.
    pub aud: String,
    /// Id of the user.
    pub sub: String,
    /// From [`SignIn::nonce`].
    pub nonce: String,
    /// Id of this code.
    pub jti: String,
    /// Unix seconds.
    pub iat: i64,
    /// Unix seconds.
    pub exp: i64,
    /// Id of the person's session at the platform: the session at the tunnel ends with it. Absent in
    /// codes of an older platform.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sid: Option<String>,
    /// Name and address, for `/.well-known/svc/session`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Address of the person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
}

/// `typ` in the header of a sign-in code: no other token is taken for one, nor it for another.
pub const SIGN_IN_TYPE: &str = "svc-sign-in+jwt";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lines_are_what_they_are_documented_to_be() {
        let change = Down::Change {
            cursor: Cursor("7.a1".to_owned()),
            items: vec![Item::CredentialGone {
                id: "crd_1".to_owned(),
            }],
        };
        let line = json!({"type": "change", "cursor": "7.a1",
            "items": [{"item": "credential_gone", "id": "crd_1"}]});
        assert_eq!(serde_json::to_value(&change).unwrap(), line);
        assert_eq!(serde_json::from_value::<Down>(line).unwrap(), change);
    }

    #[test]
    fn keys_of_relays_do_not_print() {
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
    fn what_a_later_version_says_is_not_an_error() {
        let later = json!({"type": "change", "cursor": "8.b2",
            "items": [{"item": "weather", "sun": true}]});
        let Down::Change { items, .. } = serde_json::from_value(later).unwrap() else {
            panic!("a change");
        };
        assert_eq!(items, [Item::Unknown]);
        let later = json!({"type": "song", "verse": 1});
        assert_eq!(
            serde_json::from_value::<Down>(later).unwrap(),
            Down::Unknown
        );
    }

    #[test]
    fn a_project_needs_no_more_than_what_names_it() {
        let project: Project =
            serde_json::from_value(json!({"id": "prj_1", "endpoint": "e7e8a732",
            "workspace_id": "wks_1", "plan": "basic", "provider": "other"}))
            .unwrap();
        assert!(!project.suspended);
        assert_eq!(project.settings, ProjectSettings::default());
        assert_eq!(project.limits, Limits::default());
    }
}

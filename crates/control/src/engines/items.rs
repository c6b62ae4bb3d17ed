//! Conversion of store rows into items of the link.

use api::control::domains::DomainCertificateValidation;
use api::control::settings::ProjectSettings;
use api::link::{
    Address, Credential, CredentialProof, CustomDomain, DomainCertificate, EndedToken, Item,
    Membership, Person, Project, RelayKeys, WebttyServer, WebttyServerKeys,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde::Deserialize as _;
use store::domains::CertificateValidation;
use store::{Conn, credentials, directory, webtty_servers};
use types::id::{ProjectId, UserId};
use types::permission::Permission;

use super::cluster::Cluster;
use crate::app::App;
use crate::domains::opened_key;
use crate::workspaces::role::Role;

/// The public keys that this process currently has.
pub(super) fn keys(app: &App) -> Item {
    // The document was made from values in this process.
    let jwks = serde_json::from_slice(app.keys.key_set().jwks()).unwrap_or_default();
    Item::Keys(api::link::Keys { jwks })
}

/// The keys for the passwords of TURN credentials, for relays.
pub(super) fn relay_keys(app: &App, cluster: &Cluster) -> Option<Item> {
    let realm = cluster.relay_realm.as_deref()?;
    let relay = app.keys.turn_relay(realm)?;
    Some(Item::RelayKeys(RelayKeys {
        realm: realm.to_owned(),
        secret: STANDARD.encode(app.keys.turn_secret().expose()),
        private_key: STANDARD.encode(relay.private_der().expose()),
    }))
}

/// Rows that belong to projects.
#[derive(Debug)]
pub(super) struct Parts {
    ports: Vec<directory::Port>,
    pub(super) domains: Vec<directory::CustomDomain>,
    held: Vec<directory::HeldName>,
    taken_down: Vec<directory::TakenDownName>,
}

impl Parts {
    /// Those of these projects of the cluster.
    pub(super) async fn of(
        conn: &mut Conn,
        cluster: &Cluster,
        projects: &[ProjectId],
    ) -> Result<Self, store::Error> {
        Ok(Self {
            ports: directory::ports(conn, &cluster.domain, projects).await?,
            domains: directory::domains(conn, projects).await?,
            held: directory::held_names(conn, projects).await?,
            taken_down: directory::taken_down(conn, projects).await?,
        })
    }
}

/// Projects with their ports, custom domains and taken down names.
pub(super) fn projects<'a>(
    cluster: &'a Cluster,
    rows: Vec<directory::Project>,
    parts: &'a Parts,
) -> impl Iterator<Item = Item> + 'a {
    rows.into_iter()
        .map(move |row| Item::Project(Box::new(project(cluster, row, parts))))
}

fn project(cluster: &Cluster, row: directory::Project, parts: &Parts) -> Project {
    // A policy that cannot be parsed may have been a strict one.
    let settings = ProjectSettings::deserialize(&row.settings);
    if settings.is_err() {
        tracing::error!(project.id = %row.id, "the settings of a project are not what was written");
    }
    Project {
        suspended: row.is_suspended || settings.is_err(),
        settings: settings.unwrap_or_default(),
        limits: cluster.limits(&row.plan),
        addresses: ports_of(&parts.ports, row.id).collect(),
        domains: domains_of(cluster, &parts.domains, row.id).collect(),
        held: held_by(&parts.held, row.id).collect(),
        taken_down: names_of(&parts.taken_down, row.id).collect(),
        id: row.id.to_string(),
        endpoint: row.endpoint,
        workspace_id: row.workspace_id.to_string(),
        plan: row.plan,
        provider: row.provider,
        region: row.region,
    }
}

fn ports_of(ports: &[directory::Port], project_id: ProjectId) -> impl Iterator<Item = Address> {
    let own = ports
        .iter()
        .filter(move |port| port.project_id == project_id);
    own.filter_map(|port| {
        Some(Address {
            id: port.id.to_string(),
            port: u16::try_from(port.port).ok()?,
        })
    })
}

/// The names that no wildcard of another project may include meanwhile. A wildcard that is held is
/// in no other one.
fn held_by(held: &[directory::HeldName], project_id: ProjectId) -> impl Iterator<Item = String> {
    let own = held
        .iter()
        .filter(move |name| name.project_id == project_id && !name.hostname.starts_with("*."));
    own.map(|name| name.hostname.clone())
}

fn names_of(
    taken_down: &[directory::TakenDownName],
    project_id: ProjectId,
) -> impl Iterator<Item = String> {
    let own = taken_down
        .iter()
        .filter(move |name| name.project_id == project_id);
    own.map(|name| name.hostname.clone())
}

fn domains_of(
    cluster: &Cluster,
    domains: &[directory::CustomDomain],
    project_id: ProjectId,
) -> impl Iterator<Item = CustomDomain> {
    let own = domains
        .iter()
        .filter(move |domain| domain.project_id == project_id);
    own.map(move |domain| CustomDomain {
        id: domain.id.to_string(),
        hostname: domain.hostname.clone(),
        certificate_validation: match domain.certificate_validation {
            CertificateValidation::TlsAlpn01 => DomainCertificateValidation::TlsAlpn01,
            CertificateValidation::Dns01 => DomainCertificateValidation::Dns01,
        },
        has_certificate: domain.certificate_expires_at.is_some(),
        challenge_alias: match domain.certificate_validation {
            CertificateValidation::TlsAlpn01 => None,
            CertificateValidation::Dns01 => {
                let zones = &cluster.domains;
                zones.challenge_alias(&cluster.domain, project_id, &domain.hostname)
            }
        },
    })
}

/// The projects with uploaded certificates, in the order of the domains. Relays get no certificate.
pub(super) fn with_certificates(
    cluster: &Cluster,
    domains: &[directory::CustomDomain],
) -> Vec<ProjectId> {
    let is_relay = cluster.relay_realm.is_some();
    let uploaded = domains
        .iter()
        .filter(|domain| !is_relay && domain.certificate_expires_at.is_some());
    let mut ids: Vec<_> = uploaded.map(|domain| domain.project_id).collect();
    ids.dedup();
    ids
}

/// An uploaded certificate with its key; `None` if the key cannot be decrypted.
pub(super) fn certificate(app: &App, row: directory::DomainCertificate) -> Option<Item> {
    let Some(key) = opened_key(app, row.id, &row.sealed_certificate_key) else {
        tracing::error!(
            domain.id = %row.id,
            "the key of a domain's certificate cannot be decrypted: was the platform's key changed?"
        );
        return None;
    };
    Some(Item::DomainCertificate(Box::new(DomainCertificate {
        id: row.id.to_string(),
        project_id: row.project_id.to_string(),
        hostname: row.hostname,
        chain: row.certificate_chain,
        private_key: key.to_string(),
    })))
}

/// Users with their memberships.
pub(super) fn people(
    rows: Vec<directory::Person>,
    parts: &[directory::ClusterMembership],
) -> impl Iterator<Item = Item> {
    rows.into_iter().map(|row| {
        Item::Person(Person {
            id: row.id.to_string(),
            name: row.name,
            memberships: memberships(parts, row.id).collect(),
            sessions_after: ceil_second(row.sessions_after),
        })
    })
}

fn memberships(
    parts: &[directory::ClusterMembership],
    user_id: UserId,
) -> impl Iterator<Item = Membership> {
    // Sorted by user in the store.
    let first = parts.partition_point(|part| part.user_id < user_id);
    let own = parts.iter().skip(first);
    own.take_while(move |part| part.user_id == user_id)
        .map(|part| Membership {
            workspace_id: part.workspace_id.to_string(),
            permissions: permissions(part.role.into()),
            role: Some(Role::from(part.role).as_str().to_owned()),
        })
}

/// Permissions of a role at an engine. An engine may also restrict a registered server to users who
/// manage such servers.
fn permissions(role: Role) -> Vec<String> {
    let engines = |permission: &&Permission| {
        let mut rules = permission.rules().iter();
        **permission == Permission::NetworkWebttyServersReadWrite
            || rules
                .any(|rule| rule.resource.starts_with("engine.") || rule.resource == "turn.relay")
    };
    let allowed = Permission::ALL.iter().filter(engines);
    allowed
        .filter(|permission| role.allows(**permission))
        .map(ToString::to_string)
        .collect()
}

/// Rounds up, so that a session which started in this very second counts as ended. Its user has to
/// sign in again.
fn ceil_second(at: Timestamp) -> i64 {
    let second = at.as_second();
    second.saturating_add(i64::from(at.subsec_nanosecond() > 0))
}

/// A credential; `None` if it does not authenticate.
pub(super) fn credential(row: credentials::Credential) -> Option<Item> {
    let proof = match row.kind {
        credentials::Kind::Pat => CredentialProof::Pat {
            sha256: hex::encode(row.token_hash?.0),
            token_endpoint: row.token_endpoint,
        },
        credentials::Kind::App => CredentialProof::App {
            public_key: row.public_key?,
        },
        credentials::Kind::Mtls => match row.certificate_fingerprint {
            Some(fingerprint) => CredentialProof::Certificate {
                sha256: hex::encode(fingerprint),
            },
            None => CredentialProof::Authority {
                certificate: row.issuer_fingerprint.and(row.certificate)?,
            },
        },
    };
    Some(Item::Credential(Box::new(Credential {
        id: row.id.to_string(),
        user_id: row.user_id.to_string(),
        root: row.root_id.map(|id| id.to_string()),
        workspace_id: row.workspace_id.map(|id| id.to_string()),
        proof,
        permissions: row.permissions,
        resources: row.resources,
        expires_at: row.expires_at.map(Timestamp::as_second),
    })))
}

/// A registered server.
pub(super) fn webtty_server(row: webtty_servers::WebttyServer) -> Item {
    let keys = row.enrolment.as_ref().and_then(|keys| {
        let key = |name: &str| keys.get(name)?.as_str().map(str::to_owned);
        Some(WebttyServerKeys {
            encryption: key("serverPublicKey")?,
            signing: key("serverSigningPublicKey")?,
        })
    });
    Item::WebttyServer(Box::new(WebttyServer {
        id: row.id.to_string(),
        project_id: row.project_id.to_string(),
        name: row.name,
        status: row.status,
        recording_policy: row.recording_policy,
        encryption_policy: row.encryption_policy,
        access_policy: row.access_policy,
        keys,
    }))
}

/// An object that ended before its expiry.
pub(super) fn ended_object(row: directory::EndedObject) -> Item {
    Item::Ended(EndedToken {
        id: row.jti,
        until: ceil_second(row.expires_at),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_has_its_engine_permissions() {
        assert_eq!(
            permissions(Role::Viewer),
            ["tunnels.resources.read-only", "webtty.sessions.read-only"]
        );
        let member = permissions(Role::Member);
        assert!(member.contains(&"tunnels.tunnels.create-delete".to_owned()));
        assert!(member.contains(&"turn.relay.allocate".to_owned()));
        assert!(!member.contains(&"webtty.logs.read-only".to_owned()));
        let manages = "network.webtty-servers.read-write".to_owned();
        assert!(!member.contains(&manages));
        assert!(permissions(Role::Admin).contains(&manages));
        assert!(permissions(Role::Owner).contains(&"webtty.logs.read-only".to_owned()));
        assert!(
            permissions(Role::Owner)
                .iter()
                .all(|name| !name.starts_with("account."))
        );
    }

    #[test]
    fn the_second_in_which_sessions_ended_counts_as_over() {
        let at = |text: &str| ceil_second(text.parse().unwrap());
        assert_eq!(at("1970-01-01T00:00:07Z"), 7);
        assert_eq!(at("1970-01-01T00:00:07.000001Z"), 8);
    }
}

//! Data that is replicated to the engines of a cluster: its projects, and the people and
//! credentials with access to them.
//!
//! All queries take the [`Cluster`] and return nothing of other clusters. An engine receives a
//! person or a credential only if it serves a project that these have access to. Long lists are
//! read in pages by id, on a [`crate::Snapshot`].

use jiff::Timestamp;
use types::id::{CredentialId, ProjectId, UserId, WebttyServerId, WorkspaceId};

use crate::credentials::Credential;
use crate::database::connection::Conn;
use crate::database::row::record;
use crate::database::sql::{Query, sql, statements};
use crate::error::Error;
use crate::webtty_servers::WebttyServer;
use crate::workspaces::members::Role;

/// The projects that a cluster serves: those of its regions.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// `provider/region` of each region that it serves.
    pub regions: Vec<String>,
    /// All regions of the catalogue, if the cluster also serves projects outside of them.
    pub known_regions: Option<Vec<String>>,
}

record! {
    /// A project, as it is replicated to engines.
    pub struct Project from "projects" {
        /// Id.
        pub id: ProjectId,
        /// The workspace that owns it.
        pub workspace_id: WorkspaceId,
        /// Eight hex digits: the label of its host name.
        pub endpoint: String,
        /// Plan of the catalogue.
        pub plan: String,
        /// Provider of the catalogue.
        pub provider: String,
        /// Region of the provider.
        pub region: Option<String>,
        /// Settings that differ from their defaults, a JSON object.
        pub settings: serde_json::Value,
        /// True if the project or its workspace is suspended.
        pub is_suspended: bool,
    }
}

record! {
    /// A reserved port.
    pub struct Port from "addresses" {
        /// Id.
        pub id: types::id::AddressId,
        /// The project that owns it.
        pub project_id: ProjectId,
        /// 1 to 65535.
        pub port: i64,
    }
}

record! {
    /// A custom domain that engines serve.
    pub struct CustomDomain from "domains" {
        /// Id.
        pub id: types::id::DomainId,
        /// The project that it belongs to.
        pub project_id: ProjectId,
        /// The name in A-labels, with the `*.` of a wildcard.
        pub hostname: String,
        /// How certificate authorities validate it.
        pub certificate_validation: crate::domains::CertificateValidation,
        /// Expiry of the certificate that the project uploaded, if there is one.
        pub certificate_expires_at: Option<Timestamp>,
    }
}

record! {
    /// A custom domain that its project holds, and that engines do not serve.
    pub struct HeldName from "domains" {
        /// The project.
        pub project_id: ProjectId,
        /// The name in A-labels, with the `*.` of a wildcard.
        pub hostname: String,
    }
}

record! {
    /// A host name that an operator has taken down.
    pub struct TakenDownName from "takedowns" {
        /// The project whose tunnels may have it.
        pub project_id: ProjectId,
        /// The name, in lower case.
        pub hostname: String,
    }
}

record! {
    /// The uploaded certificate of a custom domain that engines serve.
    pub struct DomainCertificate from "domains" {
        /// Id of the domain.
        pub id: types::id::DomainId,
        /// The project that it belongs to.
        pub project_id: ProjectId,
        /// The name in A-labels, with the `*.` of a wildcard.
        pub hostname: String,
        /// The certificate and its issuers, PEM.
        pub certificate_chain: String,
        /// The private key.
        pub sealed_certificate_key: crate::SealedBytes,
    }
}

record! {
    /// A user of the platform with access to a project of the cluster.
    pub struct Person from "users" {
        /// Id.
        pub id: UserId,
        /// Display name.
        pub name: String,
        /// Browser sessions that started earlier have ended.
        pub sessions_after: Timestamp,
    }
}

record! {
    /// A person's membership in a workspace with a project of the cluster.
    pub struct ClusterMembership from "members" {
        /// The user.
        pub user_id: UserId,
        /// The workspace.
        pub workspace_id: WorkspaceId,
        /// The role.
        pub role: Role,
    }
}

record! {
    /// A token or session that was revoked before its expiry.
    pub struct EndedObject from "revoked_tokens" {
        /// `jti` of a token, or id of a session.
        pub jti: String,
        /// Expiry, after which the entry is not needed.
        pub expires_at: Timestamp,
    }
}

// The first three arguments of each statement describe the cluster: its regions, a flag for serving
// other regions, and the list of all regions.
macro_rules! is_there {
    () => {
        "(p.provider || '/' || COALESCE(p.region, '') IN_LIST($1) \
         OR ($2 AND NOT (p.provider || '/' || COALESCE(p.region, '') IN_LIST($3))))"
    };
}

macro_rules! is_served {
    () => {
        concat!("p.deleted_at IS NULL AND ", is_there!())
    };
}

macro_rules! project {
    ($where:literal) => {
        concat!(
            "SELECT p.id, p.workspace_id, p.endpoint, p.plan, p.provider, p.region, p.settings, \
             (p.suspended_at IS NOT NULL OR w.status <> 'active') AS is_suspended \
             FROM projects p JOIN workspaces w ON w.id = p.workspace_id WHERE ",
            is_served!(),
            " AND ",
            $where
        )
    };
}

// True if user `u` is an active member of a workspace with a project of the cluster. The offset
// keeps PostgreSQL from turning it into a join, which would read all users for each page (with
// 100,000 credentials, three hundred milliseconds). For a single row it is a few index look-ups.
macro_rules! has_part {
    ($and:literal) => {
        concat!(
            "EXISTS (SELECT 1 FROM members m JOIN workspaces w ON w.id = m.workspace_id \
             AND w.deleted_at IS NULL JOIN projects p ON p.workspace_id = m.workspace_id \
             WHERE m.user_id = u.id AND m.status = 'active' AND ",
            is_served!(),
            $and,
            " LIMIT 1 OFFSET 0)"
        )
    };
}

macro_rules! person {
    ($where:literal) => {
        concat!(
            "SELECT u.id, u.name, u.sessions_after FROM users u WHERE u.status = 'active' AND ",
            $where,
            " AND ",
            has_part!("")
        )
    };
}

macro_rules! credential {
    ($where:literal) => {
        concat!(
            "SELECT c.id, c.user_id, c.workspace_id, c.kind, c.name, c.token_hash, \
             c.token_endpoint, c.public_key, COALESCE(c.certificate_sha256, c.certificate_fingerprint) AS certificate_fingerprint, c.certificate, \
             c.issuer_fingerprint, c.permissions, c.resources, c.created_at, c.updated_at, \
             c.expires_at, c.revoked_at, c.last_used_at, c.last_used_ip, c.signing_key, \
             c.rotated_to, c.oauth_client, c.issued_by, c.root_id FROM credentials c WHERE ",
            $where,
            " AND c.revoked_at IS NULL AND (c.expires_at IS NULL OR c.expires_at > $5) AND EXISTS \
             (SELECT 1 FROM users u WHERE u.id = c.user_id AND u.status = 'active' AND ",
            has_part!(" AND (c.workspace_id IS NULL OR c.workspace_id = m.workspace_id)"),
            " LIMIT 1 OFFSET 0)"
        )
    };
}

macro_rules! webtty_server {
    ($where:literal) => {
        concat!(
            "SELECT s.id, s.project_id, s.name, s.description, s.status, s.recording_policy, \
             s.encryption_policy, s.access_policy, s.labels, s.enrolment, s.enrolled_at, \
             s.created_by, s.created_at, s.updated_at FROM webtty_servers s \
             JOIN projects p ON p.id = s.project_id WHERE ",
            is_served!(),
            " AND ",
            $where
        )
    };
}

statements! {
    PROJECTS_AFTER = project!("p.id > $4 ORDER BY p.id LIMIT $5");
    PROJECTS = project!("p.id IN_LIST($4)");
    EVER = concat!("SELECT p.id FROM projects p WHERE ", is_there!(), " AND p.id IN_LIST($4)");
    PROJECTS_OF_WORKSPACES = concat!("SELECT p.id FROM projects p WHERE ", is_served!(),
        " AND p.workspace_id IN_LIST($4) LIMIT $5");
    HAS_OTHER = concat!("SELECT COUNT(*) AS n FROM (SELECT 1 FROM projects p WHERE ", is_served!(),
        " AND p.workspace_id = $4 AND NOT (p.id IN_LIST($5)) LIMIT 1) AS other");
    PORTS = "SELECT id, project_id, port FROM addresses WHERE cluster_domain = $1 \
        AND released_at IS NULL AND project_id IN_LIST($2) ORDER BY project_id, port";
    DOMAINS = "SELECT id, project_id, hostname, certificate_validation, certificate_expires_at FROM domains \
        WHERE state IN ('verified', 'warned') AND project_id IN_LIST($1) ORDER BY project_id, hostname";
    HELD_NAMES = "SELECT project_id, hostname FROM domains WHERE state IN ('suspended', 'quarantined') \
        AND project_id IN_LIST($1) ORDER BY project_id, hostname";
    DOMAIN_CERTIFICATES = "SELECT id, project_id, hostname, certificate_chain, sealed_certificate_key \
        FROM domains WHERE state IN ('verified', 'warned') AND certificate_chain IS NOT NULL \
        AND project_id = $1 ORDER BY hostname";
    TAKEN_DOWN = "SELECT project_id, hostname FROM takedowns WHERE project_id IN_LIST($1) \
        UNION SELECT d.project_id, t.hostname FROM takedowns t JOIN domains d ON d.hostname = t.hostname \
        WHERE d.state <> 'pending' AND d.project_id IN_LIST($1) \
        UNION SELECT d.project_id, t.hostname FROM takedowns t JOIN domains d ON d.hostname = t.wildcard \
        WHERE d.state <> 'pending' AND d.project_id IN_LIST($1) ORDER BY 1, 2";
    MEMBERS = "SELECT user_id AS id FROM members WHERE workspace_id = $1 LIMIT $2";
    PEOPLE_AFTER = concat!(person!("u.id > $4"), " ORDER BY u.id LIMIT $5");
    PEOPLE = person!("u.id IN_LIST($4)");
    PARTS = concat!("SELECT m.user_id, m.workspace_id, m.role FROM members m \
        JOIN workspaces w ON w.id = m.workspace_id AND w.deleted_at IS NULL \
        WHERE m.user_id IN_LIST($4) AND m.status = 'active' AND EXISTS \
        (SELECT 1 FROM projects p WHERE p.workspace_id = m.workspace_id AND ", is_served!(),
        " LIMIT 1 OFFSET 0) ORDER BY m.user_id, m.workspace_id");
    CREDENTIALS_AFTER = concat!(credential!("c.id > $4"), " ORDER BY c.id LIMIT $6");
    CREDENTIALS = credential!("c.id IN_LIST($4)");
    CREDENTIALS_OF = "SELECT id FROM credentials WHERE user_id IN_LIST($1) AND revoked_at IS NULL LIMIT $2";
    WEBTTY_SERVERS_AFTER = webtty_server!("s.id > $4 ORDER BY s.id LIMIT $5");
    WEBTTY_SERVERS = webtty_server!("s.id IN_LIST($4)");
    ENDED_AFTER = "SELECT jti, expires_at FROM revoked_tokens WHERE jti > $1 AND expires_at > $2 \
        ORDER BY jti LIMIT $3";
    ENDED = "SELECT jti, expires_at FROM revoked_tokens WHERE jti IN_LIST($1)";
}

impl Cluster {
    fn query(&self, text: &'static str) -> Query {
        sql(text)
            .bind(self.regions.clone())
            .bind(self.known_regions.is_some())
            .bind(self.known_regions.clone().unwrap_or_default())
    }

    /// The projects after this id, at most `limit`.
    pub async fn projects_after(
        &self,
        conn: &mut Conn,
        after: Option<ProjectId>,
        limit: u32,
    ) -> Result<Vec<Project>, Error> {
        let page = self.query(PROJECTS_AFTER).bind(start(after.as_ref()));
        page.bind(limit).all(conn).await
    }

    /// The projects among `ids` that the cluster serves.
    pub async fn projects(
        &self,
        conn: &mut Conn,
        ids: &[ProjectId],
    ) -> Result<Vec<Project>, Error> {
        self.query(PROJECTS).bind(ids).all(conn).await
    }

    /// The projects among `ids` that the cluster serves, or served before they were deleted.
    pub async fn ever_served(
        &self,
        conn: &mut Conn,
        ids: &[ProjectId],
    ) -> Result<Vec<ProjectId>, Error> {
        self.query(EVER).bind(ids).all(conn).await
    }

    /// The projects of these workspaces that the cluster serves, at most `limit`.
    pub async fn projects_of(
        &self,
        conn: &mut Conn,
        workspaces: &[WorkspaceId],
        limit: u32,
    ) -> Result<Vec<ProjectId>, Error> {
        let query = self.query(PROJECTS_OF_WORKSPACES).bind(workspaces);
        query.bind(limit).all(conn).await
    }

    /// True if the cluster serves a project of the workspace other than these.
    pub async fn serves_other(
        &self,
        conn: &mut Conn,
        workspace: WorkspaceId,
        than: &[ProjectId],
    ) -> Result<bool, Error> {
        let other = self.query(HAS_OTHER).bind(workspace).bind(than);
        Ok(other.count(conn).await? > 0)
    }

    /// The people after this id, at most `limit`.
    pub async fn people_after(
        &self,
        conn: &mut Conn,
        after: Option<UserId>,
        limit: u32,
    ) -> Result<Vec<Person>, Error> {
        let page = self.query(PEOPLE_AFTER).bind(start(after.as_ref()));
        page.bind(limit).all(conn).await
    }

    /// The people among `ids` that have access to the cluster.
    pub async fn people(&self, conn: &mut Conn, ids: &[UserId]) -> Result<Vec<Person>, Error> {
        self.query(PEOPLE).bind(ids).all(conn).await
    }

    /// The memberships of these people in the cluster, in the order of their ids.
    pub async fn memberships(
        &self,
        conn: &mut Conn,
        people: &[UserId],
    ) -> Result<Vec<ClusterMembership>, Error> {
        self.query(PARTS).bind(people).all(conn).await
    }

    /// The active credentials after this id that have access to a project of the cluster, at most
    /// `limit`.
    pub async fn credentials_after(
        &self,
        conn: &mut Conn,
        after: Option<CredentialId>,
        now: Timestamp,
        limit: u32,
    ) -> Result<Vec<Credential>, Error> {
        let page = self.query(CREDENTIALS_AFTER).bind(start(after.as_ref()));
        page.bind(now).bind(limit).all(conn).await
    }

    /// The active credentials among `ids` that have access to a project of the cluster.
    pub async fn credentials(
        &self,
        conn: &mut Conn,
        ids: &[CredentialId],
        now: Timestamp,
    ) -> Result<Vec<Credential>, Error> {
        self.query(CREDENTIALS).bind(ids).bind(now).all(conn).await
    }

    /// The registered servers of its projects after this id, at most `limit`.
    pub async fn webtty_servers_after(
        &self,
        conn: &mut Conn,
        after: Option<WebttyServerId>,
        limit: u32,
    ) -> Result<Vec<WebttyServer>, Error> {
        let page = self.query(WEBTTY_SERVERS_AFTER).bind(start(after.as_ref()));
        page.bind(limit).all(conn).await
    }

    /// The registered servers among `ids` that belong to projects of the cluster.
    pub async fn webtty_servers(
        &self,
        conn: &mut Conn,
        ids: &[WebttyServerId],
    ) -> Result<Vec<WebttyServer>, Error> {
        self.query(WEBTTY_SERVERS).bind(ids).all(conn).await
    }
}

/// The reserved ports of these projects on a cluster.
pub async fn ports(
    conn: &mut Conn,
    cluster_domain: &str,
    projects: &[ProjectId],
) -> Result<Vec<Port>, Error> {
    let ports = sql(PORTS).bind(cluster_domain).bind(projects);
    ports.all(conn).await
}

/// The custom domains of these projects that engines serve.
pub async fn domains(conn: &mut Conn, projects: &[ProjectId]) -> Result<Vec<CustomDomain>, Error> {
    sql(DOMAINS).bind(projects).all(conn).await
}

/// The custom domains that these projects hold, and that engines do not serve.
pub async fn held_names(conn: &mut Conn, projects: &[ProjectId]) -> Result<Vec<HeldName>, Error> {
    sql(HELD_NAMES).bind(projects).all(conn).await
}

/// The names of these projects that an operator has taken down.
pub async fn taken_down(
    conn: &mut Conn,
    projects: &[ProjectId],
) -> Result<Vec<TakenDownName>, Error> {
    sql(TAKEN_DOWN).bind(projects).all(conn).await
}

/// The uploaded certificates of a project's custom domains that engines serve.
pub async fn domain_certificates(
    conn: &mut Conn,
    project: ProjectId,
) -> Result<Vec<DomainCertificate>, Error> {
    sql(DOMAIN_CERTIFICATES).bind(project).all(conn).await
}

/// The members of a workspace, active or not, at most `limit`.
pub async fn members(
    conn: &mut Conn,
    workspace: WorkspaceId,
    limit: u32,
) -> Result<Vec<UserId>, Error> {
    sql(MEMBERS).bind(workspace).bind(limit).all(conn).await
}

/// The unrevoked credentials of these people, at most `limit`.
pub async fn credentials_of(
    conn: &mut Conn,
    people: &[UserId],
    limit: u32,
) -> Result<Vec<CredentialId>, Error> {
    let keys = sql(CREDENTIALS_OF).bind(people).bind(limit);
    keys.all(conn).await
}

/// Revoked tokens and sessions that would still be valid at `now`, after this id, at most `limit`.
pub async fn ended_after(
    conn: &mut Conn,
    after: Option<&str>,
    now: Timestamp,
    limit: u32,
) -> Result<Vec<EndedObject>, Error> {
    let page = sql(ENDED_AFTER).bind(after.unwrap_or_default());
    page.bind(now).bind(limit).all(conn).await
}

/// The revoked tokens and sessions among these ids.
pub async fn ended(conn: &mut Conn, ids: Vec<String>) -> Result<Vec<EndedObject>, Error> {
    sql(ENDED).bind(ids).all(conn).await
}

/// The id before the page; empty for the first page, because every id sorts after it.
fn start<T: AsRef<str>>(after: Option<&T>) -> &str {
    after.map_or("", AsRef::as_ref)
}

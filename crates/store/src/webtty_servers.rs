//! Registered `WebTTY` servers: the inventory (CP-12).

use jiff::Timestamp;
use types::id::{ProjectId, UserId, WebttyServerId};

use crate::database::changes::Change;
use crate::database::connection::{Conn, Tx};
use crate::database::page::{Page, Paging, fold_case, like_pattern};
use crate::database::row::record;
use crate::database::sql::{sql, statements};
use crate::error::Error;

record! {
    /// A registered server.
    pub struct WebttyServer from "webtty_servers" {
        /// Id.
        pub id: WebttyServerId,
        /// The project that owns it.
        pub project_id: ProjectId,
        /// Name, unique in the project.
        pub name: String,
        /// Description by its owner.
        pub description: Option<String>,
        /// `pending_enrollment`, `active` or `suspended`.
        pub status: String,
        /// Recording policy of its sessions.
        pub recording_policy: String,
        /// Encryption policy of its sessions.
        pub encryption_policy: String,
        /// Users that may use it.
        pub access_policy: String,
        /// Labels, a JSON object of texts.
        pub labels: serde_json::Value,
        /// Keys, fingerprint and capabilities from its enrolment, a JSON object.
        pub enrolment: Option<serde_json::Value>,
        /// Time of the enrolment.
        pub enrolled_at: Option<Timestamp>,
        /// The user that registered it.
        pub created_by: UserId,
        /// Creation time.
        pub created_at: Timestamp,
        /// Time of the last change.
        pub updated_at: Timestamp,
    }
}

macro_rules! columns {
    () => {
        "id, project_id, name, description, status, recording_policy, encryption_policy, \
         access_policy, labels, enrolment, enrolled_at, created_by, created_at, updated_at"
    };
}

statements! {
    INSERT = concat!("INSERT INTO webtty_servers (", columns!(), ", search) \
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)");
    BY_ID = concat!("SELECT ", columns!(), " FROM webtty_servers WHERE project_id = $1 AND id = $2");
    UPDATE = "UPDATE webtty_servers SET name = $3, description = $4, status = $5, recording_policy = $6, \
        access_policy = $7, labels = $8, updated_at = $9, search = $10 WHERE project_id = $1 AND id = $2";
    ENROL = "UPDATE webtty_servers SET enrolment = $3, enrolled_at = $4, status = 'active', updated_at = $4 \
        WHERE project_id = $1 AND id = $2 AND enrolment IS NULL";
    DELETE = "DELETE FROM webtty_servers WHERE project_id = $1 AND id = $2";
    HOW_MANY = "SELECT COUNT(*) AS n FROM webtty_servers WHERE project_id = $1";
    COUNT = "SELECT COUNT(*) AS n FROM webtty_servers WHERE project_id = $1 AND search LIKE $2 ESCAPE '!' \
        AND (CAST($3 AS TEXT) IS NULL OR status = $3)";
    LIST = concat!("SELECT ", columns!(), " FROM webtty_servers WHERE project_id = $1 AND search LIKE $2 ESCAPE '!' \
        AND (CAST($3 AS TEXT) IS NULL OR status = $3) ORDER BY id LIMIT $4 OFFSET $5");
}

/// Registers a server.
///
/// # Errors
/// [`crate::Conflict::ServerNameTaken`].
pub async fn insert(tx: &mut Tx, server: &WebttyServer) -> Result<(), Error> {
    sql(INSERT)
        .bind(server.id)
        .bind(server.project_id)
        .bind(&server.name)
        .bind(server.description.as_ref())
        .bind(&server.status)
        .bind(&server.recording_policy)
        .bind(&server.encryption_policy)
        .bind(&server.access_policy)
        .bind(&server.labels)
        .bind(server.enrolment.as_ref())
        .bind(server.enrolled_at)
        .bind(server.created_by)
        .bind(server.created_at)
        .bind(server.updated_at)
        .bind(fold_case(&server.name))
        .execute(tx)
        .await?;
    tx.note(Change::webtty_server(server.id), server.created_at);
    Ok(())
}

/// Number of servers of a project.
pub async fn count(conn: &mut Conn, project: ProjectId) -> Result<u64, Error> {
    sql(HOW_MANY).bind(project).count(conn).await
}

/// One server of a project.
pub async fn by_id(
    conn: &mut Conn,
    project: ProjectId,
    id: WebttyServerId,
) -> Result<Option<WebttyServer>, Error> {
    sql(BY_ID).bind(project).bind(id).one(conn).await
}

/// The servers of a project, oldest first. `search` matches names.
pub async fn list(
    conn: &mut Conn,
    project: ProjectId,
    search: Option<&str>,
    status: Option<&str>,
    paging: Paging,
) -> Result<Page<WebttyServer>, Error> {
    let pattern = like_pattern(search);
    sql(LIST)
        .bind(project)
        .bind(&pattern)
        .bind(status)
        .page(COUNT, conn, paging)
        .await
}

/// Writes the properties that its owner may change: name, description, status, recording and access
/// policy, labels.
///
/// # Errors
/// [`crate::Conflict::ServerNameTaken`].
pub async fn update(tx: &mut Tx, server: &WebttyServer) -> Result<bool, Error> {
    tx.note(Change::webtty_server(server.id), server.updated_at);
    sql(UPDATE)
        .bind(server.project_id)
        .bind(server.id)
        .bind(&server.name)
        .bind(server.description.as_ref())
        .bind(&server.status)
        .bind(&server.recording_policy)
        .bind(&server.access_policy)
        .bind(&server.labels)
        .bind(server.updated_at)
        .bind(fold_case(&server.name))
        .changed(tx)
        .await
}

/// Enrols a server with its keys. False if there is none, or if it was already enrolled.
pub async fn enrol(
    tx: &mut Tx,
    project: ProjectId,
    id: WebttyServerId,
    enrolment: &serde_json::Value,
    now: Timestamp,
) -> Result<bool, Error> {
    tx.note(Change::webtty_server(id), now);
    sql(ENROL)
        .bind(project)
        .bind(id)
        .bind(enrolment)
        .bind(now)
        .changed(tx)
        .await
}

/// Removes a server.
pub async fn delete(
    tx: &mut Tx,
    project: ProjectId,
    id: WebttyServerId,
    now: Timestamp,
) -> Result<bool, Error> {
    tx.note(Change::webtty_server(id), now);
    sql(DELETE).bind(project).bind(id).changed(tx).await
}

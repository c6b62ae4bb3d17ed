//! Custom domains of projects.
//!
//! Any number of projects may have a pending domain of one name. From its verification until the
//! end of its quarantine a domain is held: the database allows one such row for each name.

use jiff::{SignedDuration, Timestamp};
use types::id::{DomainId, ProjectId, UserId};

use crate::database::changes::Change;
use crate::database::connection::{Conn, Tx};
use crate::database::lock::Lock;
use crate::database::row::{record, words};
use crate::database::secret::SealedBytes;
use crate::database::sql::{sql, statements};
use crate::error::Error;

record! {
    /// A custom domain.
    pub struct Domain from "domains" {
        /// Id.
        pub id: DomainId,
        /// The project that it belongs to.
        pub project_id: ProjectId,
        /// The name in A-labels, with the `*.` of a wildcard.
        pub hostname: String,
        /// How certificate authorities validate it.
        pub certificate_validation: CertificateValidation,
        /// The random part of its ownership record. It is public once the record is.
        pub token: String,
        /// State.
        pub state: State,
        /// The user that added it.
        pub created_by: UserId,
        /// Time of its addition.
        pub created_at: Timestamp,
        /// Time of the latest transition to `verified`.
        pub verified_at: Option<Timestamp>,
        /// Time of the latest check.
        pub last_checked_at: Option<Timestamp>,
        /// Time of the latest check that found all records.
        pub last_found_at: Option<Timestamp>,
        /// Start of the current series of checks that found records missing.
        pub failing_since: Option<Timestamp>,
        /// Time of the transition to `suspended`.
        pub suspended_at: Option<Timestamp>,
        /// End of the quarantine.
        pub quarantine_until: Option<Timestamp>,
        /// Time of the next check.
        pub next_check_at: Timestamp,
        /// Findings of the latest check, a JSON object of the caller.
        pub report: Option<serde_json::Value>,
        /// Expiry of the certificate that the project uploaded; `None`: the engine orders one.
        pub certificate_expires_at: Option<Timestamp>,
        /// Expiry of the certificate that an engine ordered.
        pub ordered_expires_at: Option<Timestamp>,
        /// Reason of the last failure of an order; `None` after a success.
        pub order_problem: Option<String>,
        /// Time of the next attempt after a failure.
        pub next_order_at: Option<Timestamp>,
    }
}

/// The certificate that an engine orders for a domain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OrderState {
    /// Its expiry; `None` until there is one.
    pub expires_at: Option<Timestamp>,
    /// Reason of the last failure; `None` after a success.
    pub problem: Option<String>,
    /// Time of the next attempt after a failure.
    pub next_attempt_at: Option<Timestamp>,
}

/// A certificate that a project uploads for a domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadedCertificate {
    /// The certificate and its issuers, PEM.
    pub chain: String,
    /// The private key.
    pub sealed_key: SealedBytes,
    /// Its expiry.
    pub expires_at: Timestamp,
}

words! {
    /// State of a domain.
    pub enum State {
        /// Its records were never found.
        Pending = "pending",
        /// Its records were found.
        Verified = "verified",
        /// Its records are missing, and it is still served.
        Warned = "warned",
        /// Its records have been missing for days, and it is not served.
        Suspended = "suspended",
        /// Its project lost it, and only this project can claim it again.
        Quarantined = "quarantined",
    }
}

impl State {
    /// True if engines serve the domain.
    pub const fn is_served(self) -> bool {
        matches!(self, Self::Verified | Self::Warned)
    }
}

words! {
    /// How certificate authorities validate a domain.
    pub enum CertificateValidation {
        /// On the listener of the engine (RFC 8737).
        TlsAlpn01 = "tls_alpn_01",
        /// In the DNS (RFC 8555 section 8.4).
        Dns01 = "dns_01",
    }
}

/// Time before the expiry of an uploaded certificate at which its owners get a notice. Two weeks
/// are enough to get another certificate.
const CERTIFICATE_NOTICE: SignedDuration = SignedDuration::from_hours(14 * 24);

macro_rules! columns {
    () => {
        "id, project_id, hostname, certificate_validation, token, state, created_by, created_at, \
         verified_at, last_checked_at, last_found_at, failing_since, suspended_at, \
         quarantine_until, next_check_at, report"
    };
}

/// The columns of a new row, and those that are set later.
macro_rules! all_columns {
    () => {
        concat!(
            columns!(),
            ", certificate_expires_at, ordered_expires_at, order_problem, next_order_at"
        )
    };
}

statements! {
    INSERT = concat!("INSERT INTO domains (", columns!(), ") \
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)");
    BY_ID = concat!("SELECT ", all_columns!(), " FROM domains WHERE project_id = $1 AND id = $2");
    BY_HOSTNAME = concat!("SELECT ", all_columns!(), " FROM domains WHERE project_id = $1 AND hostname = $2");
    OF_PROJECT = concat!("SELECT ", all_columns!(), " FROM domains WHERE project_id = $1 ORDER BY id");
    HOLDER = "SELECT project_id AS id FROM domains WHERE hostname = $1 AND state <> 'pending'";
    // The first condition is that of the index.
    SERVED_BY = "SELECT project_id AS id FROM domains WHERE hostname = $1 AND state <> 'pending' \
        AND state IN ('verified', 'warned')";
    SAVE = "UPDATE domains SET state = $3, verified_at = $4, last_checked_at = $5, last_found_at = $6, \
        failing_since = $7, suspended_at = $8, quarantine_until = $9, next_check_at = $10, report = $11 \
        WHERE project_id = $1 AND id = $2";
    SET_CERTIFICATE = "UPDATE domains SET certificate_chain = $3, sealed_certificate_key = $4, \
        certificate_expires_at = $5, certificate_notice_at = $6 WHERE project_id = $1 AND id = $2";
    REMOVE_CERTIFICATE = "UPDATE domains SET certificate_chain = NULL, sealed_certificate_key = NULL, \
        certificate_expires_at = NULL, certificate_notice_at = NULL WHERE project_id = $1 AND id = $2 AND certificate_chain IS NOT NULL";
    // A row that a concurrent claim locked is due later, or belongs to that claim.
    CLAIM = concat!("UPDATE domains SET next_check_at = $2 WHERE next_check_at <= $1 AND id IN \
        (SELECT id FROM domains WHERE next_check_at <= $1 ORDER BY next_check_at LIMIT $3 SKIP_LOCKED) \
        RETURNING ", all_columns!());
    SET_ORDER = "UPDATE domains SET ordered_expires_at = $3, order_problem = $4, next_order_at = $5 \
        WHERE project_id = $1 AND hostname = $2 AND state IN ('verified', 'warned')";
    TAKE_EXPIRING = concat!("UPDATE domains SET certificate_notice_at = $1 WHERE id IN \
        (SELECT id FROM domains WHERE certificate_notice_at IS NULL \
        AND certificate_expires_at IS NOT NULL AND certificate_expires_at > $1 \
        AND certificate_expires_at <= $2 AND state IN ('verified', 'warned') \
        ORDER BY project_id, id LIMIT $3) AND certificate_notice_at IS NULL \
        RETURNING ", all_columns!());
    RELEASE_NOTICE = "UPDATE domains SET certificate_notice_at = NULL WHERE id = $1";
    DELETE = "DELETE FROM domains WHERE project_id = $1 AND id = $2";
    DELETE_ALL = "DELETE FROM domains WHERE project_id = $1";
    FREE_RESTED = "DELETE FROM domains WHERE hostname = $1 AND state = 'quarantined' AND quarantine_until <= $2";
}

/// Adds a domain.
///
/// # Errors
/// [`crate::Conflict::DomainExists`] if the project has this name;
/// [`crate::Conflict::DomainTaken`] if the new row is held and another project holds the name.
pub async fn insert(tx: &mut Tx, domain: &Domain) -> Result<(), Error> {
    if domain.state != State::Pending {
        Lock::Hostnames.take(tx).await?;
    }
    sql(INSERT)
        .bind(domain.id)
        .bind(domain.project_id)
        .bind(&domain.hostname)
        .bind(domain.certificate_validation)
        .bind(&domain.token)
        .bind(domain.state)
        .bind(domain.created_by)
        .bind(domain.created_at)
        .bind(domain.verified_at)
        .bind(domain.last_checked_at)
        .bind(domain.last_found_at)
        .bind(domain.failing_since)
        .bind(domain.suspended_at)
        .bind(domain.quarantine_until)
        .bind(domain.next_check_at)
        .bind(domain.report.as_ref())
        .execute(tx)
        .await?;
    Ok(())
}

/// One domain of a project.
pub async fn by_id(
    conn: &mut Conn,
    project: ProjectId,
    id: DomainId,
) -> Result<Option<Domain>, Error> {
    sql(BY_ID).bind(project).bind(id).one(conn).await
}

/// The domain of a project with this name.
pub async fn by_hostname(
    conn: &mut Conn,
    project: ProjectId,
    hostname: &str,
) -> Result<Option<Domain>, Error> {
    sql(BY_HOSTNAME)
        .bind(project)
        .bind(hostname)
        .one(conn)
        .await
}

/// A project's domains, oldest first. Their number is limited by the project's plan.
pub async fn of_project(conn: &mut Conn, project: ProjectId) -> Result<Vec<Domain>, Error> {
    sql(OF_PROJECT).bind(project).all(conn).await
}

/// The project that holds a name, also in quarantine.
pub async fn holder(conn: &mut Conn, hostname: &str) -> Result<Option<ProjectId>, Error> {
    sql(HOLDER).bind(hostname).one(conn).await
}

/// The project for which engines serve a name.
pub async fn served_by(conn: &mut Conn, hostname: &str) -> Result<Option<ProjectId>, Error> {
    sql(SERVED_BY).bind(hostname).one(conn).await
}

/// Writes the state of a domain: everything that checks change. `before` is its previous state.
/// False if it was deleted.
///
/// # Errors
/// [`crate::Conflict::DomainTaken`] if the domain becomes held and another project holds its name.
pub async fn save(
    tx: &mut Tx,
    domain: &Domain,
    before: State,
    now: Timestamp,
) -> Result<bool, Error> {
    if before == State::Pending && domain.state != State::Pending {
        Lock::Hostnames.take(tx).await?;
    }
    if domain.state.is_served() != before.is_served() {
        tx.note(Change::project(domain.project_id), now);
    }
    sql(SAVE)
        .bind(domain.project_id)
        .bind(domain.id)
        .bind(domain.state)
        .bind(domain.verified_at)
        .bind(domain.last_checked_at)
        .bind(domain.last_found_at)
        .bind(domain.failing_since)
        .bind(domain.suspended_at)
        .bind(domain.quarantine_until)
        .bind(domain.next_check_at)
        .bind(domain.report.as_ref())
        .changed(tx)
        .await
}

/// Claims at most `limit` domains whose check is due, until `lease_ends_at`. After that time
/// another process may claim them, unless their check was recorded.
pub async fn claim(
    tx: &mut Tx,
    now: Timestamp,
    lease_ends_at: Timestamp,
    limit: u32,
) -> Result<Vec<Domain>, Error> {
    sql(CLAIM)
        .bind(now)
        .bind(lease_ends_at)
        .bind(limit)
        .all(tx)
        .await
}

/// Stores the uploaded certificate of a domain, in place of an earlier one. False if the domain is
/// not the project's.
pub async fn set_certificate(
    tx: &mut Tx,
    project: ProjectId,
    id: DomainId,
    certificate: &UploadedCertificate,
    now: Timestamp,
) -> Result<bool, Error> {
    tx.note(Change::project(project), now);
    // A user who uploads a certificate of a few days renews it often, and needs no notice.
    let notice = now.saturating_add(CERTIFICATE_NOTICE);
    let is_short = notice.is_ok_and(|notice| certificate.expires_at <= notice);
    sql(SET_CERTIFICATE)
        .bind(project)
        .bind(id)
        .bind(&certificate.chain)
        .bind(&certificate.sealed_key)
        .bind(certificate.expires_at)
        .bind(is_short.then_some(now))
        .changed(tx)
        .await
}

/// Stores the state of the certificate that an engine orders. False if the project has no served
/// domain of this name.
pub async fn set_order(
    tx: &mut Tx,
    project: ProjectId,
    hostname: &str,
    order: &OrderState,
) -> Result<bool, Error> {
    sql(SET_ORDER)
        .bind(project)
        .bind(hostname)
        .bind(order.expires_at)
        .bind(order.problem.as_deref())
        .bind(order.next_attempt_at)
        .changed(tx)
        .await
}

/// Marks the certificates of at most `limit` served domains that expire within
/// two weeks as announced, and returns the domains.
pub async fn take_expiring(tx: &mut Tx, now: Timestamp, limit: u32) -> Result<Vec<Domain>, Error> {
    let end = now.saturating_add(CERTIFICATE_NOTICE);
    sql(TAKE_EXPIRING)
        .bind(now)
        .bind(end.unwrap_or(Timestamp::MAX))
        .bind(limit)
        .all(tx)
        .await
}

/// Removes the mark of a domain whose notice could not be sent.
pub async fn release_notice(tx: &mut Tx, id: DomainId) -> Result<(), Error> {
    sql(RELEASE_NOTICE).bind(id).execute(tx).await?;
    Ok(())
}

/// Deletes the uploaded certificate of a domain with its key. False if it has none.
pub async fn remove_certificate(
    tx: &mut Tx,
    project: ProjectId,
    id: DomainId,
    now: Timestamp,
) -> Result<bool, Error> {
    tx.note(Change::project(project), now);
    sql(REMOVE_CERTIFICATE)
        .bind(project)
        .bind(id)
        .changed(tx)
        .await
}

/// Deletes a domain. False if it is not the project's.
pub async fn delete(
    tx: &mut Tx,
    project: ProjectId,
    id: DomainId,
    now: Timestamp,
) -> Result<bool, Error> {
    tx.note(Change::project(project), now);
    sql(DELETE).bind(project).bind(id).changed(tx).await
}

/// Deletes all domains of a project. Returns their number.
pub async fn delete_all(tx: &mut Tx, project: ProjectId, now: Timestamp) -> Result<u64, Error> {
    tx.note(Change::project(project), now);
    sql(DELETE_ALL).bind(project).execute(tx).await
}

/// Deletes the holder of a name whose quarantine has ended. Returns true if there was one.
pub async fn release_quarantined(
    tx: &mut Tx,
    hostname: &str,
    now: Timestamp,
) -> Result<bool, Error> {
    let Some(project) = holder(tx, hostname).await? else {
        return Ok(false);
    };
    let is_freed = sql(FREE_RESTED)
        .bind(hostname)
        .bind(now)
        .changed(tx)
        .await?;
    if is_freed {
        tx.note(Change::project(project), now);
    }
    Ok(is_freed)
}

//! Long-lived credentials: personal tokens, applications, client certificates.

pub mod callers;
pub mod expiry;
pub mod revoked_tokens;

use jiff::Timestamp;
use types::id::{CredentialId, UserId, WorkspaceId};

use crate::database::changes::Change;
use crate::database::connection::{Conn, Tx};
use crate::database::page::{Order, Page, Paging, fold_case, like_pattern};
use crate::database::row::{record, words};
use crate::database::secret::SecretHash;
use crate::database::sql::{sorted, sql, statements};
use crate::error::Error;

record! {
    /// A credential. It never allows more than its user may do.
    pub struct Credential from "credentials" {
        /// Id.
        pub id: CredentialId,
        /// The user that owns it.
        pub user_id: UserId,
        /// The only workspace that it is valid for; none: all workspaces of its user.
        pub workspace_id: Option<WorkspaceId>,
        /// Kind.
        pub kind: Kind,
        /// Display name, chosen by its owner.
        pub name: String,
        /// Hash of a personal token.
        pub token_hash: Option<SecretHash>,
        /// Eight hex digits that identify a personal token in TURN user names.
        pub token_endpoint: Option<String>,
        /// An application's public key, PEM.
        pub public_key: Option<String>,
        /// SHA-256 of a client certificate.
        pub certificate_fingerprint: Option<Vec<u8>>,
        /// The certificate, or the authority whose certificates are accepted, PEM.
        pub certificate: Option<String>,
        /// SHA-256 of the authority's certificate.
        pub issuer_fingerprint: Option<Vec<u8>>,
        /// Permissions; none: not restricted.
        pub permissions: Option<Vec<String>>,
        /// Boundaries, the `resources` object; none: no boundary.
        pub resources: Option<serde_json::Value>,
        /// Creation time.
        pub created_at: Timestamp,
        /// Time of the last change; tokens that were minted earlier are recognised by it.
        pub updated_at: Timestamp,
        /// Expiry.
        pub expires_at: Option<Timestamp>,
        /// Time of the revocation.
        pub revoked_at: Option<Timestamp>,
        /// Approximate time of last use.
        pub last_used_at: Option<Timestamp>,
        /// Client address of the last use.
        pub last_used_ip: Option<String>,
        /// `kid` of the key that signed a personal token.
        pub signing_key: Option<String>,
        /// The credential that replaced this one, after a rotation.
        pub rotated_to: Option<CredentialId>,
        /// The OAuth client that uses the token; none: its owner issued it directly.
        pub oauth_client: Option<String>,
        /// The credential that authorised the issue of this one, directly or through a token minted
        /// from it. None: a person in a browser, or the operator.
        pub issued_by: Option<CredentialId>,
        /// The first credential of that chain; none: this one. See [`Credential::root`].
        pub root_id: Option<CredentialId>,
    }
}

impl Credential {
    /// True if the credential is active at `now`.
    pub fn is_live(&self, now: Timestamp) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|end| end > now)
    }

    /// The first credential of the chain in which each issued the next. Two credentials with the
    /// same root belong to the same party.
    pub fn root(&self) -> CredentialId {
        self.root_id.unwrap_or(self.id)
    }
}

words! {
    /// Kinds of credentials.
    pub enum Kind {
        /// Personal access token.
        Pat = "pat",
        /// An application with its own key.
        App = "app",
        /// A client certificate.
        Mtls = "mtls",
    }
}

macro_rules! written {
    ($fingerprint:literal) => {
        concat!(
            "id, user_id, workspace_id, kind, name, token_hash, token_endpoint, public_key, ",
            $fingerprint,
            ", certificate, issuer_fingerprint, permissions, resources, created_at, updated_at, \
             expires_at, revoked_at, last_used_at, last_used_ip, signing_key, rotated_to, \
             oauth_client, issued_by, root_id"
        )
    };
}

// An older process that runs at the same time still writes the old column.
macro_rules! columns {
    () => {
        written!("COALESCE(certificate_sha256, certificate_fingerprint) AS certificate_fingerprint")
    };
}

/// Filter of a person's credential list. Revoked credentials are never included.
#[derive(Clone, Copy, Debug)]
pub struct List<'a> {
    /// The person.
    pub user: UserId,
    /// Only this kind.
    pub kind: Option<Kind>,
    /// Only those that are active at this time.
    pub active_at: Option<Timestamp>,
    /// Only those that had expired by this time.
    pub ended_by: Option<Timestamp>,
    /// Part of the name, ignoring case.
    pub search: Option<&'a str>,
    /// Direction, by age.
    pub order: Order,
    /// Page.
    pub paging: Paging,
}

macro_rules! of_list {
    () => {
        " FROM credentials WHERE user_id = $1 AND revoked_at IS NULL AND search LIKE $2 ESCAPE '!' \
         AND (CAST($3 AS TEXT) IS NULL OR kind = $3) \
         AND (CAST($4 AS BIGINT) IS NULL OR expires_at IS NULL OR expires_at > $4) \
         AND (CAST($5 AS BIGINT) IS NULL OR expires_at <= $5)"
    };
}

pub(crate) const LIST: &str = concat!(
    "SELECT ",
    columns!(),
    of_list!(),
    " ORDER BY {sort} LIMIT $6 OFFSET $7"
);

statements! {
    INSERT = concat!("INSERT INTO credentials (", written!("certificate_sha256"), ", search) \
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, \
        $19, $20, $21, $22, $23, $24, $25)");
    BY_ID = concat!("SELECT ", columns!(), " FROM credentials WHERE id = $1");
    OF_USER_BY_ID = concat!("SELECT ", columns!(), " FROM credentials WHERE user_id = $1 AND id = $2");
    BY_TOKEN = concat!("SELECT ", columns!(), " FROM credentials WHERE token_hash = $1");
    BY_ENDPOINT = concat!("SELECT ", columns!(), " FROM credentials WHERE token_endpoint = $1");
    BY_CERTIFICATE = concat!("SELECT ", columns!(), " FROM credentials WHERE certificate_sha256 = $1 ORDER BY user_id LIMIT 100");
    BY_ISSUER = concat!("SELECT ", columns!(), " FROM credentials WHERE issuer_fingerprint = $1 ORDER BY id");
    COUNT = concat!("SELECT COUNT(*) AS n", of_list!());
    COUNT_GOOD = "SELECT COUNT(*) AS n FROM credentials WHERE user_id = $1 AND revoked_at IS NULL \
        AND (expires_at IS NULL OR expires_at > $2)";
    RELEASE_CERTIFICATE = "UPDATE credentials SET certificate_sha256 = NULL, certificate_fingerprint = NULL \
        WHERE certificate_sha256 = $1 AND user_id = $3 AND (revoked_at IS NOT NULL OR expires_at <= $2)";
    ROOT = "SELECT COALESCE(root_id, id) AS id FROM credentials WHERE id = $1";
    // Only one successor is accepted, however many concurrent requests there are. The old
    // credential ends with the overlap, or at its own expiry if that is earlier.
    ROTATE = "UPDATE credentials SET rotated_to = $3, expires_at = CASE WHEN expires_at < $4 \
        THEN expires_at ELSE $4 END, updated_at = $5 WHERE user_id = $1 AND id = $2 \
        AND rotated_to IS NULL AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $5)";
    REVOKE = "UPDATE credentials SET revoked_at = $3, updated_at = $3 WHERE user_id = $1 AND id = $2 AND revoked_at IS NULL";
    // Includes expired credentials in the chain, because credentials that they issued may still be
    // active.
    REVOKE_CHAIN = "WITH RECURSIVE chain (id) AS (\
        SELECT id FROM credentials WHERE user_id = $1 AND id = $2 \
        UNION SELECT c.id FROM credentials c JOIN chain ON c.issued_by = chain.id WHERE c.user_id = $1) \
        UPDATE credentials SET revoked_at = $3, updated_at = $3 \
        WHERE id IN (SELECT id FROM chain) AND revoked_at IS NULL RETURNING id";
    REVOKE_ALL = "UPDATE credentials SET revoked_at = $2, updated_at = $2 WHERE user_id = $1 AND revoked_at IS NULL RETURNING id";
    PURGE = "DELETE FROM credentials WHERE id IN (SELECT e.id FROM credentials e \
        WHERE (e.revoked_at <= $1 OR e.expires_at <= $1) \
        AND NOT EXISTS (SELECT 1 FROM credentials c WHERE c.issued_by = e.id) \
        ORDER BY e.id LIMIT $2) RETURNING id";
    // The address of an earlier use is removed, because it would look like that of the last one.
    USED_AT_ENGINE = "UPDATE credentials SET last_used_at = $2, last_used_ip = NULL WHERE id = $1 \
        AND revoked_at IS NULL AND (last_used_at IS NULL OR last_used_at <= $3)";
    USED = "UPDATE credentials SET last_used_at = $2, last_used_ip = $3 WHERE id = $1 AND (last_used_at IS NULL OR last_used_at < $2)";
}

/// True if the credential with which its user issues another one is active. It stays locked until
/// the transaction ends, so that a concurrent revocation of it and its descendants cannot miss the
/// new credential.
pub async fn lock_issuer(
    tx: &mut Tx,
    user: UserId,
    issuer: CredentialId,
    now: Timestamp,
) -> Result<bool, Error> {
    crate::accounts::users::lock(tx, user).await?;
    let issuer = of_user_by_id(tx, user, issuer).await?;
    Ok(issuer.is_some_and(|issuer| issuer.is_live(now)))
}

/// Adds a credential; if another credential issued it, after [`lock_issuer`]. Its certificate is
/// taken from an ended credential of the same person.
///
/// # Errors
/// [`crate::Conflict::CertificateTaken`], [`crate::Conflict::TokenEndpointTaken`].
pub async fn insert(tx: &mut Tx, new: &Credential) -> Result<(), Error> {
    let permissions = new
        .permissions
        .as_ref()
        .map(|permissions| serde_json::json!(permissions));
    if let Some(fingerprint) = &new.certificate_fingerprint {
        // An ended credential must not block its certificate, which may be registered again.
        sql(RELEASE_CERTIFICATE)
            .bind(fingerprint.as_slice())
            .bind(new.created_at)
            .bind(new.user_id)
            .execute(tx)
            .await?;
    }
    sql(INSERT)
        .bind(new.id)
        .bind(new.user_id)
        .bind(new.workspace_id)
        .bind(new.kind)
        .bind(&new.name)
        .bind(new.token_hash)
        .bind(new.token_endpoint.as_ref())
        .bind(new.public_key.as_ref())
        .bind(new.certificate_fingerprint.as_deref())
        .bind(new.certificate.as_ref())
        .bind(new.issuer_fingerprint.as_deref())
        .bind(permissions.as_ref())
        .bind(new.resources.as_ref())
        .bind(new.created_at)
        .bind(new.updated_at)
        .bind(new.expires_at)
        .bind(new.revoked_at)
        .bind(new.last_used_at)
        .bind(new.last_used_ip.as_ref())
        .bind(new.signing_key.as_ref())
        .bind(new.rotated_to)
        .bind(new.oauth_client.as_ref())
        .bind(new.issued_by)
        .bind(new.root_id)
        .bind(fold_case(&new.name))
        .execute(tx)
        .await?;
    tx.note(Change::credential(new.id), new.updated_at);
    Ok(())
}

/// The credential, active or not: for verifying tokens that were signed by it or minted from it.
pub async fn by_id(conn: &mut Conn, id: CredentialId) -> Result<Option<Credential>, Error> {
    sql(BY_ID).bind(id).one(conn).await
}

/// A person's credential, active or not.
pub async fn of_user_by_id(
    conn: &mut Conn,
    user: UserId,
    id: CredentialId,
) -> Result<Option<Credential>, Error> {
    sql(OF_USER_BY_ID).bind(user).bind(id).one(conn).await
}

/// The credential of a personal token, active or not.
pub async fn by_token(conn: &mut Conn, hash: SecretHash) -> Result<Option<Credential>, Error> {
    sql(BY_TOKEN).bind(hash).one(conn).await
}

/// The credential that a TURN user name refers to (TU-5), active or not.
pub async fn by_token_endpoint(
    conn: &mut Conn,
    token_endpoint: &str,
) -> Result<Option<Credential>, Error> {
    sql(BY_ENDPOINT).bind(token_endpoint).one(conn).await
}

/// The credentials of a client certificate, active or not. Several people can register one, and
/// each credential authenticates its holder only as its own user. At most a hundred.
pub async fn by_certificate(conn: &mut Conn, fingerprint: &[u8]) -> Result<Vec<Credential>, Error> {
    sql(BY_CERTIFICATE).bind(fingerprint).all(conn).await
}

/// The first credential of the chain that this one is in; none if it is unknown.
pub async fn root_of(conn: &mut Conn, id: CredentialId) -> Result<Option<CredentialId>, Error> {
    sql(ROOT).bind(id).one(conn).await
}

/// The credentials that accept certificates of this authority, active or not.
pub async fn by_issuer(conn: &mut Conn, fingerprint: &[u8]) -> Result<Vec<Credential>, Error> {
    sql(BY_ISSUER).bind(fingerprint).all(conn).await
}

/// A person's credentials.
pub async fn list(conn: &mut Conn, list: &List<'_>) -> Result<Page<Credential>, Error> {
    let pattern = like_pattern(list.search);
    sql(sorted(LIST, "id", list.order))
        .bind(list.user)
        .bind(&pattern)
        .bind(list.kind.map(Kind::as_str))
        .bind(list.active_at)
        .bind(list.ended_by)
        .page(COUNT, conn, list.paging)
        .await
}

/// Number of a person's credentials that are active at `now`. Until the transaction ends, no other
/// transaction that calls this first can add one, so that a limit can be enforced.
pub async fn count_active(tx: &mut Tx, user: UserId, now: Timestamp) -> Result<u64, Error> {
    crate::accounts::users::lock(tx, user).await?;
    sql(COUNT_GOOD).bind(user).bind(now).count(tx).await
}

/// Sets a credential's successor, which the caller adds in the same transaction, and its end:
/// `ends_at`, or its own expiry if that is earlier. False if it is not active or already has a
/// successor.
pub async fn rotate(
    tx: &mut Tx,
    user: UserId,
    old: CredentialId,
    new: CredentialId,
    ends_at: Timestamp,
    now: Timestamp,
) -> Result<bool, Error> {
    tx.note(Change::credential(old), now);
    sql(ROTATE)
        .bind(user)
        .bind(old)
        .bind(new)
        .bind(ends_at)
        .bind(now)
        .changed(tx)
        .await
}

/// Revokes a person's credential. False if there is no unrevoked one.
pub async fn revoke(
    tx: &mut Tx,
    user: UserId,
    id: CredentialId,
    now: Timestamp,
) -> Result<bool, Error> {
    tx.note(Change::credential(id), now);
    sql(REVOKE).bind(user).bind(id).bind(now).changed(tx).await
}

/// Revokes a person's credential, active or not, and every credential that was issued with it,
/// directly or indirectly. Returns those that were active or had expired.
pub async fn revoke_chain(
    tx: &mut Tx,
    user: UserId,
    id: CredentialId,
    now: Timestamp,
) -> Result<Vec<CredentialId>, Error> {
    // Before the statement reads: a concurrent issue has either committed, or will find the issuer
    // revoked.
    crate::accounts::users::lock(tx, user).await?;
    let query = sql(REVOKE_CHAIN).bind(user).bind(id).bind(now);
    let revoked: Vec<CredentialId> = query.all(tx).await?;
    for id in &revoked {
        tx.note(Change::credential(*id), now);
    }
    Ok(revoked)
}

/// Revokes all of a person's credentials. Returns their number.
pub async fn revoke_all(tx: &mut Tx, user: UserId, now: Timestamp) -> Result<u64, Error> {
    let revoked: Vec<CredentialId> = sql(REVOKE_ALL).bind(user).bind(now).all(tx).await?;
    for id in &revoked {
        tx.note(Change::credential(*id), now);
    }
    Ok(u64::try_from(revoked.len()).unwrap_or(u64::MAX))
}

/// Records a use and its client address; the caller does so at most once a minute.
pub async fn record_use(
    tx: &mut Tx,
    id: CredentialId,
    ip: Option<&str>,
    now: Timestamp,
) -> Result<bool, Error> {
    sql(USED).bind(id).bind(now).bind(ip).changed(tx).await
}

/// Records a use at an engine, which reports no address, unless another use was recorded after
/// `noted`. True if it was recorded.
pub async fn record_use_at_engine(
    tx: &mut Tx,
    id: CredentialId,
    used_at: Timestamp,
    noted: Timestamp,
) -> Result<bool, Error> {
    let query = sql(USED_AT_ENGINE).bind(id).bind(used_at).bind(noted);
    query.changed(tx).await
}

/// Deletes at most `limit` credentials that were revoked or had expired by this time. Returns their
/// number. Engines are notified, because they would keep expired ones.
pub async fn purge(
    tx: &mut Tx,
    ended_by: Timestamp,
    limit: u32,
    now: Timestamp,
) -> Result<u64, Error> {
    let deleted: Vec<CredentialId> = sql(PURGE).bind(ended_by).bind(limit).all(tx).await?;
    for id in &deleted {
        tx.note(Change::credential(*id), now);
    }
    Ok(u64::try_from(deleted.len()).unwrap_or_default())
}

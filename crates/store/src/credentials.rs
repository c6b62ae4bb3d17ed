//! Long-lived credentials: personal tokens, applications, client certificates.

use jiff::Timestamp;
use types::id::{CredentialId, UserId, WorkspaceId};

use crate::changes::Change;
use crate::connection::{Conn, Tx};
use crate::error::Error;
use crate::page::{Order, Page, Paging, fold, pattern};
use crate::row::{record, words};
use crate::secret::SecretHash;
use crate::sql::{sorted, sql, statements};

record! {
    /// A credential. What it may do at most is what its user may do.
    pub struct Credential from "credentials" {
        /// Id.
        pub id: CredentialId,
        /// Whose it is.
        pub user_id: UserId,
        /// The one workspace that it is for; none: wherever its user may go.
        pub workspace_id: Option<WorkspaceId>,
        /// Kind.
        pub kind: Kind,
        /// Name that its owner gave it.
        pub name: String,
        /// Hash of a personal token.
        pub token_hash: Option<SecretHash>,
        /// Eight hex digits that name a personal token in TURN user names.
        pub token_endpoint: Option<String>,
        /// An application's public key, PEM.
        pub public_key: Option<String>,
        /// SHA-256 of a client certificate.
        pub certificate_fingerprint: Option<Vec<u8>>,
        /// The certificate, or the authority whose certificates are accepted, PEM.
        pub certificate: Option<String>,
        /// SHA-256 of the authority's certificate.
        pub issuer_fingerprint: Option<Vec<u8>>,
        /// Permissions; none: not narrowed.
        pub permissions: Option<Vec<String>>,
        /// Boundaries, the `resources` object; none: no boundary.
        pub resources: Option<serde_json::Value>,
        /// When it was made.
        pub created_at: Timestamp,
        /// When it last changed; tokens that were minted before know it by this.
        pub updated_at: Timestamp,
        /// When it ends by itself.
        pub expires_at: Option<Timestamp>,
        /// When it was revoked.
        pub revoked_at: Option<Timestamp>,
        /// When it was last used, roughly.
        pub last_used_at: Option<Timestamp>,
        /// Where that use came from.
        pub last_used_ip: Option<String>,
        /// `kid` of the key that signed a personal token.
        pub signing_key: Option<String>,
        /// Its successor, once it was rotated.
        pub rotated_to: Option<CredentialId>,
        /// The OAuth client that holds the token; none: its owner issued it by hand.
        pub oauth_client: Option<String>,
        /// The credential that was shown when this one was issued: itself, or a token that was
        /// minted from it. None: a person in a browser, or the operator.
        pub issued_by: Option<CredentialId>,
        /// The first credential of that chain; none: this one. See [`Credential::root`].
        pub root_id: Option<CredentialId>,
    }
}

impl Credential {
    /// Whether it is in force.
    pub fn is_live(&self, now: Timestamp) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|end| end > now)
    }

    /// The first credential of the chain in which each issued the next: two credentials of one
    /// root are in the same hands.
    pub fn root(&self) -> CredentialId {
        self.root_id.unwrap_or(self.id)
    }
}

words! {
    /// Kinds of credentials.
    pub enum Kind {
        /// Personal access token.
        Pat = "pat",
        /// An application with a key of its own.
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

// An older process beside this one still writes the column of before.
macro_rules! columns {
    () => {
        written!("COALESCE(certificate_sha256, certificate_fingerprint) AS certificate_fingerprint")
    };
}

/// Which of a person's credentials a list is about. Those that were revoked never are.
#[derive(Clone, Copy, Debug)]
pub struct List<'a> {
    /// Whose.
    pub user: UserId,
    /// Of this kind alone.
    pub kind: Option<Kind>,
    /// Those that are good at this time.
    pub good_at: Option<Timestamp>,
    /// Those that had ended by this time.
    pub ended_by: Option<Timestamp>,
    /// Part of the name, in any case.
    pub search: Option<&'a str>,
    /// By age.
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
    // Only one successor, however many ask at once. The old one ends when the overlap does, or
    // before if it would have.
    ROTATE = "UPDATE credentials SET rotated_to = $3, expires_at = CASE WHEN expires_at < $4 \
        THEN expires_at ELSE $4 END, updated_at = $5 WHERE user_id = $1 AND id = $2 \
        AND rotated_to IS NULL AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $5)";
    REVOKE = "UPDATE credentials SET revoked_at = $3, updated_at = $3 WHERE user_id = $1 AND id = $2 AND revoked_at IS NULL";
    // Through those that have ended as well: what they issued has not.
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
    USED = "UPDATE credentials SET last_used_at = $2, last_used_ip = $3 WHERE id = $1 AND (last_used_at IS NULL OR last_used_at < $2)";
}

/// Whether the credential with which its user issues another one is in force. Until the transaction
/// ends nobody revokes it together with what it issued, so that nothing is issued behind that.
pub async fn lock_issuer(
    tx: &mut Tx,
    user: UserId,
    issuer: CredentialId,
    now: Timestamp,
) -> Result<bool, Error> {
    crate::users::lock(tx, user).await?;
    let issuer = of_user_by_id(tx, user, issuer).await?;
    Ok(issuer.is_some_and(|issuer| issuer.is_live(now)))
}

/// Adds a credential; where another one issued it, after [`lock_issuer`]. Its certificate is taken
/// from one of the same person that has ended.
///
/// # Errors
/// [`crate::Conflict::CertificateTaken`], [`crate::Conflict::TokenEndpointTaken`].
pub async fn insert(tx: &mut Tx, new: &Credential) -> Result<(), Error> {
    let permissions = new
        .permissions
        .as_ref()
        .map(|permissions| serde_json::json!(permissions));
    if let Some(fingerprint) = &new.certificate_fingerprint {
        // What has ended holds no certificate: it may be wanted again.
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
        .bind(fold(&new.name))
        .execute(tx)
        .await?;
    tx.note(Change::credential(new.id), new.updated_at);
    Ok(())
}

/// The credential, in force or not: for verifying what was signed by it or minted from it.
pub async fn by_id(conn: &mut Conn, id: CredentialId) -> Result<Option<Credential>, Error> {
    sql(BY_ID).bind(id).one(conn).await
}

/// A person's credential, in force or not.
pub async fn of_user_by_id(
    conn: &mut Conn,
    user: UserId,
    id: CredentialId,
) -> Result<Option<Credential>, Error> {
    sql(OF_USER_BY_ID).bind(user).bind(id).one(conn).await
}

/// The credential of a personal token, in force or not.
pub async fn by_token(conn: &mut Conn, hash: SecretHash) -> Result<Option<Credential>, Error> {
    sql(BY_TOKEN).bind(hash).one(conn).await
}

/// The credential that a TURN user name means (TU-5), in force or not.
pub async fn by_token_endpoint(
    conn: &mut Conn,
    token_endpoint: &str,
) -> Result<Option<Credential>, Error> {
    sql(BY_ENDPOINT).bind(token_endpoint).one(conn).await
}

/// The credentials of a client certificate, in force or not: several people can register one, and
/// each of them lets its holder in as themselves alone. A hundred at most.
pub async fn by_certificate(conn: &mut Conn, fingerprint: &[u8]) -> Result<Vec<Credential>, Error> {
    sql(BY_CERTIFICATE).bind(fingerprint).all(conn).await
}

/// The first credential of the chain that this one is in; none where it is not known.
pub async fn root_of(conn: &mut Conn, id: CredentialId) -> Result<Option<CredentialId>, Error> {
    sql(ROOT).bind(id).one(conn).await
}

/// The credentials that accept certificates of this authority, in force or not.
pub async fn by_issuer(conn: &mut Conn, fingerprint: &[u8]) -> Result<Vec<Credential>, Error> {
    sql(BY_ISSUER).bind(fingerprint).all(conn).await
}

/// A person's credentials.
pub async fn list(conn: &mut Conn, list: &List<'_>) -> Result<Page<Credential>, Error> {
    let pattern = pattern(list.search);
    let asked = |text: String| {
        sql(text)
            .bind(list.user)
            .bind(&pattern)
            .bind(list.kind.map(Kind::as_str))
            .bind(list.good_at)
            .bind(list.ended_by)
    };
    let total = asked(COUNT.to_owned()).count(conn).await?;
    let items = asked(sorted(LIST, "id", list.order))
        .bind(list.paging.limit())
        .bind(list.paging.offset())
        .all(conn)
        .await?;
    Ok(Page { items, total })
}

/// How many of a person's credentials are good at `now`. Until the transaction ends nobody else
/// adds one who asks here first, so that a limit can be held.
pub async fn count_good(tx: &mut Tx, user: UserId, now: Timestamp) -> Result<u64, Error> {
    crate::users::lock(tx, user).await?;
    sql(COUNT_GOOD).bind(user).bind(now).count(tx).await
}

/// Gives a credential its successor, which the caller adds in the same transaction, and an end:
/// `ends_at`, or its own if that is earlier. False when it is not in force or has a successor.
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

/// Revokes a person's credential. False when there is none that is not.
pub async fn revoke(
    tx: &mut Tx,
    user: UserId,
    id: CredentialId,
    now: Timestamp,
) -> Result<bool, Error> {
    tx.note(Change::credential(id), now);
    sql(REVOKE).bind(user).bind(id).bind(now).changed(tx).await
}

/// Revokes a person's credential, in force or not, and every credential that was issued with it or
/// with one of those. Returns which were in force or had ended by themselves.
pub async fn revoke_chain(
    tx: &mut Tx,
    user: UserId,
    id: CredentialId,
    now: Timestamp,
) -> Result<Vec<CredentialId>, Error> {
    // Before the statement looks: whoever is issuing has committed, or finds the issuer revoked.
    crate::users::lock(tx, user).await?;
    let ask = sql(REVOKE_CHAIN).bind(user).bind(id).bind(now);
    let revoked: Vec<CredentialId> = ask.all(tx).await?;
    for id in &revoked {
        tx.note(Change::credential(*id), now);
    }
    Ok(revoked)
}

/// Revokes all of a person's credentials. Returns how many.
pub async fn revoke_all(tx: &mut Tx, user: UserId, now: Timestamp) -> Result<u64, Error> {
    let revoked: Vec<CredentialId> = sql(REVOKE_ALL).bind(user).bind(now).all(tx).await?;
    for id in &revoked {
        tx.note(Change::credential(*id), now);
    }
    Ok(u64::try_from(revoked.len()).unwrap_or(u64::MAX))
}

/// Notes a use and where it came from; the caller does so at most every minute.
pub async fn used(
    tx: &mut Tx,
    id: CredentialId,
    ip: Option<&str>,
    now: Timestamp,
) -> Result<bool, Error> {
    sql(USED).bind(id).bind(now).bind(ip).changed(tx).await
}

/// Forgets at most `limit` credentials that were revoked or had expired by this time. Returns how
/// many. Engines are told that they are gone, as they would keep those that expired.
pub async fn purge(
    tx: &mut Tx,
    ended_by: Timestamp,
    limit: u32,
    now: Timestamp,
) -> Result<u64, Error> {
    let gone: Vec<CredentialId> = sql(PURGE).bind(ended_by).bind(limit).all(tx).await?;
    for id in &gone {
        tx.note(Change::credential(*id), now);
    }
    Ok(u64::try_from(gone.len()).unwrap_or_default())
}

//! People with accounts, their outside identities, second factor and recovery codes.

use jiff::Timestamp;
use types::id::UserId;

use crate::changes::Change;
use crate::connection::{Conn, Tx};
use crate::error::Error;
use crate::page::{Order, Page, Paging, fold, pattern};
use crate::row::{record, words};
use crate::secret::{PasswordHash, SealedBytes, SecretHash};
use crate::sql::{sorted, sql, statements};

record! {
    /// A person.
    pub struct User from "users" {
        /// Id.
        pub id: UserId,
        /// Email address as it was written.
        pub email: String,
        /// Name to show.
        pub name: String,
        /// Password, for those who have one.
        pub password_hash: Option<PasswordHash>,
        /// Whether the person may do anything.
        pub status: Status,
        /// Whether the person runs the installation.
        pub role: Role,
        /// Whether the address was proved.
        pub email_verified: bool,
        /// TOTP secret; in force once it was confirmed.
        pub totp_secret: Option<SealedBytes>,
        /// When a first code was right.
        pub totp_confirmed_at: Option<Timestamp>,
        /// When the account was made.
        pub created_at: Timestamp,
        /// When it last changed.
        pub updated_at: Timestamp,
    }
}

record! {
    /// Somebody as an OpenID provider knows them.
    pub struct Identity from "identities" {
        /// The provider.
        pub issuer: String,
        /// Whom it means, in words of its own.
        pub subject: String,
        /// Since when it signs the person in.
        pub created_at: Timestamp,
    }
}

words! {
    /// Whether a person may sign in and be used.
    pub enum Status {
        /// Yes.
        Active = "active",
        /// No: by an operator.
        Suspended = "suspended",
    }
}

words! {
    /// What a person is to the installation.
    pub enum Role {
        /// Anybody.
        User = "user",
        /// An operator.
        Admin = "admin",
    }
}

/// A person to be.
#[derive(Clone, Debug)]
pub struct NewUser {
    /// Id, made by the caller.
    pub id: UserId,
    /// Email address as it was written; unique in any case.
    pub email: String,
    /// Name to show.
    pub name: String,
    /// Password; none for those who come from an OpenID provider.
    pub password_hash: Option<PasswordHash>,
    /// What the person is to the installation.
    pub role: Role,
    /// Whether the address was proved.
    pub email_verified: bool,
    /// Now.
    pub now: Timestamp,
}

/// Columns by which operators sort people.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    /// Age.
    #[default]
    Id,
    /// Email address.
    Email,
    /// Name.
    Name,
}

impl Sort {
    pub(crate) const ALL: [Self; 3] = [Self::Id, Self::Email, Self::Name];

    pub(crate) fn column(self) -> &'static str {
        match self {
            Self::Id => "id",
            Self::Email => "email_key",
            Self::Name => "name",
        }
    }
}

macro_rules! columns {
    () => {
        "id, email, name, password_hash, status, role, email_verified, totp_secret, \
         totp_confirmed_at, created_at, updated_at"
    };
}

statements! {
    INSERT = "INSERT INTO users (id, email, email_key, name, search, password_hash, status, role, \
        email_verified, created_at, updated_at) \
        VALUES ($1, $2, $3, $4, $5, $6, 'active', $7, $8, $9, $9)";
    BY_ID = concat!("SELECT ", columns!(), " FROM users WHERE id = $1");
    BY_EMAIL = concat!("SELECT ", columns!(), " FROM users WHERE email_key = $1");
    BY_IDENTITY = concat!("SELECT ", columns!(), " FROM users WHERE id = \
        (SELECT user_id FROM identities WHERE issuer = $1 AND subject = $2)");
    ANY_ADMIN = "SELECT COUNT(*) AS n FROM users WHERE role = 'admin' AND status = 'active'";
    SET_NAME = "UPDATE users SET name = $2, search = $3 || ' ' || email_key, updated_at = $4 WHERE id = $1";
    SET_EMAIL = "UPDATE users SET email = $2, email_key = $3, search = $4 || ' ' || $3, \
        email_verified = $5, updated_at = $6 WHERE id = $1";
    // Of a person who comes back after a suspension no browser is signed in anywhere.
    SET_PASSWORD = "UPDATE users SET password_hash = $2, updated_at = $3, sessions_after = $3 WHERE id = $1";
    SET_STATUS = "UPDATE users SET status = $2, updated_at = $3, sessions_after = $3 WHERE id = $1";
    CHANGE_STATUS = "UPDATE users SET status = $3, updated_at = $4, sessions_after = $4 WHERE id = $1 AND status = $2";
    END_SESSIONS = "UPDATE users SET sessions_after = $2 WHERE id = $1 AND sessions_after < $2";
    SET_ROLE = "UPDATE users SET role = $2, updated_at = $3 WHERE id = $1";
    VERIFY_EMAIL = "UPDATE users SET email_verified = TRUE, updated_at = $3 WHERE id = $1 AND email_key = $2";
    LINK = "INSERT INTO identities (issuer, subject, user_id, created_at) VALUES ($1, $2, $3, $4)";
    IDENTITIES = "SELECT issuer, subject, created_at FROM identities WHERE user_id = $1 ORDER BY issuer, subject";
    // One in force is never replaced: whoever is setting one up meanwhile finds that out here.
    BEGIN_TOTP = "UPDATE users SET totp_secret = $2, totp_last_step = NULL, updated_at = $3 \
        WHERE id = $1 AND totp_confirmed_at IS NULL";
    REMOVE_TOTP = "UPDATE users SET totp_secret = NULL, totp_confirmed_at = NULL, totp_last_step = NULL, \
        updated_at = $2 WHERE id = $1";
    // Of the secret that the code was compared with, and no other one that came in its place.
    CONFIRM_TOTP = "UPDATE users SET totp_confirmed_at = $2, totp_last_step = $4, updated_at = $2 \
        WHERE id = $1 AND totp_secret = $3 AND totp_confirmed_at IS NULL";
    USE_TOTP = "UPDATE users SET totp_last_step = $2 \
        WHERE id = $1 AND totp_secret IS NOT NULL AND (totp_last_step IS NULL OR totp_last_step < $2)";
    FORGET_RECOVERY_CODES = "DELETE FROM recovery_codes WHERE user_id = $1";
    ADD_RECOVERY_CODE = "INSERT INTO recovery_codes (user_id, hash) VALUES ($1, $2)";
    USE_RECOVERY_CODE = "UPDATE recovery_codes SET used_at = $3 \
        WHERE user_id = $1 AND hash = $2 AND used_at IS NULL";
    COUNT = "SELECT COUNT(*) AS n FROM users WHERE search LIKE $1 ESCAPE '!'";
}

pub(crate) const LIST: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM users WHERE search LIKE $1 ESCAPE '!' ORDER BY {sort} LIMIT $2 OFFSET $3"
);

/// Adds a person.
///
/// # Errors
/// [`crate::Conflict::EmailTaken`].
pub async fn insert(tx: &mut Tx, new: &NewUser) -> Result<(), Error> {
    let email_key = fold(&new.email);
    sql(INSERT)
        .bind(new.id)
        .bind(&new.email)
        .bind(&email_key)
        .bind(&new.name)
        .bind(format!("{} {email_key}", fold(&new.name)))
        .bind(new.password_hash.as_ref())
        .bind(new.role)
        .bind(new.email_verified)
        .bind(new.now)
        .execute(tx)
        .await?;
    Ok(())
}

/// The person with this id.
pub async fn by_id(conn: &mut Conn, id: UserId) -> Result<Option<User>, Error> {
    sql(BY_ID).bind(id).one(conn).await
}

/// The person with this address, in any case.
pub async fn by_email(conn: &mut Conn, email: &str) -> Result<Option<User>, Error> {
    sql(BY_EMAIL).bind(fold(email)).one(conn).await
}

/// The person whom an OpenID provider knows by this subject.
pub async fn by_identity(
    conn: &mut Conn,
    issuer: &str,
    subject: &str,
) -> Result<Option<User>, Error> {
    sql(BY_IDENTITY).bind(issuer).bind(subject).one(conn).await
}

/// The identities by which a person may sign in.
pub async fn identities(conn: &mut Conn, id: UserId) -> Result<Vec<Identity>, Error> {
    sql(IDENTITIES).bind(id).all(conn).await
}

/// Whether the installation has an operator.
pub async fn any_admin(conn: &mut Conn) -> Result<bool, Error> {
    Ok(sql(ANY_ADMIN).count(conn).await? > 0)
}

/// All people, for operators. `search` looks into name and address.
pub async fn list(
    conn: &mut Conn,
    search: Option<&str>,
    sort: Sort,
    order: Order,
    paging: Paging,
) -> Result<Page<User>, Error> {
    let pattern = pattern(search);
    let total = sql(COUNT).bind(&pattern).count(conn).await?;
    let items = sql(sorted(LIST, sort.column(), order))
        .bind(&pattern)
        .bind(paging.limit())
        .bind(paging.offset())
        .all(conn)
        .await?;
    Ok(Page { items, total })
}

/// Changes the name to show.
pub async fn set_name(tx: &mut Tx, id: UserId, name: &str, now: Timestamp) -> Result<bool, Error> {
    sql(SET_NAME)
        .bind(id)
        .bind(name)
        .bind(fold(name))
        .bind(now)
        .changed(tx)
        .await
}

/// Changes the address; `name` is the person's present one.
///
/// # Errors
/// [`crate::Conflict::EmailTaken`].
pub async fn set_email(
    tx: &mut Tx,
    id: UserId,
    name: &str,
    email: &str,
    verified: bool,
    now: Timestamp,
) -> Result<bool, Error> {
    sql(SET_EMAIL)
        .bind(id)
        .bind(email)
        .bind(fold(email))
        .bind(fold(name))
        .bind(verified)
        .bind(now)
        .changed(tx)
        .await
}

/// Notes that the person proved to hold this address, if it is still the person's.
pub async fn verify_email(
    tx: &mut Tx,
    id: UserId,
    email: &str,
    now: Timestamp,
) -> Result<bool, Error> {
    sql(VERIFY_EMAIL)
        .bind(id)
        .bind(fold(email))
        .bind(now)
        .changed(tx)
        .await
}

/// Keeps every other transaction that asks for the same lock, or changes this person, out until this
/// one ends. On SQLite a write transaction has this for the whole database.
pub async fn lock(tx: &mut Tx, id: UserId) -> Result<(), Error> {
    tx.lock(LOCK, id.as_str()).await
}

/// PostgreSQL's alone.
const LOCK: &str = "SELECT 1 FROM users WHERE id = $1 FOR NO KEY UPDATE";

/// Changes the password, or takes it away.
pub async fn set_password(
    tx: &mut Tx,
    id: UserId,
    password: Option<&PasswordHash>,
    now: Timestamp,
) -> Result<bool, Error> {
    tx.note(Change::person(id), now);
    sql(SET_PASSWORD)
        .bind(id)
        .bind(password)
        .bind(now)
        .changed(tx)
        .await
}

/// Suspends a person or lets them in again.
pub async fn set_status(
    tx: &mut Tx,
    id: UserId,
    status: Status,
    now: Timestamp,
) -> Result<bool, Error> {
    tx.note(Change::person(id), now);
    sql(SET_STATUS)
        .bind(id)
        .bind(status)
        .bind(now)
        .changed(tx)
        .await
}

/// Moves a person from one status to another. False when the person does not have the first.
pub async fn change_status(
    tx: &mut Tx,
    id: UserId,
    from: Status,
    to: Status,
    now: Timestamp,
) -> Result<bool, Error> {
    tx.note(Change::person(id), now);
    sql(CHANGE_STATUS)
        .bind(id)
        .bind(from)
        .bind(to)
        .bind(now)
        .changed(tx)
        .await
}

/// Ends the browser sessions at tunnels that the person began before now. Those here are ended by
/// [`crate::sessions::end_all`], which calls this.
pub(crate) async fn end_sessions(tx: &mut Tx, id: UserId, now: Timestamp) -> Result<bool, Error> {
    tx.note(Change::person(id), now);
    sql(END_SESSIONS).bind(id).bind(now).changed(tx).await
}

/// Makes a person an operator or a user.
pub async fn set_role(tx: &mut Tx, id: UserId, role: Role, now: Timestamp) -> Result<bool, Error> {
    sql(SET_ROLE)
        .bind(id)
        .bind(role)
        .bind(now)
        .changed(tx)
        .await
}

/// Lets an OpenID provider's subject sign in as this person.
///
/// # Errors
/// [`crate::Conflict::IdentityTaken`].
pub async fn link_identity(
    tx: &mut Tx,
    id: UserId,
    issuer: &str,
    subject: &str,
    now: Timestamp,
) -> Result<(), Error> {
    sql(LINK)
        .bind(issuer)
        .bind(subject)
        .bind(id)
        .bind(now)
        .execute(tx)
        .await?;
    Ok(())
}

/// Sets a new TOTP secret, which counts once it is confirmed. False when one is in force.
pub async fn begin_totp(
    tx: &mut Tx,
    id: UserId,
    secret: &SealedBytes,
    now: Timestamp,
) -> Result<bool, Error> {
    let secret = Some(secret);
    sql(BEGIN_TOTP)
        .bind(id)
        .bind(secret)
        .bind(now)
        .changed(tx)
        .await
}

/// Takes the TOTP secret away, in force or not.
pub async fn remove_totp(tx: &mut Tx, id: UserId, now: Timestamp) -> Result<bool, Error> {
    sql(REMOVE_TOTP).bind(id).bind(now).changed(tx).await
}

/// Puts the TOTP secret in force by the code of a time step, which is used up. False when the secret
/// is not the person's (any more), or is in force already.
pub async fn confirm_totp(
    tx: &mut Tx,
    id: UserId,
    secret: &SealedBytes,
    step: i64,
    now: Timestamp,
) -> Result<bool, Error> {
    sql(CONFIRM_TOTP)
        .bind(id)
        .bind(now)
        .bind(Some(secret))
        .bind(step)
        .changed(tx)
        .await
}

/// Uses up the code of a time step (RFC 6238 section 5.2: a code is accepted once). False when
/// this step or a later one was used already.
pub async fn use_totp_step(tx: &mut Tx, id: UserId, step: i64) -> Result<bool, Error> {
    sql(USE_TOTP).bind(id).bind(step).changed(tx).await
}

/// Replaces the recovery codes. Of several that do so at once, the codes of one are left.
pub async fn set_recovery_codes(
    tx: &mut Tx,
    id: UserId,
    codes: &[SecretHash],
) -> Result<(), Error> {
    lock(tx, id).await?;
    sql(FORGET_RECOVERY_CODES).bind(id).execute(tx).await?;
    for code in codes {
        sql(ADD_RECOVERY_CODE)
            .bind(id)
            .bind(*code)
            .execute(tx)
            .await?;
    }
    Ok(())
}

/// Uses up a recovery code. False when it is none, or was used.
pub async fn use_recovery_code(
    tx: &mut Tx,
    id: UserId,
    code: SecretHash,
    now: Timestamp,
) -> Result<bool, Error> {
    sql(USE_RECOVERY_CODE)
        .bind(id)
        .bind(code)
        .bind(now)
        .changed(tx)
        .await
}

//! Browser sessions of users, from sign-in to sign-out.

use std::net::IpAddr;
use std::sync::Arc;

use api::control::whoami::CallerKind;
use axum::extract::FromRequestParts;
use credentials::Limits;
use http::HeaderMap;
use http::header::{COOKIE, USER_AGENT};
use http::request::Parts;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use store::sessions::{self, Session};
use store::users::{self, Status, User};
use store::{Conn, SecretHash, Tx, passkeys};
use types::id::{SessionId, unix_millis};

use super::cookie::Cookie;
use super::secret_link::LinkSecret;
use crate::app::App;
use crate::caller::{Principal, Source};
use crate::http_api::extract::ClientIp;
use crate::http_api::problem::HandlerResult;
use crate::http_api::rate_limit;
use crate::pages::layout::PageRefusal;
use crate::runtime::random;

/// A user with a session.
#[derive(Clone, Debug)]
pub struct SignedIn {
    pub user: User,
    pub session: Session,
}

impl SignedIn {
    /// The user as a caller of service functions, within the limits of the session.
    pub fn principal(&self) -> Principal {
        let session = &self.session;
        Principal {
            kind: CallerKind::Session,
            user: self.user.clone(),
            source: Source::Session(self.session.id),
            root: None,
            source_updated_at: self.session.rotated_at,
            limits: limits(
                session.permissions.as_deref(),
                session.resources.as_ref(),
                session.expires_at,
            ),
            resources: session.resources.clone(),
        }
    }
}

/// A user with the first of two factors. This is not a session yet. Only the step that requires the
/// second factor uses it, and only [`complete`] turns it into a [`SignedIn`].
#[derive(Clone, Debug)]
pub struct PendingSignIn {
    pub user: User,
    /// Id of the session that it can become.
    pub id: SessionId,
    /// Hash of its cookie.
    hash: SecretHash,
}

/// The limits of a session.
pub(crate) fn limits(
    permissions: Option<&[String]>,
    resources: Option<&Value>,
    expires_at: Timestamp,
) -> Limits {
    let end = expires_at.as_second();
    Limits::of_stored(permissions, resources, None, Some(end))
}

/// Visitor of a page.
#[derive(Clone, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "there is one for a request, and most are the largest"
)]
pub enum Visitor {
    /// A visitor without a valid session.
    Anonymous,
    /// A visitor with the right password and a pending second factor. Only the page that asks for
    /// it treats this visitor differently from an anonymous one.
    SecondFactorPending(PendingSignIn),
    /// A user with all required factors.
    SignedIn(SignedIn),
}

impl Visitor {
    /// The user, if all required factors were given.
    pub fn signed_in(self) -> Option<SignedIn> {
        match self {
            Self::SignedIn(who) => Some(who),
            Self::Anonymous | Self::SecondFactorPending(_) => None,
        }
    }
}

/// The extractor for pages. A failure is a page.
impl FromRequestParts<Arc<App>> for Visitor {
    type Rejection = PageRefusal;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, PageRefusal> {
        let visitor = from_cookie(app, &parts.headers).await?;
        // The API's own layer does the same for API operations.
        if let Visitor::SignedIn(who) = &visitor {
            app.rate_limiter.admit(&who.principal())?;
        }
        Ok(visitor)
    }
}

/// The visitor that the session cookie of a request identifies. Callers of the API use this as
/// well, with [`Visitor::signed_in`] and after the check that a write comes from this origin.
pub async fn from_cookie(app: &App, headers: &HeaderMap) -> HandlerResult<Visitor> {
    let Some(secret) = cookie(app, headers) else {
        return Ok(Visitor::Anonymous);
    };
    let now = app.now();
    let mut read = app.store.read().await?;
    let session = sessions::live(&mut read, SecretHash(secret.hash()), now).await?;
    let Some(session) = session.filter(|session| !is_idle(session, now)) else {
        return Ok(Visitor::Anonymous);
    };
    let user = users::by_id(&mut read, session.user_id).await?;
    let Some(user) = user.filter(|user| user.status == Status::Active) else {
        return Ok(Visitor::Anonymous);
    };
    let lacks_second_factor =
        session.second_factor_at.is_none() && has_second_factor(&mut read, &user).await?;
    drop(read);
    if now.duration_since(session.last_seen_at) >= SEEN_INTERVAL
        && let Err(error) = note_seen(app, session.id, now).await
    {
        // Reading must work even if the database is read-only.
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            "the last use of a session could not be stored"
        );
    }
    Ok(if lacks_second_factor {
        Visitor::SecondFactorPending(PendingSignIn {
            user,
            id: session.id,
            hash: session.hash,
        })
    } else {
        rate_limit::mark_authenticated();
        Visitor::SignedIn(SignedIn { user, session })
    })
}

/// The caller of an API operation with a session cookie and without a bearer token. `None` if there
/// is not a valid session. The layer [`crate::pages::same_origin::require`] has already checked
/// that a write comes from one of the platform's pages.
pub async fn caller(app: &App, parts: &Parts) -> HandlerResult<Option<Principal>> {
    let visitor = from_cookie(app, &parts.headers).await?;
    let Some(who) = visitor.signed_in() else {
        return Ok(None);
    };
    Ok(Some(who.principal()))
}

/// The secret in the session cookie of a request, if there is one.
pub fn cookie(app: &App, headers: &HeaderMap) -> Option<LinkSecret> {
    cookie_of(Cookie::session(&app.config.base_url), headers)
}

/// The secret in one of the platform's cookies, if the request has it.
pub fn cookie_of(cookie: Cookie, headers: &HeaderMap) -> Option<LinkSecret> {
    let fields = headers.get_all(COOKIE).iter();
    cookie.read(fields.map(http::HeaderValue::as_bytes))
}

/// Attributes of the browser that signs in.
#[derive(Clone, Debug)]
pub struct Browser {
    /// Its network address.
    pub ip: IpAddr,
    /// Its `User-Agent`.
    pub user_agent: Option<String>,
    /// The session cookie that it already has. That session ends with the new one.
    pub cookie: Option<LinkSecret>,
}

impl FromRequestParts<Arc<App>> for Browser {
    type Rejection = PageRefusal;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, PageRefusal> {
        let ClientIp(ip) = ClientIp::from_request_parts(parts, app).await?;
        let user_agent = parts
            .headers
            .get(USER_AGENT)
            .and_then(|name| name.to_str().ok());
        Ok(Self {
            ip,
            user_agent: user_agent.map(|name| name.chars().take(MAX_USER_AGENT).collect()),
            cookie: cookie(app, &parts.headers),
        })
    }
}

/// A started session, with the data for the browser.
#[derive(Clone, Debug)]
pub struct StartedSession {
    /// Its id.
    id: SessionId,
    /// Value of `Set-Cookie`.
    pub set_cookie: String,
    /// True if the second factor is still required.
    pub is_second_factor_pending: bool,
}

/// Starts a session for a visitor who just authenticated as `user` with one factor. It is pending
/// if the user has a second factor.
pub async fn start(
    app: &App,
    tx: &mut Tx,
    user: &User,
    browser: &Browser,
    now: Timestamp,
) -> HandlerResult<StartedSession> {
    let lacks_second = has_second_factor(tx, user).await?;
    let proofs = Proofs {
        first_at: now,
        second_at: None,
        lacks_second,
    };
    insert_session(app, tx, user, browser, proofs, now).await
}

/// An authentication of a user by an OpenID provider.
#[derive(Clone, Copy, Debug)]
pub struct ProviderProof<'a> {
    /// The provider.
    pub issuer: &'a str,
    /// The provider's identifier of the user.
    pub subject: &'a str,
    /// The provider's identifier of its session.
    pub sid: Option<&'a str>,
    /// Time of the authentication. `None` if the provider does not report it, which never counts as
    /// recent.
    pub proved_at: Option<Timestamp>,
}

/// Starts a session for a user whom an OpenID provider authenticated. The provider can end it.
pub async fn start_external(
    app: &App,
    tx: &mut Tx,
    user: &User,
    browser: &Browser,
    proof: ProviderProof<'_>,
    now: Timestamp,
) -> HandlerResult<StartedSession> {
    let proofs = Proofs {
        // If the provider's clock is ahead of the platform's, the proof must not be in the future.
        first_at: proof.proved_at.unwrap_or(Timestamp::UNIX_EPOCH).min(now),
        second_at: None,
        lacks_second: has_second_factor(tx, user).await?,
    };
    let started = insert_session(app, tx, user, browser, proofs, now).await?;
    sessions::set_provider(tx, started.id, proof.issuer, proof.subject, proof.sid).await?;
    Ok(started)
}

/// Authentication state of a new session.
struct Proofs {
    first_at: Timestamp,
    second_at: Option<Timestamp>,
    /// True if the second factor is still required.
    lacks_second: bool,
}

/// Starts a full session for a visitor who just authenticated as `user` with two factors in one
/// step, such as a passkey that requires a fingerprint.
pub async fn start_full(
    app: &App,
    tx: &mut Tx,
    user: &User,
    browser: &Browser,
    now: Timestamp,
) -> HandlerResult<StartedSession> {
    let proofs = Proofs {
        first_at: now,
        second_at: Some(now),
        lacks_second: false,
    };
    insert_session(app, tx, user, browser, proofs, now).await
}

/// Stores a session. It always gets a new cookie, so that a cookie that was planted before the
/// sign-in is useless.
async fn insert_session(
    app: &App,
    tx: &mut Tx,
    user: &User,
    browser: &Browser,
    proofs: Proofs,
    now: Timestamp,
) -> HandlerResult<StartedSession> {
    let is_pending = proofs.lacks_second;
    if let Some(old) = &browser.cookie {
        sessions::end(tx, SecretHash(old.hash()), now).await?;
    }
    let secret = LinkSecret::draw()?;
    let lifetime = if is_pending {
        SECOND_FACTOR_TIMEOUT
    } else {
        LIFETIME
    };
    let session = Session {
        id: SessionId::new(unix_millis(now), random::bytes()?),
        hash: SecretHash(secret.hash()),
        user_id: user.id,
        user_agent: browser.user_agent.clone(),
        ip: Some(browser.ip.to_string()),
        second_factor_at: proofs.second_at,
        proved_at: proofs.first_at,
        created_at: now,
        rotated_at: now,
        last_seen_at: now,
        expires_at: later(now, lifetime),
        permissions: None,
        resources: None,
    };
    sessions::insert(tx, &session).await?;
    sessions::trim(tx, user.id, (MAX_SESSIONS, MAX_ENDED_SESSIONS), now).await?;
    Ok(StartedSession {
        id: session.id,
        set_cookie: set_cookie(app, &secret, lifetime),
        is_second_factor_pending: is_pending,
    })
}

/// Turns a pending session into a full one, with another cookie. `None` if it ended meanwhile.
pub async fn complete(
    app: &App,
    tx: &mut Tx,
    pending: &PendingSignIn,
    now: Timestamp,
) -> HandlerResult<Option<String>> {
    let secret = LinkSecret::draw()?;
    let rotated = sessions::rotate(
        tx,
        pending.hash,
        SecretHash(secret.hash()),
        now,
        later(now, LIFETIME),
    )
    .await?;
    if !rotated {
        return Ok(None);
    }
    sessions::second_factor(tx, pending.id, now).await?;
    Ok(Some(set_cookie(app, &secret, LIFETIME)))
}

/// Gives a session another cookie for the rest of its lifetime. `None` if it ended meanwhile.
pub async fn renew(
    app: &App,
    tx: &mut Tx,
    session: &Session,
    now: Timestamp,
) -> HandlerResult<Option<String>> {
    let secret = LinkSecret::draw()?;
    let hash = SecretHash(secret.hash());
    let ends = session.expires_at;
    let is_renewed = sessions::rotate(tx, session.hash, hash, now, ends).await?;
    let remaining = ends.duration_since(now);
    Ok(is_renewed.then(|| set_cookie(app, &secret, remaining)))
}

/// Returns `now` plus a duration, or the maximum time on overflow.
pub(crate) fn later(now: Timestamp, duration: SignedDuration) -> Timestamp {
    now.saturating_add(duration).unwrap_or(Timestamp::MAX)
}

async fn note_seen(app: &App, id: SessionId, now: Timestamp) -> Result<(), store::Error> {
    let mut tx = app.store.begin().await?;
    sessions::record_use(&mut tx, id, now).await?;
    tx.commit().await
}

/// True if the user's password alone is not enough to sign in.
pub async fn has_second_factor(conn: &mut Conn, user: &User) -> Result<bool, store::Error> {
    Ok(user.totp_confirmed_at.is_some() || passkeys::count(conn, user.id).await? > 0)
}

/// True if the session has ended because it was not used.
pub fn is_idle(session: &Session, now: Timestamp) -> bool {
    now.duration_since(session.last_seen_at) >= IDLE
}

fn set_cookie(app: &App, secret: &LinkSecret, lifetime: SignedDuration) -> String {
    let seconds = u32::try_from(lifetime.as_secs()).unwrap_or(u32::MAX);
    Cookie::session(&app.config.base_url).set(secret, seconds)
}

impl SignedIn {
    /// True if the user authenticated recently. Changes of sign-in settings require this, so that
    /// an unattended browser is not enough.
    pub fn is_recently_authenticated(&self, now: Timestamp) -> bool {
        is_recent(self.session.proved_at, now)
    }
}

/// True if an authentication at `proved_at` is recent.
pub(crate) fn is_recent(proved_at: Timestamp, now: Timestamp) -> bool {
    now.duration_since(proved_at) < RECENT_PROOF
}

/// Period in which an authentication counts as recent.
pub const RECENT_PROOF: SignedDuration = SignedDuration::from_mins(10);

/// The maximum lifetime of one sign-in (OWASP ASVS 5.0, 7.3.2 requires a documented limit). With a
/// month, users are not tempted to choose passwords that are quick to type.
pub const LIFETIME: SignedDuration = SignedDuration::from_hours(30 * 24);

/// A session that was not used for this long has ended.
pub const IDLE: SignedDuration = SignedDuration::from_hours(7 * 24);

/// Time limit for the second factor.
pub const SECOND_FACTOR_TIMEOUT: SignedDuration = SignedDuration::from_mins(10);

/// The last use of a session is stored at most this often, so that reading pages does not write to
/// the database.
const SEEN_INTERVAL: SignedDuration = SignedDuration::from_mins(5);

/// Maximum number of sessions per user, far more than a user has browsers. A new session ends the
/// one that was not used for longest.
const MAX_SESSIONS: u32 = 50;
/// Maximum number of sessions that one sign-in ends.
const MAX_ENDED_SESSIONS: u32 = 100;

/// Limit for the stored `User-Agent`. Real browsers send less.
const MAX_USER_AGENT: usize = 256;

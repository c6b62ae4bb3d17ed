//! Sessions: a person in a browser, from signing in to signing out.

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
use types::id::SessionId;

use super::cookie::Cookie;
use super::secret_link::LinkSecret;
use crate::app::App;
use crate::caller::{Principal, Source};
use crate::extract::ClientIp;
use crate::pages::layout::PageRefusal;
use crate::problem::Answer;
use crate::random;
use crate::rate_limit;
use crate::wire::unix_millis;

/// A person with a session.
#[derive(Clone, Debug)]
pub struct SignedIn {
    /// Who.
    pub user: User,
    /// By which session.
    pub session: Session,
}

impl SignedIn {
    /// The person as a caller of service functions, within the limits of the session.
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

/// A person who gave the first of two proofs. It is no session yet: nothing but the step that asks for
/// the second factor takes one, and it becomes a [`SignedIn`] by [`complete`] alone.
#[derive(Clone, Debug)]
pub struct HalfSignedIn {
    /// Who.
    pub user: User,
    /// By which session, once it is one.
    pub id: SessionId,
    /// Of its cookie.
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

/// Who looks at a page.
#[derive(Clone, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "there is one for a request, and most are the largest"
)]
pub enum Visitor {
    /// Somebody without a session that is good.
    Nobody,
    /// Somebody who knows the password and has yet to show the second factor: nobody, but to the
    /// page that asks for it.
    HalfWay(HalfSignedIn),
    /// A person.
    SignedIn(SignedIn),
}

impl Visitor {
    /// The person, where all proofs were given.
    pub fn signed_in(self) -> Option<SignedIn> {
        match self {
            Self::SignedIn(who) => Some(who),
            Self::Nobody | Self::HalfWay(_) => None,
        }
    }
}

/// For pages; a failure is a page.
impl FromRequestParts<Arc<App>> for Visitor {
    type Rejection = PageRefusal;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, PageRefusal> {
        let visitor = of_cookie(app, &parts.headers).await?;
        // The API's own layer does the same for operations.
        if let Visitor::SignedIn(who) = &visitor {
            app.rate_limiter.admit(&who.principal())?;
        }
        Ok(visitor)
    }
}

/// Who the session cookie of a request belongs to. The API's callers use this too: with
/// [`Visitor::signed_in`], and after the check that a write comes from this origin.
pub async fn of_cookie(app: &App, headers: &HeaderMap) -> Answer<Visitor> {
    let Some(secret) = cookie(app, headers) else {
        return Ok(Visitor::Nobody);
    };
    let now = app.now();
    let mut read = app.store.read().await?;
    let session = sessions::live(&mut read, SecretHash(secret.hash()), now).await?;
    let Some(session) = session.filter(|session| !is_idle(session, now)) else {
        return Ok(Visitor::Nobody);
    };
    let user = users::by_id(&mut read, session.user_id).await?;
    let Some(user) = user.filter(|user| user.status == Status::Active) else {
        return Ok(Visitor::Nobody);
    };
    let lacks_second_factor =
        session.second_factor_at.is_none() && has_second_factor(&mut read, &user).await?;
    drop(read);
    if now.duration_since(session.last_seen_at) >= SEEN_EVERY
        && let Err(error) = note_seen(app, session.id, now).await
    {
        // A database that cannot be written does not keep anybody from reading.
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            "a use was not noted"
        );
    }
    Ok(if lacks_second_factor {
        Visitor::HalfWay(HalfSignedIn {
            user,
            id: session.id,
            hash: session.hash,
        })
    } else {
        rate_limit::note_credential();
        Visitor::SignedIn(SignedIn { user, session })
    })
}

/// The caller of an API operation who sent no bearer token but a session cookie. `None`: there is
/// no session that is good. That a write comes from a page of ours was checked by the layer
/// [`crate::pages::same_origin::require`] before.
pub async fn caller(app: &App, parts: &Parts) -> Answer<Option<Principal>> {
    let visitor = of_cookie(app, &parts.headers).await?;
    let Some(who) = visitor.signed_in() else {
        return Ok(None);
    };
    Ok(Some(who.principal()))
}

/// The secret in the session cookie of a request, if there is one.
pub fn cookie(app: &App, headers: &HeaderMap) -> Option<LinkSecret> {
    cookie_of(Cookie::session(&app.config.base_url), headers)
}

/// The secret in one of our cookies of a request, if there is one.
pub fn cookie_of(cookie: Cookie, headers: &HeaderMap) -> Option<LinkSecret> {
    let fields = headers.get_all(COOKIE).iter();
    cookie.read(fields.map(http::HeaderValue::as_bytes))
}

/// What a sign-in knows of the browser.
#[derive(Clone, Debug)]
pub struct Browser {
    /// Where it is.
    pub ip: IpAddr,
    /// What it says it is.
    pub user_agent: Option<String>,
    /// The cookie that it has already: that session ends with the new one.
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

/// A session that was begun: what the browser gets.
#[derive(Clone, Debug)]
pub struct StartedSession {
    /// Value of `Set-Cookie`.
    pub set_cookie: String,
    /// Whether the second factor is still to be shown.
    pub is_half_way: bool,
}

/// Begins a session of somebody who just proved to be `user` with one factor: half way, where the
/// person has a second one.
pub async fn begin(
    app: &App,
    tx: &mut Tx,
    user: &User,
    browser: &Browser,
    now: Timestamp,
) -> Answer<StartedSession> {
    let lacks_one = has_second_factor(tx, user).await?;
    let proofs = Proofs {
        first_at: now,
        second_at: None,
        lacks_second: lacks_one,
    };
    begin_as(app, tx, user, browser, proofs, now).await
}

/// Begins a session of somebody whom another service knows. `proved_at`: when that service saw the person
/// prove it; `None` where it does not say, which is no fresh proof.
pub async fn begin_proved(
    app: &App,
    tx: &mut Tx,
    user: &User,
    browser: &Browser,
    proved_at: Option<Timestamp>,
    now: Timestamp,
) -> Answer<StartedSession> {
    let proofs = Proofs {
        // A clock ahead of ours makes no proof of the future.
        first_at: proved_at.unwrap_or(Timestamp::UNIX_EPOCH).min(now),
        second_at: None,
        lacks_second: has_second_factor(tx, user).await?,
    };
    begin_as(app, tx, user, browser, proofs, now).await
}

/// The proofs behind a new session.
struct Proofs {
    first_at: Timestamp,
    second_at: Option<Timestamp>,
    /// Whether the second factor is still to be shown.
    lacks_second: bool,
}

/// Begins a whole session of somebody who just proved to be `user` with two factors at once, as a
/// passkey does that asks for a finger.
pub async fn begin_whole(
    app: &App,
    tx: &mut Tx,
    user: &User,
    browser: &Browser,
    now: Timestamp,
) -> Answer<StartedSession> {
    let proofs = Proofs {
        first_at: now,
        second_at: Some(now),
        lacks_second: false,
    };
    begin_as(app, tx, user, browser, proofs, now).await
}

/// Always with a new cookie: one that was planted before signing in is worth nothing after it.
async fn begin_as(
    app: &App,
    tx: &mut Tx,
    user: &User,
    browser: &Browser,
    proofs: Proofs,
    now: Timestamp,
) -> Answer<StartedSession> {
    let is_half_way = proofs.lacks_second;
    if let Some(old) = &browser.cookie {
        sessions::end(tx, SecretHash(old.hash()), now).await?;
    }
    let secret = LinkSecret::draw()?;
    let lifetime = if is_half_way { HALF_WAY } else { LIFETIME };
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
    sessions::trim(tx, user.id, (MOST_SESSIONS, TRIMMED), now).await?;
    Ok(StartedSession {
        set_cookie: set_cookie(app, &secret, lifetime),
        is_half_way,
    })
}

/// Turns a session that was half way into a whole one, with another cookie. `None`: it ended
/// meanwhile.
pub async fn complete(
    app: &App,
    tx: &mut Tx,
    half: &HalfSignedIn,
    now: Timestamp,
) -> Answer<Option<String>> {
    let secret = LinkSecret::draw()?;
    let rotated = sessions::rotate(
        tx,
        half.hash,
        SecretHash(secret.hash()),
        now,
        later(now, LIFETIME),
    )
    .await?;
    if !rotated {
        return Ok(None);
    }
    sessions::second_factor(tx, half.id, now).await?;
    Ok(Some(set_cookie(app, &secret, LIFETIME)))
}

/// Gives a session another cookie, for as long as it lasts. `None`: it ended meanwhile.
pub async fn renew(
    app: &App,
    tx: &mut Tx,
    session: &Session,
    now: Timestamp,
) -> Answer<Option<String>> {
    let secret = LinkSecret::draw()?;
    let hash = SecretHash(secret.hash());
    let ends = session.expires_at;
    let is_renewed = sessions::rotate(tx, session.hash, hash, now, ends).await?;
    let left = ends.duration_since(now);
    Ok(is_renewed.then(|| set_cookie(app, &secret, left)))
}

/// `now` and a while.
pub(crate) fn later(now: Timestamp, while_: SignedDuration) -> Timestamp {
    now.saturating_add(while_).unwrap_or(Timestamp::MAX)
}

async fn note_seen(app: &App, id: SessionId, now: Timestamp) -> Result<(), store::Error> {
    let mut tx = app.store.begin().await?;
    sessions::seen(&mut tx, id, now).await?;
    tx.commit().await
}

/// Whether the person's password alone opens nothing.
pub async fn has_second_factor(conn: &mut Conn, user: &User) -> Result<bool, store::Error> {
    Ok(user.totp_confirmed_at.is_some() || passkeys::count(conn, user.id).await? > 0)
}

/// Whether a session has ended because nobody used it.
pub fn is_idle(session: &Session, now: Timestamp) -> bool {
    now.duration_since(session.last_seen_at) >= IDLE
}

fn set_cookie(app: &App, secret: &LinkSecret, lifetime: SignedDuration) -> String {
    let seconds = u32::try_from(lifetime.as_secs()).unwrap_or(u32::MAX);
    Cookie::session(&app.config.base_url).set(secret, seconds)
}

impl SignedIn {
    /// Whether the person proved a moment ago to be who they are: what changes how one signs in
    /// takes more than a browser that was left open.
    pub fn is_proved(&self, now: Timestamp) -> bool {
        is_recent(self.session.proved_at, now)
    }
}

/// Whether a proof of then is a recent one.
pub(crate) fn is_recent(proved_at: Timestamp, now: Timestamp) -> bool {
    now.duration_since(proved_at) < PROOF_LASTS
}

/// How long a proof is a recent one.
pub const PROOF_LASTS: SignedDuration = SignedDuration::from_mins(10);

/// The longest that one sign-in lasts (OWASP ASVS 5.0, 7.3.2 asks for a documented limit): a month
/// keeps people from choosing passwords that are quick to type.
pub const LIFETIME: SignedDuration = SignedDuration::from_hours(30 * 24);

/// A session that nobody used for this long has ended.
pub const IDLE: SignedDuration = SignedDuration::from_hours(7 * 24);

/// How long the second factor may be looked for.
pub const HALF_WAY: SignedDuration = SignedDuration::from_mins(10);

/// A use is written down at most this often, so that reading pages does not write.
const SEEN_EVERY: SignedDuration = SignedDuration::from_mins(5);

/// Sessions of one person: far more than one has browsers. The one that was not used for longest ends
/// for a new one.
const MOST_SESSIONS: u32 = 50;
/// Sessions that one sign-in ends at most.
const TRIMMED: u32 = 100;

/// Browsers' names for themselves are shorter; what is longer is somebody's joke.
const MAX_USER_AGENT: usize = 256;

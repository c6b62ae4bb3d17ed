//! One sign-in: from the button to the provider, and back.

use std::net::IpAddr;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use daemon::connections::source_network;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use store::pending_sign_ins::{self, PendingSignIn};
use store::{SealedBytes, SecretHash};
use types::problem::Problem;

use super::arrival::{self, SignInError, SignInResult};
use super::provider::{Provider, ProviderError, ProviderIdentity};
use super::secrets::FlowSecrets;
use crate::app::App;
use crate::extract::Query;
use crate::keys::Seal;
use crate::people::cookie::Cookie;
use crate::people::secret_link::LinkSecret;
use crate::people::session::{Browser, later};
use crate::people::throttle::TooSoon;
use crate::problem::{Answer, Refusal};

/// A sign-in that was begun: where the browser goes, and what it takes along.
#[derive(Debug)]
pub struct StartedSignIn {
    /// Address of the provider.
    pub location: String,
    /// Value of `Set-Cookie`.
    pub set_cookie: String,
}

/// What the browser came back with, as the provider told it to.
#[derive(Debug)]
pub struct Callback {
    state: Option<String>,
    code: Option<String>,
    error: Option<String>,
    iss: Option<String>,
}

impl From<Query> for Callback {
    fn from(mut query: Query) -> Self {
        Self {
            state: query.text("state"),
            code: query.text("code"),
            error: query.text("error"),
            iss: query.text("iss"),
        }
    }
}

/// Why nobody was signed in.
#[derive(Debug)]
pub enum FlowError {
    /// Not begun in this browser, too long ago, or over already.
    NotBegun,
    /// The person or the provider said no.
    Denied,
    /// The provider is away, or proved nothing.
    Provider(ProviderError),
    /// The provider proved who it is, and that person has no way in.
    NotArrived(SignInError),
    /// Too many sign-ins from one place; seconds until the next.
    TooSoon(u32),
    /// Failed on our side.
    Failed(Refusal),
}

impl From<ProviderError> for FlowError {
    fn from(error: ProviderError) -> Self {
        Self::Provider(error)
    }
}

impl From<SignInError> for FlowError {
    fn from(error: SignInError) -> Self {
        Self::NotArrived(error)
    }
}

impl<R: Into<Refusal>> From<R> for FlowError {
    fn from(error: R) -> Self {
        Self::Failed(error.into())
    }
}

/// What is done when the browser is back.
#[derive(Debug, Serialize, Deserialize)]
struct Plan {
    /// A path of ours.
    next: String,
    /// Whether the person was asked to sign in anew.
    anew: bool,
}

/// Begins a sign-in that goes on to `next`, a path of ours.
pub async fn begin(
    app: &App,
    provider: &Provider,
    next: &str,
    anew: bool,
    ip: IpAddr,
) -> Result<StartedSignIn, FlowError> {
    let now = app.now();
    if let Err(TooSoon(seconds)) = app.people.places.begin(&source_network(ip), now) {
        return Err(FlowError::TooSoon(seconds));
    }
    let secret = LinkSecret::draw()?;
    let location = provider
        .authorization_url(&FlowSecrets(&secret), anew, now)
        .await?;
    let plan = Plan {
        next: next.to_owned(),
        anew,
    };
    let hash = SecretHash(secret.hash());
    let text = serde_json::to_vec(&plan).map_err(|_| Problem::internal())?;
    let pending = PendingSignIn {
        hash,
        sealed: SealedBytes(seal(app)?.seal(&owner(hash), &text)?),
        created_at: now,
        expires_at: later(now, LIFETIME),
    };
    let mut tx = app.store.begin().await?;
    pending_sign_ins::insert(&mut tx, &pending).await?;
    pending_sign_ins::trim(&mut tx, MOST_PENDING, TRIMMED).await?;
    tx.commit().await?;
    let seconds = u32::try_from(LIFETIME.as_secs()).unwrap_or(u32::MAX);
    Ok(StartedSignIn {
        location,
        set_cookie: Cookie::sign_in(&app.config.base_url).set(&secret, seconds),
    })
}

/// Ends a sign-in: whatever comes of it, the same browser cannot come back a second time.
///
/// # Errors
/// [`FlowError::NotBegun`] where `state` is not this browser's: a sign-in that it did begin goes
/// on undisturbed.
pub async fn complete(
    app: &App,
    provider: &Provider,
    callback: Callback,
    cookie: Option<LinkSecret>,
    browser: &Browser,
) -> Result<SignInResult, FlowError> {
    let now = app.now();
    let secret = cookie.ok_or(FlowError::NotBegun)?;
    let secrets = FlowSecrets(&secret);
    let state = callback.state.ok_or(FlowError::NotBegun)?;
    if !secrets.is_state(&state) {
        return Err(FlowError::NotBegun);
    }
    let (plan, begun_at) = take(app, &secret, now).await?;
    provider.check_iss(callback.iss.as_deref(), now).await?;
    if let Some(error) = callback.error {
        let known = KNOWN_ERRORS.iter().find(|known| **known == error);
        tracing::info!(
            error = known.unwrap_or(&"another"),
            "the OpenID provider refused a sign-in"
        );
        return Err(FlowError::Denied);
    }
    let code = callback
        .code
        .filter(|code| (1..=MAX_CODE_BYTES).contains(&code.len()))
        .ok_or(FlowError::Denied)?;
    let proved = provider.redeem(&code, &secrets, now).await?;
    if plan.anew && !is_anew(&proved, begun_at) {
        return Err(ProviderError::NotAnew.into());
    }
    let issuer = &provider.config().issuer;
    let arrived = arrival::arrive(app, provider.config(), proved, plan.next, browser, now).await?;
    app.people.places.take_back(&source_network(browser.ip));
    tracing::debug!(issuer, "somebody signed in by the OpenID provider");
    Ok(arrived)
}

/// The plan of the sign-in, which is over with this.
async fn take(
    app: &App,
    secret: &LinkSecret,
    now: Timestamp,
) -> Result<(Plan, Timestamp), FlowError> {
    let hash = SecretHash(secret.hash());
    let mut tx = app.store.begin().await?;
    let pending = pending_sign_ins::consume(&mut tx, hash, now).await?;
    tx.commit().await?;
    let pending = pending.ok_or(FlowError::NotBegun)?;
    let SealedBytes(sealed) = &pending.sealed;
    let plan = seal(app)?
        .open(&owner(hash), sealed)
        .and_then(|text| serde_json::from_slice(&text).ok())
        .ok_or(FlowError::NotBegun)?;
    Ok((plan, pending.created_at))
}

/// Whether the person was there after the sign-in began. A provider that was asked for `max_age` has to
/// say when (OpenID Connect Core, section 3.1.2.1); one that does not proves nothing.
fn is_anew(proved: &ProviderIdentity, begun_at: Timestamp) -> bool {
    let earliest = begun_at.as_second().saturating_sub(CLOCKS_DIFFER);
    proved.auth_time.is_some_and(|at| at >= earliest)
}

fn seal(app: &App) -> Answer<Seal> {
    Seal::new(&app.keys.derive("pending-sign-in")?)
}

fn owner(hash: SecretHash) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(hash.0)
}

/// Sign-ins under way, of all: each is a row for ten minutes, and the first step is anybody's. A flood
/// from many places ends the oldest ones.
const MOST_PENDING: u32 = 10_000;
/// Rows that one sign-in removes at most.
const TRIMMED: u32 = 100;
/// How long somebody may take at the provider.
const LIFETIME: SignedDuration = SignedDuration::from_mins(10);

/// Seconds that the provider's clock and ours may differ.
const CLOCKS_DIFFER: i64 = 60;

/// Codes are opaque; the longest that are known have two kilobytes.
const MAX_CODE_BYTES: usize = 4096;

/// Errors that are worth a name in the log: RFC 6749 section 4.1.2.1, OpenID Connect Core 1.0
/// section 3.1.2.6. Others are somebody's text.
const KNOWN_ERRORS: &[&str] = &[
    "access_denied",
    "account_selection_required",
    "consent_required",
    "interaction_required",
    "invalid_request",
    "invalid_scope",
    "login_required",
    "server_error",
    "temporarily_unavailable",
    "unauthorized_client",
    "unsupported_response_type",
];

//! One sign-in: from the button to the provider and back.

use std::net::IpAddr;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use daemon::connections::source_network;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use store::pending_sign_ins::{self, PendingSignIn};
use store::{SealedBytes, SecretHash};
use types::id::SessionId;
use types::problem::Problem;

use super::account_link::{self, SignInError, SignInResult};
use super::provider::{Provider, ProviderError, ProviderIdentity};
use super::secrets::FlowSecrets;
use crate::app::App;
use crate::http_api::extract::Query;
use crate::http_api::problem::{HandlerResult, Refusal};
use crate::keys::Seal;
use crate::people::cookie::Cookie;
use crate::people::secret_link::LinkSecret;
use crate::people::session::{Browser, SignedIn, later};
use crate::people::throttle::TooManyAttemptsError;

/// A started sign-in: the provider's address and the cookie for the browser.
#[derive(Debug)]
pub struct StartedSignIn {
    /// Address of the provider.
    pub location: String,
    /// Value of `Set-Cookie`.
    pub set_cookie: String,
}

/// Parameters of the browser's return from the provider.
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

/// Reasons that a sign-in failed.
#[derive(Debug)]
pub enum FlowError {
    /// The sign-in was not started in this browser, has expired, or is already complete.
    NotStarted,
    /// The user or the provider denied the sign-in.
    Denied,
    /// The provider is unavailable, or its response proved nothing.
    Provider(ProviderError),
    /// The provider confirmed the identity, but that user may not sign in here.
    Rejected(SignInError),
    /// Too many sign-ins from one address. The value is the number of seconds until the next.
    TooSoon(u32),
    /// Internal failure.
    Failed(Refusal),
}

impl From<ProviderError> for FlowError {
    fn from(error: ProviderError) -> Self {
        Self::Provider(error)
    }
}

impl From<SignInError> for FlowError {
    fn from(error: SignInError) -> Self {
        Self::Rejected(error)
    }
}

impl<R: Into<Refusal>> From<R> for FlowError {
    fn from(error: R) -> Self {
        Self::Failed(error.into())
    }
}

/// Stored state of a sign-in, for the browser's return.
#[derive(Debug, Serialize, Deserialize)]
struct FlowState {
    /// A path of the platform.
    next: String,
    /// True if the user was requested to authenticate again.
    anew: bool,
    /// The session here to whose account the identity is linked.
    #[serde(default)]
    link_to: Option<SessionId>,
}

/// The purpose of a sign-in at the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The user signs in here, perhaps with another authentication at the provider.
    SignIn { anew: bool },
    /// The identity is linked to the account of this session.
    Link(SessionId),
}

/// The result of a completed sign-in at the provider.
#[derive(Debug)]
pub enum Completion {
    /// The user is signed in.
    SignedIn(SignInResult),
    /// The identity is linked to the account of the user. The value is the path to continue at.
    Linked(String),
}

/// Starts a sign-in that continues at `next`, a path of the platform.
pub async fn begin(
    app: &App,
    provider: &Provider,
    next: &str,
    purpose: Purpose,
    ip: IpAddr,
) -> Result<StartedSignIn, FlowError> {
    let (anew, link_to) = match purpose {
        Purpose::SignIn { anew } => (anew, None),
        Purpose::Link(session) => (false, Some(session)),
    };
    let now = app.now();
    if let Err(TooManyAttemptsError(seconds)) = app
        .people
        .ip_throttle
        .record_attempt(&source_network(ip), now)
    {
        return Err(FlowError::TooSoon(seconds));
    }
    let secret = LinkSecret::draw()?;
    let location = provider
        .authorization_url(&FlowSecrets(&secret), anew, now)
        .await?;
    let plan = FlowState {
        next: next.to_owned(),
        anew,
        link_to,
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
    pending_sign_ins::trim(&mut tx, MAX_PENDING, MAX_DELETED_ROWS).await?;
    tx.commit().await?;
    let seconds = u32::try_from(LIFETIME.as_secs()).unwrap_or(u32::MAX);
    Ok(StartedSignIn {
        location,
        set_cookie: Cookie::sign_in(&app.config.base_url).set(&secret, seconds),
    })
}

/// Completes a sign-in. The browser cannot use it a second time, even after a failure. `who` is the
/// signed-in user, for [`Purpose::Link`].
///
/// # Errors
/// Fails if `state` is not this browser's. A sign-in that the browser did start remains valid.
pub async fn complete(
    app: &Arc<App>,
    provider: &Provider,
    callback: Callback,
    cookie: Option<LinkSecret>,
    who: Option<&SignedIn>,
    browser: &Browser,
) -> Result<Completion, FlowError> {
    let now = app.now();
    let secret = cookie.ok_or(FlowError::NotStarted)?;
    let secrets = FlowSecrets(&secret);
    let state = callback.state.ok_or(FlowError::NotStarted)?;
    if !secrets.is_state(&state) {
        return Err(FlowError::NotStarted);
    }
    let (plan, begun_at) = consume_pending(app, &secret, now).await?;
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
    if plan.anew && !is_reauthenticated(&proved, begun_at) {
        return Err(ProviderError::NotReauthenticated.into());
    }
    let config = provider.config();
    let completion = if let Some(session) = plan.link_to {
        // The recent authentication is one of this session. It may have ended since.
        let who = who.filter(|who| who.session.id == session);
        let who = who.ok_or(FlowError::NotStarted)?;
        account_link::link_to_account(app, config, &proved, who, browser, now).await?;
        Completion::Linked(plan.next)
    } else {
        let signed_in =
            account_link::sign_in_identity(app, config, proved, plan.next, browser, now).await?;
        Completion::SignedIn(signed_in)
    };
    app.people
        .ip_throttle
        .undo_attempt(&source_network(browser.ip));
    let issuer = &config.issuer;
    tracing::debug!(issuer, "a user authenticated with the OpenID provider");
    Ok(completion)
}

/// Reads and deletes the stored state of the sign-in.
async fn consume_pending(
    app: &App,
    secret: &LinkSecret,
    now: Timestamp,
) -> Result<(FlowState, Timestamp), FlowError> {
    let hash = SecretHash(secret.hash());
    let mut tx = app.store.begin().await?;
    let pending = pending_sign_ins::consume(&mut tx, hash, now).await?;
    tx.commit().await?;
    let pending = pending.ok_or(FlowError::NotStarted)?;
    let SealedBytes(sealed) = &pending.sealed;
    let plan = seal(app)?
        .open(&owner(hash), sealed)
        .and_then(|text| serde_json::from_slice(&text).ok())
        .ok_or(FlowError::NotStarted)?;
    Ok((plan, pending.created_at))
}

/// True if the user authenticated after the start of the sign-in. A provider must report the time
/// if `max_age` was requested (OpenID Connect Core, section 3.1.2.1). Without it there is no proof.
fn is_reauthenticated(proved: &ProviderIdentity, begun_at: Timestamp) -> bool {
    let earliest = begun_at.as_second().saturating_sub(CLOCK_LEEWAY);
    proved.auth_time.is_some_and(|at| at >= earliest)
}

fn seal(app: &App) -> HandlerResult<Seal> {
    Seal::new(&app.keys.derive("pending-sign-in")?)
}

fn owner(hash: SecretHash) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(hash.0)
}

/// Maximum number of pending sign-ins of the platform. Each is a row for ten minutes, and anyone
/// can do the first step. A flood from many addresses ends the oldest ones.
const MAX_PENDING: u32 = 10_000;
/// Maximum number of rows that one sign-in deletes.
const MAX_DELETED_ROWS: u32 = 100;
/// Time limit for the user's stay at the provider.
const LIFETIME: SignedDuration = SignedDuration::from_mins(10);

/// Allowed difference between the provider's clock and ours, in seconds.
const CLOCK_LEEWAY: i64 = 60;

/// Codes are opaque. The longest known ones have two kilobytes.
const MAX_CODE_BYTES: usize = 4096;

/// Error codes that are logged by name: RFC 6749 section 4.1.2.1, OpenID Connect Core 1.0 section
/// 3.1.2.6. Other values are untrusted text.
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

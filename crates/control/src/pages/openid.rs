//! Sign-in through the OpenID provider: the redirect to the provider and the callback.

use std::error::Error;
use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use http::header::{CACHE_CONTROL, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::json;
use store::sessions::ProviderSession;

use super::confirm::AccountOwner;
use super::form::Form;
use super::layout::{MessagePage, PageRefusal, page, page_with, see_other};
use super::next_path::NextPath;
use super::{with_cookie, with_next};
use crate::app::App;
use crate::http_api::extract::{ClientIp, Query};
use crate::people::cookie::Cookie;
use crate::people::openid::account_link::{self, SignInError};
use crate::people::openid::flow::{self, Callback, Completion, FlowError, Purpose};
use crate::people::openid::logout::{self, LogoutError};
use crate::people::openid::{Provider, ProviderError};
use crate::people::session::{Browser, Visitor, cookie_of};
use types::problem::Problem;

/// The button of the provider on a page.
pub(super) struct Button<'a> {
    /// Its name.
    pub(super) name: &'a str,
    /// Path that starts the sign-in.
    pub(super) href: String,
}

impl<'a> Button<'a> {
    /// A button for a sign-in that continues at `next`. `None` if there is no provider.
    pub(super) fn new(app: &'a App, next: &str) -> Option<Self> {
        let provider = app.people.openid.as_ref()?;
        Some(Self {
            name: &provider.config().name,
            href: with_next("/login/openid", next),
        })
    }

    /// A button that makes a signed-in user authenticate again.
    pub(super) fn reauthentication(app: &'a App, next: &str) -> Option<Self> {
        let mut button = Self::new(app, next)?;
        button.href.push_str("&anew=yes");
        Some(button)
    }
}

/// Redirects to the provider. The button is a link and not a form. The policy of the pages allows
/// no form that ends at another site, and browsers apply it to redirects of a form as well.
pub(super) async fn begin(
    State(app): State<Arc<App>>,
    ClientIp(ip): ClientIp,
    visitor: Visitor,
    headers: HeaderMap,
    mut query: Query,
) -> Result<Response, PageRefusal> {
    let provider = require_provider(&app)?;
    let next = NextPath::parse(&query.text("next").unwrap_or_default());
    let anew = query.text("anew").is_some();
    // Another site may show the user a link to the button's page, but must not start the sign-in
    // itself.
    let site = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
    if !matches!(site, None | Some(b"same-origin" | b"none")) {
        return Ok(see_other(&with_next("/login", next.as_str())));
    }
    if matches!(visitor, Visitor::SignedIn(_)) && !anew {
        return Ok(see_other(next.as_str()));
    }
    let purpose = Purpose::SignIn { anew };
    match flow::begin(&app, provider, next.as_str(), purpose, ip).await {
        Ok(begun) => Ok(with_cookie(see_other(&begun.location), &begun.set_cookie)),
        Err(error) => failure_page(&app, provider, error),
    }
}

/// Sends the browser to the provider. The identity there is then linked to the account of the
/// signed-in user. The user must have authenticated recently, because the identity is another way
/// to sign in.
pub(super) async fn link(
    State(app): State<Arc<App>>,
    AccountOwner { who, ip }: AccountOwner,
    _form: Form,
) -> Result<Response, PageRefusal> {
    let provider = require_provider(&app)?;
    let purpose = Purpose::Link(who.session.id);
    match flow::begin(&app, provider, "/account?done=linked", purpose, ip).await {
        Ok(begun) => Ok(with_cookie(
            leave(provider, &begun.location),
            &begun.set_cookie,
        )),
        Err(error) => failure_page(&app, provider, error),
    }
}

/// Removes the provider's identity from the account. The user must have authenticated recently.
pub(super) async fn unlink(
    State(app): State<Arc<App>>,
    AccountOwner { who, ip }: AccountOwner,
    _form: Form,
) -> Result<Response, PageRefusal> {
    let provider = require_provider(&app)?;
    if account_link::unlink(&app, &provider.config().issuer, &who, ip).await? {
        return Ok(see_other("/account?done=unlinked"));
    }
    let text = "Set a password or add a passkey first. Without the provider you could not sign in.";
    Ok(page_with(
        StatusCode::CONFLICT,
        &MessagePage {
            title: "This is your only way to sign in",
            text,
            link: Some(("/account", "Go to your account")),
        },
    ))
}

/// A page that sends the browser to the provider after a form. The policy of the pages allows no
/// form that ends at another site, so browsers would block a redirect.
#[derive(Template)]
#[template(path = "openid_leave.html")]
struct LeavePage<'a> {
    name: &'a str,
    address: &'a str,
}

fn leave(provider: &Provider, address: &str) -> Response {
    let name = &provider.config().name;
    page(&LeavePage { name, address })
}

/// Sends the browser to the provider's sign-out page after a local sign-out. `None` if the session
/// was not started by the provider, or the provider's sign-out is not used.
pub(super) async fn sign_out_page(
    app: &App,
    session: Option<&ProviderSession>,
    next: Option<&str>,
) -> Option<Response> {
    let address = logout::end_session_address(app, session, next).await?;
    let provider = app.people.openid.as_ref()?;
    Some(leave(provider, &address))
}

/// Handles the return from the provider after a sign-out. `state` is the path to continue at.
pub(super) async fn signed_out(mut query: Query) -> Response {
    match query.text("state") {
        Some(next) => see_other(&with_next("/login", NextPath::parse(&next).as_str())),
        None => see_other("/login"),
    }
}

/// `POST /login/openid/back-channel-logout`: the provider ends sessions (OpenID Connect
/// Back-Channel Logout 1.0 section 2.5).
pub(super) async fn back_channel_logout(
    State(app): State<Arc<App>>,
    form: Result<Form, PageRefusal>,
) -> Response {
    let Some(provider) = &app.people.openid else {
        return PageRefusal::from(Problem::not_found()).into_response();
    };
    let token = form.map(|mut form| form.text("logout_token"));
    let outcome = match token {
        Ok(token) if !token.is_empty() => logout::end_sessions(&app, provider, &token).await,
        _ => return logout_refusal("logout_token is missing"),
    };
    match outcome {
        Ok(count) => {
            tracing::debug!(count, "the OpenID provider ended sessions");
            uncached(StatusCode::OK.into_response())
        }
        Err(LogoutError::Repeated) => logout_refusal("this logout_token was used before"),
        Err(LogoutError::Provider(error)) if error.is_temporary() => {
            tracing::warn!(
                error = &error as &dyn Error,
                "a logout token could not be checked"
            );
            uncached(StatusCode::SERVICE_UNAVAILABLE.into_response())
        }
        Err(LogoutError::Provider(error)) => {
            tracing::warn!(error = &error as &dyn Error, "a logout token was refused");
            logout_refusal("this logout_token is not valid")
        }
        Err(LogoutError::Failed(refusal)) => PageRefusal::from(refusal).into_response(),
    }
}

/// Section 2.8 of Back-Channel Logout 1.0.
fn logout_refusal(description: &str) -> Response {
    let body = json!({"error": "invalid_request", "error_description": description});
    uncached((StatusCode::BAD_REQUEST, axum::Json(body)).into_response())
}

fn uncached(mut response: Response) -> Response {
    let value = HeaderValue::from_static("no-store");
    response.headers_mut().insert(CACHE_CONTROL, value);
    response
}

/// Handles the callback from the provider.
pub(super) async fn callback(
    State(app): State<Arc<App>>,
    visitor: Visitor,
    browser: Browser,
    headers: HeaderMap,
    query: Query,
) -> Result<Response, PageRefusal> {
    let provider = require_provider(&app)?;
    let cookie = Cookie::sign_in(&app.config.base_url);
    let secret = cookie_of(cookie, &headers);
    let callback = Callback::from(query);
    let who = visitor.signed_in();
    match flow::complete(&app, provider, callback, secret, who.as_ref(), &browser).await {
        Ok(Completion::Linked(next)) => Ok(with_cookie(see_other(&next), &cookie.clear())),
        Ok(Completion::SignedIn(arrived)) => {
            let on = if arrived.session.is_second_factor_pending {
                with_next("/login/second-factor", &arrived.next)
            } else {
                arrived.next
            };
            let response = with_cookie(see_other(&on), &arrived.session.set_cookie);
            Ok(with_cookie(response, &cookie.clear()))
        }
        // The callback does not belong to the sign-in of this browser. If the browser has one, it
        // stays valid.
        Err(error @ FlowError::NotStarted) => failure_page(&app, provider, error),
        Err(error) => Ok(with_cookie(
            failure_page(&app, provider, error)?,
            &cookie.clear(),
        )),
    }
}

fn require_provider(app: &App) -> Result<&Provider, PageRefusal> {
    Ok(app.people.openid.as_ref().ok_or_else(Problem::not_found)?)
}

/// A page with the failure and a way to continue.
fn failure_page(app: &App, provider: &Provider, error: FlowError) -> Result<Response, PageRefusal> {
    let name = &provider.config().name;
    let (status, title, text) = match error {
        FlowError::NotStarted => (
            StatusCode::BAD_REQUEST,
            "Please start again",
            "This sign-in was not started in this browser, has already ended, or took too long."
                .to_owned(),
        ),
        FlowError::Denied => (
            StatusCode::FORBIDDEN,
            "You were not signed in",
            format!("{name} did not sign you in. You can try again, or use your password."),
        ),
        FlowError::Provider(error) => provider_failure(name, &error),
        FlowError::Rejected(why) => {
            if let Some(claim) = why.claim() {
                tracing::warn!(claim, reason = ?why, "a sign-in with the OpenID provider was refused");
            }
            rejected_sign_in(name, why)?
        }
        FlowError::TooSoon(seconds) => {
            let text = "Too many sign-ins. Wait a little and try again.";
            let mut response = message(StatusCode::TOO_MANY_REQUESTS, "Please wait", text);
            let seconds = HeaderValue::from(seconds);
            response.headers_mut().insert(RETRY_AFTER, seconds);
            return Ok(response);
        }
        FlowError::Failed(refusal) => return Err(refusal.into()),
    };
    tracing::debug!(
        issuer = app
            .people
            .openid
            .as_ref()
            .map(|provider| &*provider.config().issuer),
        title,
        "no sign-in"
    );
    Ok(message(status, title, &text))
}

fn provider_failure(name: &str, error: &ProviderError) -> (StatusCode, &'static str, String) {
    tracing::warn!(
        error = error as &dyn std::error::Error,
        "a sign-in with the OpenID provider failed"
    );
    if error.is_temporary() {
        return (
            StatusCode::SERVICE_UNAVAILABLE,
            "The sign-in service does not respond",
            format!("{name} cannot be reached now. Use your password, or try again in a minute."),
        );
    }
    (
        StatusCode::BAD_GATEWAY,
        "That did not work",
        format!(
            "{name} could not confirm your identity. Try again; if it keeps failing, contact the \
             operator of this platform."
        ),
    )
}

fn rejected_sign_in(
    name: &str,
    why: SignInError,
) -> Result<(StatusCode, &'static str, String), PageRefusal> {
    let (title, text) = match why {
        SignInError::EmailNotVerified { .. } => (
            "Your mail address is not confirmed",
            format!(
                "{name} does not confirm which mail address is yours. Confirm it there, then sign \
                 in again; or use your password here."
            ),
        ),
        SignInError::DomainNotTrusted { .. } => (
            "Your mail address is not accepted",
            format!(
                "The address that {name} reports is in another domain than those that the operator \
                 of this platform accepts. Contact the operator."
            ),
        ),
        SignInError::AccountExists { .. } => (
            "You have an account here already",
            format!(
                "An account with your address exists, and {name} does not confirm that the address \
                 is yours. Sign in with the password or passkey of the account."
            ),
        ),
        SignInError::AccountEmailNotVerified => (
            "Confirm your address first",
            format!(
                "An account with your address already exists here, but its owner has not been \
                 confirmed yet. Sign in with its password and confirm the address on the account \
                 page, or set a new password by mail. After that {name} signs you in."
            ),
        ),
        SignInError::LinkedToOtherIdentity => (
            "This account belongs to another user",
            format!(
                "The account belongs to another user of {name}. Contact the operator of this \
                 platform, or remove that user in the account first."
            ),
        ),
        SignInError::IdentityOfOtherAccount => (
            "This identity belongs to another account",
            format!(
                "You sign in to another account here with this user of {name}. Sign in to that \
                 account and remove it there first."
            ),
        ),
        SignInError::NotInvited { .. } => (
            "You have no account here",
            "Ask for an invitation to your address, and open its link first. If it came by mail, \
             open the link in the mail."
                .to_owned(),
        ),
        SignInError::Suspended => (
            "Your account is suspended",
            "Contact the operator of this platform.".to_owned(),
        ),
        SignInError::Failed(refusal) => return Err(refusal.into()),
    };
    Ok((StatusCode::FORBIDDEN, title, text))
}

fn message(status: StatusCode, title: &str, text: &str) -> Response {
    page_with(
        status,
        &MessagePage {
            title,
            text,
            link: Some(("/login", "Back to sign in")),
        },
    )
}

//! Sign-in through the OpenID provider: the redirect to the provider and the callback.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderValue, StatusCode};

use super::layout::{MessagePage, NextPath, PageRefusal, page_with, see_other};
use super::{with_cookie, with_next};
use crate::app::App;
use crate::http_api::extract::{ClientIp, Query};
use crate::people::cookie::Cookie;
use crate::people::openid::account_link::SignInError;
use crate::people::openid::flow::{self, Callback, FlowError};
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
    pub(super) fn anew(app: &'a App, next: &str) -> Option<Self> {
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
    match flow::begin(&app, provider, next.as_str(), anew, ip).await {
        Ok(begun) => Ok(with_cookie(see_other(&begun.location), &begun.set_cookie)),
        Err(error) => failure_page(&app, provider, error),
    }
}

/// Handles the callback from the provider.
pub(super) async fn callback(
    State(app): State<Arc<App>>,
    browser: Browser,
    headers: HeaderMap,
    query: Query,
) -> Result<Response, PageRefusal> {
    let provider = require_provider(&app)?;
    let cookie = Cookie::sign_in(&app.config.base_url);
    let secret = cookie_of(cookie, &headers);
    let callback = Callback::from(query);
    match flow::complete(&app, provider, callback, secret, &browser).await {
        Ok(arrived) => {
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
                "The account with your address belongs to another user of {name}. Contact the \
                 operator of this platform."
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

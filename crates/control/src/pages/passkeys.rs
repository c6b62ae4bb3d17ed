//! Passkey pages: signing in with one, adding one, removing one.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use http::header::CACHE_CONTROL;
use http::{HeaderMap, StatusCode};
use serde_json::Value;
use types::id::PasskeyId;
use webauthn::Registration;

use super::confirm::{AccountOwner, require_recent_authentication};
use super::form::Form;
use super::layout::{PageRefusal, script_page, see_other};
use super::login::{self, LoginPage};
use super::next_path::NextPath;
use super::second_factor::{self, CodesPage};
use super::{second_factor_pending, signed_in, with_cookie, with_next};
use crate::app::App;
use crate::http_api::extract::{ClientIp, Path};
use crate::people::challenge::{LIFETIME, Purpose};
use crate::people::cookie::Cookie;
use crate::people::passkeys::{self, Outcome, PasskeyResponse};
use crate::people::second_factor::recovery::RecoveryCode;
use crate::people::secret_link::LinkSecret;
use crate::people::session::{Browser, Visitor, cookie_of};

#[derive(Template)]
#[template(path = "add_passkey.html")]
struct AddPage<'a> {
    name: &'a str,
    error: Option<&'a str>,
}

/// Passkey options for the sign-in page. The challenge is bound to a cookie, because there is no
/// session yet. The form is extracted so that a request that is not a form is refused.
pub(super) async fn sign_in_options(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    _form: Form,
) -> Result<Response, PageRefusal> {
    let cookie = Cookie::passkey(&app.config.base_url);
    let browser_secret = match cookie_of(cookie, &headers) {
        Some(secret) => secret,
        None => LinkSecret::draw()?,
    };
    let binding = browser_secret.hash();
    let options = passkeys::request(&app, Purpose::SignIn, &binding, None).await?;
    let seconds = u32::try_from(LIFETIME.as_secs()).unwrap_or(u32::MAX);
    let set_cookie = cookie.set(&browser_secret, seconds);
    Ok(with_cookie(json(&options), &set_cookie))
}

/// Signs in.
pub(super) async fn sign_in(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    browser: Browser,
    mut form: Form,
) -> Result<Response, PageRefusal> {
    let next = NextPath::parse(&form.text("next"));
    let browser_secret = cookie_of(Cookie::passkey(&app.config.base_url), &headers);
    let Some(browser_secret) = browser_secret else {
        return Ok(see_other(&with_next("/login", next.as_str())));
    };
    match passkeys::sign_in(
        &app,
        &passkey_response(&mut form),
        &browser_secret.hash(),
        &browser,
    )
    .await
    {
        Ok(started) => Ok(with_cookie(see_other(next.as_str()), &started.set_cookie)),
        Err(error) => {
            let destination = login::destination(&app, next.as_str()).await;
            login::refusal(error, PASSKEY_NOT_ACCEPTED, |text| {
                LoginPage::new(&app, next.as_str(), destination).after_passkey(text)
            })
        }
    }
}

/// Passkey options for the page of the second factor.
pub(super) async fn second_factor_options(
    State(app): State<Arc<App>>,
    visitor: Visitor,
    _form: Form,
) -> Result<Response, PageRefusal> {
    let Visitor::SecondFactorPending(who) = visitor else {
        return Err(PageRefusal::SeeOther("/login".to_owned()));
    };
    let binding = who.id.to_string();
    let purpose = Purpose::SecondFactor;
    let options = passkeys::request(&app, purpose, binding.as_bytes(), Some(who.user.id)).await?;
    Ok(json(&options))
}

/// Completes a sign-in with a passkey as second factor.
pub(super) async fn complete_second_factor(
    State(app): State<Arc<App>>,
    ClientIp(ip): ClientIp,
    visitor: Visitor,
    mut form: Form,
) -> Result<Response, PageRefusal> {
    let next = NextPath::parse(&form.text("next"));
    let who = second_factor_pending(visitor, &next)?;
    match passkeys::second_factor(&app, &who, &passkey_response(&mut form), ip).await {
        Ok(cookie) => Ok(with_cookie(see_other(next.as_str()), &cookie)),
        Err(error) => {
            let mut retry_page = second_factor::step_page(&app, &who, next.as_str()).await?;
            login::refusal(error, PASSKEY_NOT_ACCEPTED, |text| {
                retry_page.passkey_error = Some(text);
                retry_page
            })
        }
    }
}

/// Shows the page that creates a passkey.
pub(super) async fn show_new(
    State(app): State<Arc<App>>,
    visitor: Visitor,
) -> Result<Response, PageRefusal> {
    require_recent_authentication(&app, signed_in(visitor, NEW_PATH)?, NEW_PATH)?;
    let page = AddPage {
        name: "",
        error: None,
    };
    Ok(script_page(StatusCode::OK, &page))
}

/// Options for creating a passkey.
pub(super) async fn creation_options(
    State(app): State<Arc<App>>,
    visitor: Visitor,
    _form: Form,
) -> Result<Response, PageRefusal> {
    let who = require_recent_authentication(&app, signed_in(visitor, NEW_PATH)?, NEW_PATH)?;
    Ok(json(&passkeys::creation(&app, &who).await?))
}

/// Stores the created passkey.
pub(super) async fn create(
    State(app): State<Arc<App>>,
    ClientIp(ip): ClientIp,
    visitor: Visitor,
    mut form: Form,
) -> Result<Response, PageRefusal> {
    let who = require_recent_authentication(&app, signed_in(visitor, NEW_PATH)?, NEW_PATH)?;
    let name = form.text("name");
    let (client_data, attestation) = (
        bytes(&form.text("clientData")),
        bytes(&form.text("attestation")),
    );
    let registration = Registration {
        client_data: &client_data,
        attestation: &attestation,
    };
    let error = match passkeys::register(&app, &who, &name, registration, ip).await {
        Ok(Outcome::Added(None)) => return Ok(see_other("/account?done=passkey")),
        Ok(Outcome::Added(Some(codes))) => {
            let codes = codes.iter().map(RecoveryCode::reveal).collect();
            return Ok(super::layout::page(&CodesPage { codes }));
        }
        Ok(Outcome::Refused(error)) => error.to_owned(),
        Err(refusal) if refusal.problem().status == 400 => refusal.problem().detail.to_string(),
        Err(refusal) => return Err(refusal.into()),
    };
    let retry_page = AddPage {
        name: &name,
        error: Some(&error),
    };
    Ok(script_page(StatusCode::UNPROCESSABLE_ENTITY, &retry_page))
}

/// Removes a passkey.
pub(super) async fn remove(
    State(app): State<Arc<App>>,
    AccountOwner { who, ip }: AccountOwner,
    Path(passkey): Path<String>,
    _form: Form,
) -> Result<Response, PageRefusal> {
    if let Ok(passkey) = passkey.parse::<PasskeyId>() {
        passkeys::remove(&app, &who, passkey, ip).await?;
    }
    Ok(see_other("/account?done=passkey-off"))
}

/// The fields that the script adds. A field with an invalid encoding becomes empty, and its
/// verification fails.
pub(super) fn passkey_response(form: &mut Form) -> PasskeyResponse {
    let mut field = |name: &str| bytes(&form.text(name));
    PasskeyResponse {
        credential_id: field("credentialId"),
        client_data: field("clientData"),
        authenticator_data: field("authenticatorData"),
        signature: field("signature"),
        user_handle: field("userHandle"),
    }
}

pub(super) fn json(options: &Value) -> Response {
    ([(CACHE_CONTROL, "no-store")], axum::Json(options)).into_response()
}

fn bytes(text: &str) -> Vec<u8> {
    BASE64_URL_SAFE_NO_PAD.decode(text).unwrap_or_default()
}

/// Message for a refused passkey.
pub(super) const PASSKEY_NOT_ACCEPTED: &str =
    "That passkey was not accepted. Try again, or use another way to sign in.";

const NEW_PATH: &str = "/account/passkeys/new";

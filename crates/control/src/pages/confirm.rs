//! Reauthentication page, shown before a change of sign-in settings.

use std::net::IpAddr;
use std::sync::Arc;

use askama::Template;
use axum::extract::{FromRequestParts, State};
use axum::response::Response;
use http::StatusCode;
use http::request::Parts;

use super::form::Form;
use super::layout::{PageRefusal, script_page, see_other};
use super::login::{WRONG, refusal};
use super::next_path::NextPath;
use super::openid::Button;
use super::passkeys::{PASSKEY_NOT_ACCEPTED, json, passkey_response};
use super::{signed_in, with_next};
use crate::app::App;
use crate::http_api::extract::{ClientIp, Query};
use crate::http_api::problem::HandlerResult;
use crate::people::challenge::Purpose;
use crate::people::confirm::{with_code, with_password};
use crate::people::passkeys;
use crate::people::session::{SignedIn, Visitor};

#[derive(Template)]
#[template(path = "confirm.html")]
struct ConfirmPage<'a> {
    next: &'a str,
    email: &'a str,
    has_password: bool,
    has_codes: bool,
    has_passkeys: bool,
    /// The provider, for users who sign in with it.
    openid: Option<Button<'a>>,
    password_error: Option<&'a str>,
    code_error: Option<&'a str>,
    passkey_error: Option<&'a str>,
}

/// The user of a form on the account page, and the address of the request. The last authentication
/// of the user is recent.
#[derive(Debug)]
pub(super) struct AccountOwner {
    pub(super) who: SignedIn,
    pub(super) ip: IpAddr,
}

impl FromRequestParts<Arc<App>> for AccountOwner {
    type Rejection = PageRefusal;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, PageRefusal> {
        let ClientIp(ip) = ClientIp::from_request_parts(parts, app).await?;
        let visitor = Visitor::from_request_parts(parts, app).await?;
        let who = signed_in(visitor, "/account")?;
        let who = require_recent_authentication(app, who, "/account")?;
        Ok(Self { who, ip })
    }
}

/// The user, if the last authentication is recent. Otherwise a redirect to the page that
/// authenticates again and then returns to `path`.
pub(super) fn require_recent_authentication(
    app: &App,
    who: SignedIn,
    path: &str,
) -> Result<SignedIn, PageRefusal> {
    if who.is_recently_authenticated(app.now()) {
        return Ok(who);
    }
    Err(PageRefusal::SeeOther(with_next("/account/confirm", path)))
}

pub(super) async fn show(
    State(app): State<Arc<App>>,
    visitor: Visitor,
    mut query: Query,
) -> Result<Response, PageRefusal> {
    let next = NextPath::parse_or(&query.text("next").unwrap_or_default(), ACCOUNT);
    let who = signed_in(visitor, next.as_str())?;
    Ok(script_page(
        StatusCode::OK,
        &confirm_page(&app, &who, &next).await?,
    ))
}

/// Handles a submitted password or code.
pub(super) async fn submit(
    State(app): State<Arc<App>>,
    ClientIp(ip): ClientIp,
    visitor: Visitor,
    mut form: Form,
) -> Result<Response, PageRefusal> {
    let next = NextPath::parse_or(&form.text("next"), ACCOUNT);
    let who = signed_in(visitor, next.as_str())?;
    let (password, code) = (form.text("password"), form.text("code"));
    let is_code = !code.is_empty();
    let confirmed = if is_code {
        with_code(&app, &who, &code, ip).await
    } else {
        with_password(&app, &who, &password).await
    };
    let Err(error) = confirmed else {
        return Ok(see_other(next.as_str()));
    };
    let mut retry_page = confirm_page(&app, &who, &next).await?;
    refusal(error, WRONG, |text| {
        let place = if is_code {
            &mut retry_page.code_error
        } else {
            &mut retry_page.password_error
        };
        *place = Some(text);
        retry_page
    })
}

/// Options for the browser's passkey API.
pub(super) async fn options(
    State(app): State<Arc<App>>,
    visitor: Visitor,
    _form: Form,
) -> Result<Response, PageRefusal> {
    let who = signed_in(visitor, "/account")?;
    let binding = who.session.id.to_string();
    let user = Some(who.user.id);
    let options = passkeys::request(&app, Purpose::Confirm, binding.as_bytes(), user).await?;
    Ok(json(&options))
}

/// Handles a passkey response.
pub(super) async fn passkey(
    State(app): State<Arc<App>>,
    visitor: Visitor,
    mut form: Form,
) -> Result<Response, PageRefusal> {
    let next = NextPath::parse_or(&form.text("next"), ACCOUNT);
    let who = signed_in(visitor, next.as_str())?;
    let Err(error) = passkeys::confirm(&app, &who, &passkey_response(&mut form)).await else {
        return Ok(see_other(next.as_str()));
    };
    let mut retry_page = confirm_page(&app, &who, &next).await?;
    refusal(error, PASSKEY_NOT_ACCEPTED, |text| {
        retry_page.passkey_error = Some(text);
        retry_page
    })
}

async fn confirm_page<'a>(
    app: &'a App,
    who: &'a SignedIn,
    next: &'a NextPath,
) -> HandlerResult<ConfirmPage<'a>> {
    let mut read = app.store.read().await?;
    let count = store::passkeys::count(&mut read, who.user.id).await?;
    let identities = store::users::identities(&mut read, who.user.id).await?;
    drop(read);
    let openid = Button::reauthentication(app, next.as_str()).filter(|_| !identities.is_empty());
    Ok(ConfirmPage {
        next: next.as_str(),
        email: &who.user.email,
        has_password: who.user.password_hash.is_some(),
        has_codes: who.user.totp_confirmed_at.is_some(),
        has_passkeys: count > 0 && passkeys::is_possible(app),
        openid,
        password_error: None,
        code_error: None,
        passkey_error: None,
    })
}

/// The page to continue at if none is given.
const ACCOUNT: &str = "/account";

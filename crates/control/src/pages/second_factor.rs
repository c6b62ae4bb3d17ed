//! Pages of the second factor: the step at sign-in, and setup and removal of the authenticator app.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use http::StatusCode;

use super::confirm::AccountOwner;
use super::form::Form;
use super::layout::{PageRefusal, page, page_with, script_page, see_other};
use super::login::{WRONG, refusal};
use super::next_path::NextPath;
use super::qr::Qr;
use super::{second_factor_pending, with_cookie};
use crate::app::App;
use crate::http_api::extract::{ClientIp, Query};
use crate::http_api::problem::HandlerResult;
use crate::people::passkeys;
use crate::people::second_factor::recovery::RecoveryCode;
use crate::people::second_factor::totp::TotpSecret;
use crate::people::second_factor::{self, ConfirmationOutcome, secret_of};
use crate::people::session::{PendingSignIn, SignedIn, Visitor};
use crate::people::sign_in::with_second_factor;

#[derive(Template)]
#[template(path = "second_factor.html")]
pub(super) struct StepPage<'a> {
    next: &'a str,
    has_codes: bool,
    has_passkeys: bool,
    error: Option<&'a str>,
    pub(super) passkey_error: Option<&'a str>,
}

#[derive(Template)]
#[template(path = "enrol_factor.html")]
struct EnrolPage<'a> {
    qr: Option<Qr>,
    uri: String,
    key: String,
    error: Option<&'a str>,
}

#[derive(Template)]
#[template(path = "recovery_codes.html")]
pub(super) struct CodesPage {
    pub(super) codes: Vec<String>,
}

/// Shows the step at sign-in.
pub(super) async fn show(
    State(app): State<Arc<App>>,
    visitor: Visitor,
    mut query: Query,
) -> Result<Response, PageRefusal> {
    let next = NextPath::parse(&query.text("next").unwrap_or_default());
    let who = second_factor_pending(visitor, &next)?;
    let step = step_page(&app, &who, next.as_str()).await?;
    Ok(script_page(StatusCode::OK, &step))
}

/// Handles the submitted code.
pub(super) async fn submit(
    State(app): State<Arc<App>>,
    ClientIp(ip): ClientIp,
    visitor: Visitor,
    mut form: Form,
) -> Result<Response, PageRefusal> {
    let next = NextPath::parse(&form.text("next"));
    let who = second_factor_pending(visitor, &next)?;
    match with_second_factor(&app, &who, &form.text("code"), ip).await {
        Ok(cookie) => Ok(with_cookie(see_other(next.as_str()), &cookie)),
        Err(error) => {
            let mut retry_page = step_page(&app, &who, next.as_str()).await?;
            refusal(error, WRONG, |text| {
                retry_page.error = Some(text);
                retry_page
            })
        }
    }
}

/// Draws a new secret and shows it.
pub(super) async fn set_up(
    State(app): State<Arc<App>>,
    AccountOwner { who, .. }: AccountOwner,
    _form: Form,
) -> Result<Response, PageRefusal> {
    let secret = second_factor::set_up(&app, &who).await?;
    Ok(page(&enrol_page(&app, &who, &secret, None)))
}

/// Activates the authenticator app with a first code, and shows the recovery codes.
pub(super) async fn confirm(
    State(app): State<Arc<App>>,
    // A secret that was shown and not confirmed is kept. Without a recent authentication, an
    // attacker at an unattended browser could guess its code and would see the recovery codes.
    AccountOwner { who, ip }: AccountOwner,
    mut form: Form,
) -> Result<Response, PageRefusal> {
    match second_factor::confirm(&app, &who, &form.text("code"), ip).await? {
        ConfirmationOutcome::Active(Some(codes)) => {
            let codes = codes.iter().map(RecoveryCode::reveal).collect();
            return Ok(page(&CodesPage { codes }));
        }
        ConfirmationOutcome::Active(None) => {
            return Ok(see_other("/account?done=second-factor-on"));
        }
        ConfirmationOutcome::Rejected => {}
    }
    // The app was set up in another window, or never. There is nothing to confirm.
    let secret = secret_of(&app, &who.user)?.filter(|_| who.user.totp_confirmed_at.is_none());
    Ok(match secret {
        Some(secret) => {
            let error = "That is not the code. Wait for the next one and try again.";
            let retry_page = enrol_page(&app, &who, &secret, Some(error));
            page_with(StatusCode::UNPROCESSABLE_ENTITY, &retry_page)
        }
        None => see_other("/account"),
    })
}

/// Removes the authenticator app.
pub(super) async fn remove(
    State(app): State<Arc<App>>,
    AccountOwner { who, ip }: AccountOwner,
    _form: Form,
) -> Result<Response, PageRefusal> {
    second_factor::remove(&app, &who, ip).await?;
    Ok(see_other("/account?done=second-factor-off"))
}

/// The step at sign-in, for a user whose second factor is pending.
pub(super) async fn step_page<'a>(
    app: &App,
    who: &PendingSignIn,
    next: &'a str,
) -> HandlerResult<StepPage<'a>> {
    let count = store::passkeys::count(&mut *app.store.read().await?, who.user.id).await?;
    Ok(StepPage {
        next,
        has_codes: who.user.totp_confirmed_at.is_some(),
        has_passkeys: count > 0 && passkeys::is_possible(app),
        error: None,
        passkey_error: None,
    })
}

fn enrol_page<'a>(
    app: &App,
    who: &SignedIn,
    secret: &TotpSecret,
    error: Option<&'a str>,
) -> EnrolPage<'a> {
    let address = &app.config.base_url;
    let host = address
        .split_once("//")
        .map_or(address.as_str(), |(_, host)| host);
    let key = secret.base32();
    let groups: Vec<&str> = key
        .as_bytes()
        .chunks(4)
        .filter_map(|group| std::str::from_utf8(group).ok())
        .collect();
    let uri = secret.uri(host, &who.user.email);
    EnrolPage {
        qr: Qr::of(&uri),
        uri,
        key: groups.join(" "),
        error,
    }
}

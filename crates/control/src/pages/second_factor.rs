//! The second factor: the step at sign-in, setting it up, turning it off.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use http::StatusCode;

use super::account;
use super::form::Form;
use super::layout::{NextPath, PageRefusal, page, page_with, see_other};
use super::login::refusal;
use super::{signed_in, with_cookie, with_next};
use crate::app::App;
use crate::extract::{ClientIp, Query};
use crate::people::accounts::prove;
use crate::people::recovery::RecoveryCode;
use crate::people::second_factor::{self, secret_of};
use crate::people::session::{SignedIn, Visitor};
use crate::people::sign_in::with_second_factor;
use crate::people::totp::TotpSecret;

#[derive(Template)]
#[template(path = "second_factor.html")]
struct StepPage<'a> {
    next: &'a str,
    error: Option<&'a str>,
}

#[derive(Template)]
#[template(path = "enrol_factor.html")]
struct EnrolPage<'a> {
    uri: String,
    key: String,
    error: Option<&'a str>,
}

#[derive(Template)]
#[template(path = "recovery_codes.html")]
struct CodesPage {
    codes: Vec<String>,
}

/// The step at sign-in.
pub(super) async fn show(visitor: Visitor, mut query: Query) -> Response {
    let next = NextPath::parse(&query.text("next").unwrap_or_default());
    match visitor {
        Visitor::HalfWay(_) => page(&StepPage {
            next: next.as_str(),
            error: None,
        }),
        Visitor::SignedIn(_) => see_other(next.as_str()),
        Visitor::Nobody => see_other(&with_next("/login", next.as_str())),
    }
}

/// The code as it was sent.
pub(super) async fn submit(
    State(app): State<Arc<App>>,
    ClientIp(ip): ClientIp,
    visitor: Visitor,
    mut form: Form,
) -> Result<Response, PageRefusal> {
    let next = NextPath::parse(&form.text("next"));
    let who = match visitor {
        Visitor::HalfWay(who) => who,
        Visitor::SignedIn(_) => return Ok(see_other(next.as_str())),
        Visitor::Nobody => return Ok(see_other(&with_next("/login", next.as_str()))),
    };
    match with_second_factor(&app, &who, &form.text("code"), ip).await {
        Ok(cookie) => Ok(with_cookie(see_other(next.as_str()), &cookie)),
        Err(error) => refusal(error, |text| StepPage {
            next: next.as_str(),
            error: Some(text),
        }),
    }
}

/// Draws a new secret and shows it.
pub(super) async fn set_up(
    State(app): State<Arc<App>>,
    visitor: Visitor,
    _form: Form,
) -> Result<Response, PageRefusal> {
    let who = signed_in(visitor, "/account")?;
    let secret = second_factor::set_up(&app, &who).await?;
    Ok(page(&enrol_page(&app, &who, &secret, None)))
}

/// A first code: puts the second factor in force, and shows the recovery codes.
pub(super) async fn confirm(
    State(app): State<Arc<App>>,
    visitor: Visitor,
    mut form: Form,
) -> Result<Response, PageRefusal> {
    let who = signed_in(visitor, "/account")?;
    if let Some(codes) = second_factor::confirm(&app, &who, &form.text("code")).await? {
        let codes = codes.iter().map(RecoveryCode::reveal).collect();
        return Ok(page(&CodesPage { codes }));
    }
    // Set up in another window, or never: there is nothing to confirm here.
    let secret = secret_of(&app, &who.user)?.filter(|_| who.user.totp_confirmed_at.is_none());
    Ok(match secret {
        Some(secret) => {
            let error = "That is not the code. Wait for the next one and try again.";
            let again = enrol_page(&app, &who, &secret, Some(error));
            page_with(StatusCode::UNPROCESSABLE_ENTITY, &again)
        }
        None => see_other("/account"),
    })
}

/// Turns the second factor off, for who proves to be the person.
pub(super) async fn remove(
    State(app): State<Arc<App>>,
    visitor: Visitor,
    mut form: Form,
) -> Result<Response, PageRefusal> {
    let who = signed_in(visitor, "/account")?;
    if let Err(error) = prove(&app, &who, &form.text("password")).await {
        return account::again(&app, &who, error).await;
    }
    second_factor::remove(&app, &who).await?;
    Ok(see_other("/account?done=second-factor-off"))
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
    EnrolPage {
        uri: secret.uri(host, &who.user.email),
        key: groups.join(" "),
        error,
    }
}

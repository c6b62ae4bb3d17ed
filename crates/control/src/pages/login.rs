//! Signing in and out.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderValue, StatusCode};
use store::SecretHash;

use super::form::Form;
use super::layout::{NextPath, PageRefusal, page, page_with, see_other};
use super::openid::Button;
use super::{with_cookie, with_next};
use crate::app::App;
use crate::audit::{self, Action, Actor, Target};
use crate::extract::Query;
use crate::people::cookie::Cookie;
use crate::people::session::{Browser, Visitor, cookie};
use crate::people::sign_in::{SignInError, with_password};

#[derive(Template)]
#[template(path = "login.html")]
struct LoginPage<'a> {
    next: &'a str,
    email: &'a str,
    error: Option<&'a str>,
    note: Option<&'a str>,
    openid: Option<Button<'a>>,
}

/// The form. Who is signed in already goes on.
pub(super) async fn show(
    State(app): State<Arc<App>>,
    visitor: Visitor,
    mut query: Query,
) -> Response {
    let next = NextPath::parse(&query.text("next").unwrap_or_default());
    if let Visitor::SignedIn(_) = visitor {
        return see_other(next.as_str());
    }
    let note =
        (query.text("reset").is_some()).then_some("Your new password is set. Sign in with it.");
    page(&LoginPage {
        next: next.as_str(),
        email: "",
        error: None,
        note,
        openid: Button::new(&app, next.as_str()),
    })
}

/// The form as it was sent. Wrong addresses and wrong passwords look the same.
pub(super) async fn submit(
    State(app): State<Arc<App>>,
    browser: Browser,
    mut form: Form,
) -> Result<Response, PageRefusal> {
    let next = NextPath::parse(&form.text("next"));
    let (email, password) = (form.text("email"), form.text("password"));
    match with_password(&app, &email, &password, &browser).await {
        Ok(begun) => {
            let on = if begun.is_half_way {
                with_next("/login/second-factor", next.as_str())
            } else {
                next.as_str().to_owned()
            };
            Ok(with_cookie(see_other(&on), &begun.set_cookie))
        }
        Err(error) => refusal(error, |text| LoginPage {
            next: next.as_str(),
            email: &email,
            error: Some(text),
            note: None,
            openid: Button::new(&app, next.as_str()),
        }),
    }
}

/// Ends the session, whatever state it is in.
pub(super) async fn sign_out(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    visitor: Visitor,
    _form: Form,
) -> Result<Response, PageRefusal> {
    if let Some(secret) = cookie(&app, &headers) {
        let now = app.now();
        let mut tx = app.store.begin().await?;
        store::sessions::end(&mut tx, SecretHash(secret.hash())).await?;
        if let Visitor::SignedIn(who) = visitor {
            let actor = Actor::person(who.user.id);
            let target = Target::User(who.user.id);
            audit::record(&mut tx, &actor, None, Action::SignedOut, target, now).await?;
        }
        tx.commit().await?;
    }
    let cleared = Cookie::session(&app.config.base_url).clear();
    Ok(with_cookie(see_other("/login"), &cleared))
}

/// The page again, with what went wrong: 401 for a wrong proof, 429 for too many. A 401 of a page
/// has no challenge: there is no scheme by which a browser could answer it.
pub(super) fn refusal<'a, T: Template>(
    error: SignInError,
    again: impl FnOnce(&'a str) -> T,
) -> Result<Response, PageRefusal> {
    match error {
        SignInError::Wrong => Ok(page_with(
            StatusCode::UNAUTHORIZED,
            &again("That is not right. Look at what you typed and try again."),
        )),
        SignInError::TooSoon(seconds) => {
            let text = "Too many attempts. Wait a little and try again.";
            let mut response = page_with(StatusCode::TOO_MANY_REQUESTS, &again(text));
            response
                .headers_mut()
                .insert(RETRY_AFTER, HeaderValue::from(seconds));
            Ok(response)
        }
        SignInError::Failed(refusal) => Err(refusal.into()),
    }
}

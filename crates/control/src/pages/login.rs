//! Sign-in and sign-out pages.

use std::sync::Arc;

use api::link::SIGN_IN;
use askama::Template;
use axum::extract::State;
use axum::response::Response;
use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderValue, StatusCode};
use store::SecretHash;

use super::form::Form;
use super::layout::{PageRefusal, script_page, see_other};
use super::next_path::NextPath;
use super::openid::{self, Button};
use super::{with_cookie, with_next};
use crate::app::App;
use crate::audit::{self, Action, Actor, AuditTarget};
use crate::http_api::extract::Query;
use crate::people::cookie::Cookie;
use crate::people::passkeys;
use crate::people::session::{Browser, Visitor, cookie};
use crate::people::sign_in::{SignInError, with_password};
use crate::projects::TunnelHost;

#[derive(Template)]
#[template(path = "login.html")]
pub(super) struct LoginPage<'a> {
    next: &'a str,
    /// The tunnel that the user is going to.
    destination: Option<String>,
    email: &'a str,
    error: Option<&'a str>,
    note: Option<&'a str>,
    openid: Option<Button<'a>>,
    has_passkeys: bool,
    passkey_error: Option<&'a str>,
}

impl<'a> LoginPage<'a> {
    /// The initial form. `destination` is the result of [`destination`].
    pub(super) fn new(app: &'a App, next: &'a str, destination: Option<String>) -> Self {
        Self {
            next,
            destination,
            email: "",
            error: None,
            note: None,
            openid: Button::new(app, next),
            has_passkeys: passkeys::is_possible(app),
            passkey_error: None,
        }
    }

    /// The form after a refused passkey.
    pub(super) fn after_passkey(self, error: &'a str) -> Self {
        Self {
            passkey_error: Some(error),
            ..self
        }
    }
}

/// Shows the form. A user who is already signed in is redirected.
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
    let destination = destination(&app, next.as_str()).await;
    let login = LoginPage {
        note,
        ..LoginPage::new(&app, next.as_str(), destination)
    };
    script_page(StatusCode::OK, &login)
}

/// Handles the form. Wrong addresses and wrong passwords get the same response.
pub(super) async fn submit(
    State(app): State<Arc<App>>,
    browser: Browser,
    mut form: Form,
) -> Result<Response, PageRefusal> {
    let next = NextPath::parse(&form.text("next"));
    let (email, password) = (form.text("email"), form.text("password"));
    match with_password(&app, &email, &password, &browser).await {
        Ok(started) => {
            let on = if started.is_second_factor_pending {
                with_next("/login/second-factor", next.as_str())
            } else {
                next.as_str().to_owned()
            };
            Ok(with_cookie(see_other(&on), &started.set_cookie))
        }
        Err(error) => {
            let destination = destination(&app, next.as_str()).await;
            refusal(error, WRONG, |text| LoginPage {
                email: &email,
                error: Some(text),
                ..LoginPage::new(&app, next.as_str(), destination)
            })
        }
    }
}

/// Ends the session, also a pending one.
pub(super) async fn sign_out(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    visitor: Visitor,
    mut form: Form,
) -> Result<Response, PageRefusal> {
    let mut of_provider = None;
    if let Some(secret) = cookie(&app, &headers) {
        let now = app.now();
        let hash = SecretHash(secret.hash());
        let mut tx = app.store.begin().await?;
        of_provider = store::sessions::provider(&mut tx, hash).await?;
        store::sessions::end(&mut tx, hash, now).await?;
        if let Visitor::SignedIn(who) = visitor {
            let actor = Actor::user(who.user.id);
            let target = AuditTarget::User(who.user.id);
            audit::record(&mut tx, &actor, None, Action::SignedOut, target, now).await?;
        }
        tx.commit().await?;
    }
    let cleared = Cookie::session(&app.config.base_url).clear();
    // A user who chooses another account continues at the same address.
    let next = form.text("next");
    let next = (!next.is_empty()).then(|| NextPath::parse(&next));
    let next = next.as_ref().map(NextPath::as_str);
    if let Some(page) = openid::sign_out_page(&app, of_provider.as_ref(), next).await {
        return Ok(with_cookie(page, &cleared));
    }
    let login = match next {
        Some(next) => with_next("/login", next),
        None => "/login".to_owned(),
    };
    Ok(with_cookie(see_other(&login), &cleared))
}

/// The host of the tunnel to which the path leads. Anyone can write a host into a link to the sign-in
/// page. So it is shown only if it is one of a cluster, or a custom domain of a project.
pub(super) async fn destination(app: &App, next: &str) -> Option<String> {
    let query = next.strip_prefix(SIGN_IN)?.strip_prefix('?')?;
    let authority = types::form::Form::parse(query).ok()?.take("host")?;
    let host = match TunnelHost::parse(&authority) {
        Some(host) => host,
        // Without the database the form is shown without the name.
        None => TunnelHost::at_custom_domain(app, &authority).await.ok()??,
    };
    host.is_in_cluster(app).then_some(authority)
}

/// Shows the page again with an error: 401 and the text `wrong` for wrong credentials, 429 for too
/// many attempts. The 401 has no challenge header, because there is no scheme that a browser could
/// use.
pub(super) fn refusal<'a, T: Template>(
    error: SignInError,
    wrong: &'a str,
    page_with_error: impl FnOnce(&'a str) -> T,
) -> Result<Response, PageRefusal> {
    match error {
        SignInError::Wrong => Ok(script_page(
            StatusCode::UNAUTHORIZED,
            &page_with_error(wrong),
        )),
        SignInError::TooSoon(seconds) => {
            let text = "Too many attempts. Wait a little and try again.";
            let mut response = script_page(StatusCode::TOO_MANY_REQUESTS, &page_with_error(text));
            response
                .headers_mut()
                .insert(RETRY_AFTER, HeaderValue::from(seconds));
            Ok(response)
        }
        SignInError::Failed(refusal) => Err(refusal.into()),
    }
}

/// Message for a wrong password or code.
pub(super) const WRONG: &str = "The email address, password or code is wrong. Check it and try \
    again.";

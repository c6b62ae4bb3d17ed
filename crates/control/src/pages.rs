//! The web pages. They are plain forms that work without scripts. Only passkeys, terminals and the
//! dashboard need some.
//!
//! Each file is a page with its forms. A handler takes the visitor ([`Visitor`]) and the form
//! ([`form::Form`]). [`same_origin::require`] refuses forms of other sites. The handler calls a
//! service function of `people` or `workspaces`, and responds with a page or a redirect.

mod account;
mod confirm;
mod dashboard;
mod email;
pub mod form;
mod invitation;
pub mod layout;
mod login;
pub mod next_path;
pub mod not_found;
mod openid;
mod passkeys;
mod qr;
mod reset;
pub mod same_origin;
mod scripts;
mod second_factor;
mod terminal_files;
mod terminals;

use std::sync::Arc;

use axum::Router;
use axum::response::Response;
use axum::routing::{get, post};
use http::HeaderValue;
use http::header::SET_COOKIE;

use self::layout::PageRefusal;
use self::next_path::NextPath;
use crate::app::App;
use crate::people::openid::logout::{BACK_CHANNEL_LOGOUT, SIGNED_OUT};
use crate::people::session::{PendingSignIn, SignedIn, Visitor};

/// The routes of this module.
pub fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/login", get(login::show).post(login::submit))
        .route(
            "/login/second-factor",
            get(second_factor::show).post(second_factor::submit),
        )
        .route(
            "/login/second-factor/passkey",
            post(passkeys::complete_second_factor),
        )
        .route(
            "/login/second-factor/passkey/options",
            post(passkeys::second_factor_options),
        )
        .route("/login/passkey", post(passkeys::sign_in))
        .route("/login/passkey/options", post(passkeys::sign_in_options))
        .route("/passkeys.js", get(scripts::passkeys))
        .route("/fragment.js", get(scripts::fragment))
        .route("/favicon.ico", get(not_found::icon))
        .route("/logout", post(login::sign_out))
        .route("/reset", get(reset::show).post(reset::submit))
        .route(
            "/reset/{secret}",
            get(reset::show_new).post(reset::submit_new),
        )
        .route(
            "/invitations/{secret}",
            get(invitation::show).post(invitation::accept),
        )
        .route("/projects/{project_id}/terminals", get(terminals::list))
        .route(
            "/projects/{project_id}/terminals/{server}",
            get(terminals::open),
        )
        .route(
            "/projects/{project_id}/sessions/{session}",
            get(terminals::watch),
        )
        .route(
            "/projects/{project_id}/sessions/{session}/replay",
            get(terminals::replay),
        )
        .route("/terminal/{file}", get(terminal_files::serve))
        .route("/account", get(account::show))
        .route("/account/name", post(account::change_name))
        .route("/account/email", post(account::change_email))
        .route("/account/email/confirm", post(account::confirm_email))
        .route(
            "/account/email/{secret}",
            get(email::show).post(email::submit),
        )
        .route("/account/sessions/end", post(account::end_sessions))
        .route("/account/password", post(account::change_password))
        .route(
            "/account/sessions/{session_id}/end",
            post(account::end_session),
        )
        .route("/account/confirm", get(confirm::show).post(confirm::submit))
        .route("/account/confirm/passkey", post(confirm::passkey))
        .route("/account/confirm/passkey/options", post(confirm::options))
        .route("/account/passkeys", post(passkeys::create))
        .route("/account/passkeys/new", get(passkeys::show_new))
        .route(
            "/account/passkeys/options",
            post(passkeys::creation_options),
        )
        .route(
            "/account/passkeys/{passkey_id}/remove",
            post(passkeys::remove),
        )
        .route("/account/second-factor", post(second_factor::set_up))
        .route(
            "/account/second-factor/confirm",
            post(second_factor::confirm),
        )
        .route("/account/second-factor/remove", post(second_factor::remove))
        .merge(dashboard::routes())
        .merge(openid_routes())
}

/// The pages about the OpenID provider.
fn openid_routes() -> Router<Arc<App>> {
    Router::new()
        .route("/login/openid", get(openid::begin))
        .route("/login/openid/callback", get(openid::callback))
        .route(SIGNED_OUT, get(openid::signed_out))
        .route(BACK_CHANNEL_LOGOUT, post(openid::back_channel_logout))
        .route("/account/openid/link", post(openid::link))
        .route("/account/openid/unlink", post(openid::unlink))
}

/// The signed-in user, or a redirect to the sign-in page that returns to `path`.
pub(crate) fn signed_in(visitor: Visitor, path: &str) -> Result<SignedIn, PageRefusal> {
    let first = match visitor {
        Visitor::SignedIn(who) => return Ok(who),
        Visitor::SecondFactorPending(_) => "/login/second-factor",
        Visitor::Anonymous => "/login",
    };
    Err(PageRefusal::SeeOther(with_next(first, path)))
}

/// The visitor whose second factor is required, or a redirect: to `next` for a signed-in user,
/// else to the sign-in page.
fn second_factor_pending(visitor: Visitor, next: &NextPath) -> Result<PendingSignIn, PageRefusal> {
    let address = match visitor {
        Visitor::SecondFactorPending(who) => return Ok(who),
        Visitor::SignedIn(_) => next.as_str().to_owned(),
        Visitor::Anonymous => with_next("/login", next.as_str()),
    };
    Err(PageRefusal::SeeOther(address))
}

/// Adds the path to continue at to the address of `page`. It is a path of the platform with plain
/// characters. Characters that have a meaning in a query are escaped.
fn with_next(page: &str, path: &str) -> String {
    let mut address = format!("{page}?next=");
    for character in path.chars() {
        match character {
            '%' => address.push_str("%25"),
            '&' => address.push_str("%26"),
            '+' => address.push_str("%2B"),
            '#' => address.push_str("%23"),
            plain => address.push(plain),
        }
    }
    address
}

/// Adds a cookie to the response.
fn with_cookie(mut response: Response, set_cookie: &str) -> Response {
    // Names, base64url and attributes are all visible ASCII.
    if let Ok(value) = HeaderValue::try_from(set_cookie) {
        response.headers_mut().append(SET_COOKIE, value);
    }
    response
}

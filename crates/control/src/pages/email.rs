//! The page of a link that verifies a mail address.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use http::StatusCode;

use super::form::Form;
use super::layout::{MessagePage, PageRefusal, page, page_with, see_other};
use super::signed_in;
use crate::app::App;
use crate::http_api::extract::{ClientIp, Path};
use crate::people::email_change::{address, complete};
use crate::people::secret_link::LinkSecret;
use crate::people::session::Visitor;

#[derive(Template)]
#[template(path = "new_email.html")]
struct NewEmailPage<'a> {
    action: &'a str,
    email: &'a str,
    is_change: bool,
}

/// Requires a click, because mail scanners follow links as well.
pub(super) async fn show(
    State(app): State<Arc<App>>,
    visitor: Visitor,
    Path(secret): Path<String>,
) -> Result<Response, PageRefusal> {
    let Some(secret) = LinkSecret::parse(&secret) else {
        return Ok(invalid_link_page());
    };
    let action = path(&secret);
    let who = signed_in(visitor, &action)?;
    let Some(email) = address(&app, &who, &secret).await? else {
        return Ok(invalid_link_page());
    };
    Ok(page(&NewEmailPage {
        action: &action,
        is_change: store::fold_case(&email) != store::fold_case(&who.user.email),
        email: &email,
    }))
}

/// Sets the address.
pub(super) async fn submit(
    State(app): State<Arc<App>>,
    ClientIp(ip): ClientIp,
    visitor: Visitor,
    Path(secret): Path<String>,
    _form: Form,
) -> Result<Response, PageRefusal> {
    let Some(secret) = LinkSecret::parse(&secret) else {
        return Ok(invalid_link_page());
    };
    let who = signed_in(visitor, &path(&secret))?;
    Ok(if complete(&app, &who, &secret, ip).await? {
        see_other("/account?done=email")
    } else {
        invalid_link_page()
    })
}

fn path(secret: &LinkSecret) -> String {
    format!("/account/email/{}", secret.reveal())
}

/// The page for a link that is unknown, used, expired, or another user's. It does not reveal which.
fn invalid_link_page() -> Response {
    page_with(
        StatusCode::NOT_FOUND,
        &MessagePage {
            title: "This link does not work",
            text: "It was already used, has expired, or is for another account than the one you \
                are signed in to. Request another one.",
            link: Some(("/account", "Go to your account")),
        },
    )
}

//! Pages of the password reset by mail.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use http::StatusCode;

use super::form::Form;
use super::layout::{MessagePage, PageRefusal, page, page_with, see_other};
use crate::app::App;
use crate::http_api::extract::{ClientIp, Path};
use crate::people::accounts::Credentials;
use crate::people::email::Email;
use crate::people::password::Password;
use crate::people::reset::{complete, request, user_of_link};
use crate::people::secret_link::LinkSecret;

#[derive(Template)]
#[template(path = "reset.html")]
struct ResetPage<'a> {
    email: &'a str,
    error: Option<&'a str>,
}

#[derive(Template)]
#[template(path = "new_password.html")]
struct NewPasswordPage<'a> {
    action: &'a str,
    email: &'a str,
    error: Option<&'a str>,
}

/// Shows the form that requests a link.
pub(super) async fn show() -> Response {
    page(&ResetPage {
        email: "",
        error: None,
    })
}

/// Sends the link. The response is the same for every address.
pub(super) async fn submit(
    State(app): State<Arc<App>>,
    ClientIp(ip): ClientIp,
    mut form: Form,
) -> Result<Response, PageRefusal> {
    let typed = form.text("email");
    let email = match Email::parse(&typed) {
        Ok(email) => email,
        Err(error) => {
            let retry_page = ResetPage {
                email: &typed,
                error: Some(&error.to_string()),
            };
            return Ok(page_with(StatusCode::UNPROCESSABLE_ENTITY, &retry_page));
        }
    };
    request(&app, email, ip).await?;
    Ok(page(&MessagePage {
        title: "Check your email",
        text: "If an account exists for this address, we have sent it a link. It works once, \
               within an hour.",
        link: Some(("/login", "Back to sign in")),
    }))
}

/// Shows the form of a valid link.
pub(super) async fn show_new(
    State(app): State<Arc<App>>,
    Path(secret): Path<String>,
) -> Result<Response, PageRefusal> {
    let Some(secret) = LinkSecret::parse(&secret) else {
        return Ok(invalid_link_page());
    };
    let Some(user) = user_of_link(&app, &secret).await? else {
        return Ok(invalid_link_page());
    };
    Ok(page(&NewPasswordPage {
        action: &path(&secret),
        email: &user.email,
        error: None,
    }))
}

/// Sets the new password.
pub(super) async fn submit_new(
    State(app): State<Arc<App>>,
    ClientIp(ip): ClientIp,
    Path(secret): Path<String>,
    mut form: Form,
) -> Result<Response, PageRefusal> {
    let Some(secret) = LinkSecret::parse(&secret) else {
        return Ok(invalid_link_page());
    };
    let Some(user) = user_of_link(&app, &secret).await? else {
        return Ok(invalid_link_page());
    };
    let password = match Password::chosen(form.text("password"), &user.email) {
        Ok(password) => password,
        Err(error) => {
            let retry_page = NewPasswordPage {
                action: &path(&secret),
                email: &user.email,
                error: Some(&error.to_string()),
            };
            return Ok(page_with(StatusCode::UNPROCESSABLE_ENTITY, &retry_page));
        }
    };
    let credentials = Credentials::of_box(&form.text("revoke"));
    if !complete(&app, &secret, password, credentials, ip).await? {
        return Ok(invalid_link_page());
    }
    Ok(see_other("/login?reset=done"))
}

fn path(secret: &LinkSecret) -> String {
    format!("/reset/{}", secret.reveal())
}

/// The page for a link that is unknown, used or expired. It does not reveal which.
fn invalid_link_page() -> Response {
    page_with(
        StatusCode::NOT_FOUND,
        &MessagePage {
            title: "This link does not work any more",
            text: "It was already used, or has expired. Request another one.",
            link: Some(("/reset", "Reset your password")),
        },
    )
}

//! What a person sees of the own account.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use store::sessions::Session;
use types::id::SessionId;

use super::form::Form;
use super::layout::{PageRefusal, page, page_with, see_other};
use super::login::refusal;
use super::signed_in;
use crate::app::App;
use crate::extract::{Path, Query};
use crate::people::accounts;
use crate::people::password::Password;
use crate::people::session::{SignedIn, Visitor};
use crate::people::sign_in::SignInError;
use crate::problem::Answer;

#[derive(Template)]
#[template(path = "account.html")]
struct AccountPage<'a> {
    name: String,
    email: String,
    workspaces: Vec<WorkspaceLine>,
    has_second_factor: bool,
    sessions: Vec<SessionLine>,
    note: Option<&'a str>,
    error: Option<&'a str>,
}

struct WorkspaceLine {
    name: String,
    role: &'static str,
}

struct SessionLine {
    id: String,
    browser: String,
    place: String,
    last_seen: String,
    is_this: bool,
}

/// The front door.
pub(super) async fn home() -> Response {
    see_other("/account")
}

/// The page.
pub(super) async fn show(
    State(app): State<Arc<App>>,
    visitor: Visitor,
    mut query: Query,
) -> Result<Response, PageRefusal> {
    let who = signed_in(visitor, "/account")?;
    let mut account = account_page(&app, &who).await?;
    account.note = match query.text("done").as_deref() {
        Some("password") => Some("Your password is changed."),
        Some("second-factor-off") => Some("The second factor is off."),
        Some("session") => Some("The session has ended."),
        _ => None,
    };
    Ok(page(&account))
}

/// Changes the password, for who knows the old one.
pub(super) async fn change_password(
    State(app): State<Arc<App>>,
    visitor: Visitor,
    mut form: Form,
) -> Result<Response, PageRefusal> {
    let who = signed_in(visitor, "/account")?;
    let new = match Password::chosen(form.text("new"), &who.user.email) {
        Ok(new) => new,
        Err(error) => {
            let mut again = account_page(&app, &who).await?;
            let text = error.to_string();
            again.error = Some(&text);
            return Ok(page_with(StatusCode::UNPROCESSABLE_ENTITY, &again));
        }
    };
    if let Err(error) = accounts::check_password(&app, &who.user, &form.text("current")).await {
        return again(&app, &who, error).await;
    }
    accounts::change_password(&app, &who, new).await?;
    Ok(see_other("/account?done=password"))
}

/// Ends one of the person's sessions.
pub(super) async fn end_session(
    State(app): State<Arc<App>>,
    visitor: Visitor,
    Path(session): Path<String>,
    _form: Form,
) -> Result<Response, PageRefusal> {
    let who = signed_in(visitor, "/account")?;
    if let Ok(session) = session.parse::<SessionId>() {
        accounts::end_session(&app, &who, session).await?;
    }
    Ok(see_other("/account?done=session"))
}

/// The page again, after a proof that was not one.
pub(super) async fn again(
    app: &App,
    who: &SignedIn,
    error: SignInError,
) -> Result<Response, PageRefusal> {
    let mut account = account_page(app, who).await?;
    refusal(error, |text| {
        account.error = Some(text);
        account
    })
}

async fn account_page<'a>(app: &App, who: &SignedIn) -> Answer<AccountPage<'a>> {
    let mut read = app.store.read().await?;
    let workspaces = store::workspaces::of_user(&mut read, who.user.id).await?;
    let sessions = store::sessions::of_user(&mut read, who.user.id, app.now()).await?;
    Ok(AccountPage {
        name: who.user.name.clone(),
        email: who.user.email.clone(),
        workspaces: workspaces
            .into_iter()
            .map(|workspace| WorkspaceLine {
                name: workspace.name,
                role: workspace.member_role.as_str(),
            })
            .collect(),
        has_second_factor: who.user.totp_confirmed_at.is_some(),
        sessions: sessions
            .into_iter()
            .map(|session| line(session, who.session.id))
            .collect(),
        note: None,
        error: None,
    })
}

fn line(session: Session, this: SessionId) -> SessionLine {
    SessionLine {
        id: session.id.to_string(),
        browser: session.user_agent.unwrap_or_else(|| "A browser".to_owned()),
        place: session.ip.unwrap_or_default(),
        last_seen: session
            .last_seen_at
            .strftime("%Y-%m-%d %H:%M UTC")
            .to_string(),
        is_this: session.id == this,
    }
}

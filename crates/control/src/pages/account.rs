//! What a person sees of the own account.

use std::net::IpAddr;
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
use super::openid::Button;
use super::{signed_in, with_cookie};
use crate::app::App;
use crate::extract::{ClientIp, Path, Query};
use crate::people::cookie::Cookie;
use crate::people::email::Email;
use crate::people::password::Password;
use crate::people::session::{SignedIn, Visitor, is_idle};
use crate::people::sign_in::SignInError;
use crate::people::{accounts, email_change};
use crate::problem::Answer;

#[derive(Template)]
#[template(path = "account.html")]
struct AccountPage<'a> {
    name: String,
    email: String,
    email_verified: bool,
    pending_email: Option<String>,
    has_password: bool,
    /// Whether the sign-in of this session counts as a proof.
    is_fresh: bool,
    openid: Option<Button<'a>>,
    /// Providers by which the person signs in.
    identities: Vec<String>,
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
        Some("name") => Some("Your name is changed."),
        Some("email") => Some("Your mail address is confirmed and in use."),
        Some("email-sent") => {
            Some("A link is on its way. Follow it within an hour, in this browser.")
        }
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
        Err(error) => return wrong(&app, &who, &error.to_string()).await,
    };
    if let Err(error) = accounts::check_password(&app, &who.user, &form.text("current")).await {
        return again(&app, &who, error).await;
    }
    accounts::change_password(&app, &who, new).await?;
    Ok(see_other("/account?done=password"))
}

/// Changes the name.
pub(super) async fn change_name(
    State(app): State<Arc<App>>,
    visitor: Visitor,
    mut form: Form,
) -> Result<Response, PageRefusal> {
    let who = signed_in(visitor, "/account")?;
    match accounts::change_name(&app, &who, &form.text("name")).await {
        Ok(()) => Ok(see_other("/account?done=name")),
        Err(refusal) if refusal.problem().status == 400 => {
            wrong(&app, &who, &refusal.problem().detail).await
        }
        Err(refusal) => Err(refusal.into()),
    }
}

/// Sends a link to another address, for who proves to be the person.
pub(super) async fn change_email(
    State(app): State<Arc<App>>,
    ClientIp(ip): ClientIp,
    visitor: Visitor,
    mut form: Form,
) -> Result<Response, PageRefusal> {
    let who = signed_in(visitor, "/account")?;
    let email = match Email::parse(&form.text("email")) {
        Ok(email) => email,
        Err(error) => return wrong(&app, &who, &error.to_string()).await,
    };
    if let Err(error) = accounts::prove(&app, &who, &form.text("password")).await {
        return again(&app, &who, error).await;
    }
    send_link(&app, &who, email, ip).await
}

/// Sends a link to the person's own address.
pub(super) async fn confirm_email(
    State(app): State<Arc<App>>,
    ClientIp(ip): ClientIp,
    visitor: Visitor,
    _form: Form,
) -> Result<Response, PageRefusal> {
    let who = signed_in(visitor, "/account")?;
    match Email::parse(&who.user.email) {
        Ok(email) => send_link(&app, &who, email, ip).await,
        Err(error) => wrong(&app, &who, &error.to_string()).await,
    }
}

async fn send_link(
    app: &Arc<App>,
    who: &SignedIn,
    email: Email,
    ip: IpAddr,
) -> Result<Response, PageRefusal> {
    email_change::request(app, who, email, ip).await?;
    Ok(see_other("/account?done=email-sent"))
}

/// Ends all of the person's sessions.
pub(super) async fn end_sessions(
    State(app): State<Arc<App>>,
    visitor: Visitor,
    _form: Form,
) -> Result<Response, PageRefusal> {
    let who = signed_in(visitor, "/account")?;
    accounts::end_sessions(&app, &who).await?;
    let cleared = Cookie::session(&app.config.base_url).clear();
    Ok(with_cookie(see_other("/login"), &cleared))
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

/// The page again, with what is wrong in a form.
async fn wrong(app: &App, who: &SignedIn, text: &str) -> Result<Response, PageRefusal> {
    let mut again = account_page(app, who).await?;
    again.error = Some(text);
    Ok(page_with(StatusCode::UNPROCESSABLE_ENTITY, &again))
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

async fn account_page<'a>(app: &'a App, who: &SignedIn) -> Answer<AccountPage<'a>> {
    let pending_email = email_change::pending(app, &who.user).await?;
    let mut read = app.store.read().await?;
    let workspaces = store::workspaces::of_user(&mut read, who.user.id).await?;
    let sessions = store::sessions::of_user(&mut read, who.user.id, app.now()).await?;
    let identities = store::users::identities(&mut read, who.user.id).await?;
    Ok(AccountPage {
        name: who.user.name.clone(),
        email: who.user.email.clone(),
        email_verified: who.user.email_verified,
        pending_email,
        has_password: who.user.password_hash.is_some(),
        is_fresh: accounts::is_fresh(who, app.now()),
        openid: Button::anew(app, "/account"),
        identities: identities
            .into_iter()
            .map(|identity| provider_name(app, identity.issuer))
            .collect(),
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
            .filter(|session| !is_idle(session, app.now()))
            .map(|session| line(session, who.session.id))
            .collect(),
        note: None,
        error: None,
    })
}

/// A provider's name, for people; its issuer where it is not the one of today.
fn provider_name(app: &App, issuer: String) -> String {
    let today = app.config.openid.as_ref();
    match today.filter(|config| config.issuer == issuer) {
        Some(config) => config.name.clone(),
        None => issuer,
    }
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

//! What a person sees of the own account.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use jiff::Timestamp;
use store::passkeys::Passkey;
use store::sessions::Session;
use types::id::SessionId;

use super::form::Form;
use super::layout::{PageRefusal, page, page_with, see_other};
use super::login::{WRONG, refusal};
use super::signed_in;
use crate::app::App;
use crate::extract::{Path, Query};
use crate::people::accounts;
use crate::people::passkeys;
use crate::people::password::Password;
use crate::people::session::{SignedIn, Visitor, is_idle};
use crate::problem::Answer;

#[derive(Template)]
#[template(path = "account.html")]
struct AccountPage<'a> {
    name: String,
    email: String,
    workspaces: Vec<WorkspaceLine>,
    has_app: bool,
    can_have_passkeys: bool,
    passkeys: Vec<PasskeyLine>,
    sessions: Vec<SessionLine>,
    note: Option<&'a str>,
    current_error: Option<&'a str>,
    new_error: Option<&'a str>,
}

struct PasskeyLine {
    id: String,
    name: String,
    added: String,
    last_used: Option<String>,
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
        Some("second-factor-off") => Some("The authenticator app is taken away."),
        Some("passkey") => Some("Your passkey is added."),
        Some("passkey-off") => Some("The passkey is removed."),
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
            again.new_error = Some(&text);
            return Ok(page_with(StatusCode::UNPROCESSABLE_ENTITY, &again));
        }
    };
    if let Err(error) = accounts::check_password(&app, &who.user, &form.text("current")).await {
        let mut again = account_page(&app, &who).await?;
        return refusal(error, WRONG, |text| {
            again.current_error = Some(text);
            again
        });
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

async fn account_page<'a>(app: &App, who: &SignedIn) -> Answer<AccountPage<'a>> {
    let mut read = app.store.read().await?;
    let workspaces = store::workspaces::of_user(&mut read, who.user.id).await?;
    let passkeys = store::passkeys::of_user(&mut read, who.user.id).await?;
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
        has_app: who.user.totp_confirmed_at.is_some(),
        can_have_passkeys: passkeys::is_possible(app),
        passkeys: passkeys.into_iter().map(passkey_line).collect(),
        sessions: sessions
            .into_iter()
            .filter(|session| !is_idle(session, app.now()))
            .map(|session| line(session, who.session.id))
            .collect(),
        note: None,
        current_error: None,
        new_error: None,
    })
}

fn passkey_line(passkey: Passkey) -> PasskeyLine {
    let day = |moment: Timestamp| moment.strftime("%Y-%m-%d").to_string();
    PasskeyLine {
        id: passkey.id.to_string(),
        name: passkey.name,
        added: day(passkey.created_at),
        last_used: passkey.last_used_at.map(day),
    }
}

fn line(session: Session, this: SessionId) -> SessionLine {
    SessionLine {
        id: session.id.to_string(),
        browser: browser_name(session.user_agent.as_deref().unwrap_or_default()),
        place: session.ip.unwrap_or_default(),
        last_seen: session
            .last_seen_at
            .strftime("%Y-%m-%d %H:%M UTC")
            .to_string(),
        is_this: session.id == this,
    }
}

/// What people call their browser, from what it calls itself. Every browser claims to be those that
/// came before it, so the first that is found is the one; what is not known is shown as it is.
fn browser_name(user_agent: &str) -> String {
    let first = |known: &[(&str, &'static str)]| {
        let found = known.iter().find(|(mark, _)| user_agent.contains(mark));
        found.map(|(_, name)| *name)
    };
    let browser = first(&[
        ("Edg/", "Edge"),
        ("OPR/", "Opera"),
        ("Firefox/", "Firefox"),
        ("Chrome/", "Chrome"),
        ("Version/", "Safari"),
    ]);
    let system = first(&[
        ("Android", "Android"),
        ("iPhone", "iPhone"),
        ("iPad", "iPad"),
        ("Windows", "Windows"),
        ("Mac OS X", "macOS"),
        ("CrOS", "ChromeOS"),
        ("Linux", "Linux"),
    ]);
    match (browser, system) {
        (Some(browser), Some(system)) => format!("{browser} on {system}"),
        (Some(browser), None) => browser.to_owned(),
        (None, _) if user_agent.is_empty() => "A browser".to_owned(),
        (None, _) => user_agent.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::browser_name;

    #[test]
    fn a_browser_has_the_name_that_people_know() {
        for (user_agent, name) in [
            (
                "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/130.0.0.0 Safari/537.36",
                "Chrome on Linux",
            ),
            (
                "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/130.0.0.0 Safari/537.36 Edg/130.0.0.0",
                "Edge on Windows",
            ),
            (
                "Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.0 Mobile/15E148 Safari/604.1",
                "Safari on iPhone",
            ),
            (
                "Mozilla/5.0 (Android 15; Mobile; rv:132.0) Gecko/132.0 Firefox/132.0",
                "Firefox on Android",
            ),
            ("curl/8.5.0", "curl/8.5.0"),
            ("", "A browser"),
        ] {
            assert_eq!(browser_name(user_agent), name);
        }
    }
}

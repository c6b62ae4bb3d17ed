//! The account page of a user.

use std::net::IpAddr;
use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use jiff::Timestamp;
use store::audit::Entry;
use store::passkeys::Passkey;
use store::projects::{List, Project, ProjectSelection, Sort};
use store::sessions::Session;
use store::workspaces::Membership;
use store::{Conn, Order, Paging};
use types::id::SessionId;

use super::confirm::AccountOwner;
use super::form::Form;
use super::layout::{PageRefusal, page, page_with, see_other};
use super::login::{WRONG, refusal};
use super::{signed_in, with_cookie};
use crate::app::App;
use crate::http_api::extract::{ClientIp, Path, Query};
use crate::http_api::problem::HandlerResult;
use crate::people::accounts::Credentials;
use crate::people::cookie::Cookie;
use crate::people::email::Email;
use crate::people::password::Password;
use crate::people::session::{SignedIn, Visitor, is_idle};
use crate::people::{accounts, email_change, passkeys};

#[derive(Template)]
#[template(path = "account.html")]
struct AccountPage<'a> {
    name: String,
    email: String,
    email_verified: bool,
    pending_email: Option<String>,
    has_password: bool,
    /// Names of the providers that the user signs in with.
    identities: Vec<String>,
    /// Name of the provider that the user can link.
    linkable: Option<String>,
    /// Name of the provider that the user can remove.
    removable: Option<String>,
    workspaces: Vec<WorkspaceLine>,
    projects: Vec<ProjectLine>,
    has_app: bool,
    can_have_passkeys: bool,
    passkeys: Vec<PasskeyLine>,
    sessions: Vec<SessionLine>,
    /// Recent activity, newest first.
    entries: Vec<EntryLine>,
    note: Option<&'a str>,
    error: Option<&'a str>,
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

/// A project with terminals that the user may see.
struct ProjectLine {
    id: String,
    name: String,
}

struct SessionLine {
    id: String,
    browser: String,
    address: String,
    last_seen: String,
    is_this: bool,
}

/// An entry of the user's own audit log.
struct EntryLine {
    action: String,
    at: String,
    address: String,
    /// The credential that performed the action.
    credential: Option<String>,
}

pub(super) async fn show(
    State(app): State<Arc<App>>,
    visitor: Visitor,
    mut query: Query,
) -> Result<Response, PageRefusal> {
    let who = signed_in(visitor, "/account")?;
    let mut account = account_page(&app, &who).await?;
    account.note = match query.text("done").as_deref() {
        Some("password") => Some("Your password was changed."),
        Some("second-factor-on") => Some("The authenticator app is now required when you sign in."),
        Some("second-factor-off") => Some("The authenticator app was removed."),
        Some("passkey") => Some("Your passkey was added."),
        Some("passkey-off") => Some("The passkey was removed."),
        Some("name") => Some("Your name was changed."),
        Some("email") => Some("Your mail address is confirmed and in use."),
        Some("email-sent") => {
            Some("We have sent you a link. Open it within an hour, in this browser.")
        }
        Some("linked") => Some("You can now also sign in with the provider."),
        Some("unlinked") => Some("The provider was removed."),
        Some("session") => Some("The session has ended."),
        _ => None,
    };
    Ok(page(&account))
}

/// Changes the password of a user with the old one.
pub(super) async fn change_password(
    State(app): State<Arc<App>>,
    ClientIp(ip): ClientIp,
    visitor: Visitor,
    mut form: Form,
) -> Result<Response, PageRefusal> {
    let who = signed_in(visitor, "/account")?;
    let new = match Password::chosen(form.text("new"), &who.user.email) {
        Ok(new) => new,
        Err(error) => {
            let mut retry_page = account_page(&app, &who).await?;
            let text = error.to_string();
            retry_page.new_error = Some(&text);
            return Ok(page_with(StatusCode::UNPROCESSABLE_ENTITY, &retry_page));
        }
    };
    if let Err(error) = accounts::check_password(&app, &who.user, &form.text("current")).await {
        let mut retry_page = account_page(&app, &who).await?;
        return refusal(error, WRONG, |text| {
            retry_page.current_error = Some(text);
            retry_page
        });
    }
    let credentials = Credentials::of_box(&form.text("revoke"));
    let cookie = accounts::change_password(&app, &who, new, credentials, ip).await?;
    Ok(match cookie {
        Some(cookie) => with_cookie(see_other("/account?done=password"), &cookie),
        None => see_other("/login?next=/account"),
    })
}

/// Changes the display name.
pub(super) async fn change_name(
    State(app): State<Arc<App>>,
    visitor: Visitor,
    mut form: Form,
) -> Result<Response, PageRefusal> {
    let who = signed_in(visitor, "/account")?;
    match accounts::change_name(&app, &who, &form.text("name")).await {
        Ok(()) => Ok(see_other("/account?done=name")),
        Err(refusal) if refusal.problem().status == 400 => {
            page_with_error(&app, &who, &refusal.problem().detail).await
        }
        Err(refusal) => Err(refusal.into()),
    }
}

/// Sends a link to another address. The user must have authenticated recently.
pub(super) async fn change_email(
    State(app): State<Arc<App>>,
    AccountOwner { who, ip }: AccountOwner,
    mut form: Form,
) -> Result<Response, PageRefusal> {
    match Email::parse(&form.text("email")) {
        Ok(email) => send_link(&app, &who, email, ip).await,
        Err(error) => page_with_error(&app, &who, &error.to_string()).await,
    }
}

/// Sends a link to the user's current address.
pub(super) async fn confirm_email(
    State(app): State<Arc<App>>,
    ClientIp(ip): ClientIp,
    visitor: Visitor,
    _form: Form,
) -> Result<Response, PageRefusal> {
    let who = signed_in(visitor, "/account")?;
    match Email::parse(&who.user.email) {
        Ok(email) => send_link(&app, &who, email, ip).await,
        Err(error) => page_with_error(&app, &who, &error.to_string()).await,
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

/// Ends all of the user's sessions.
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

/// Ends one of the user's sessions.
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

/// Shows the page again, with the error of a form.
async fn page_with_error(app: &App, who: &SignedIn, text: &str) -> Result<Response, PageRefusal> {
    let mut retry_page = account_page(app, who).await?;
    retry_page.error = Some(text);
    Ok(page_with(StatusCode::UNPROCESSABLE_ENTITY, &retry_page))
}

async fn account_page<'a>(app: &App, who: &SignedIn) -> HandlerResult<AccountPage<'a>> {
    let pending_email = email_change::pending(app, &who.user).await?;
    let mut read = app.store.read().await?;
    let workspaces = store::workspaces::of_user(&mut read, who.user.id).await?;
    let projects = projects_of(&mut read, who, &workspaces).await?;
    let passkeys = store::passkeys::of_user(&mut read, who.user.id).await?;
    let sessions = store::sessions::of_user(&mut read, who.user.id, app.now()).await?;
    let recent = Paging::new(1, ENTRIES).unwrap_or(Paging::DEFAULT);
    let entries = store::audit::of_user(&mut read, who.user.id, recent).await?;
    let identities = store::users::identities(&mut read, who.user.id).await?;
    let provider = app.config.openid.as_ref();
    let is_linked =
        provider.is_some_and(|config| identities.iter().any(|known| known.issuer == config.issuer));
    let provider = provider.map(|config| config.name.clone());
    let (linkable, removable) = if is_linked {
        (None, provider)
    } else {
        (provider, None)
    };
    Ok(AccountPage {
        name: who.user.name.clone(),
        email: who.user.email.clone(),
        email_verified: who.user.email_verified,
        pending_email,
        has_password: who.user.password_hash.is_some(),
        identities: identities
            .into_iter()
            .map(|identity| provider_name(app, identity.issuer))
            .collect(),
        linkable,
        removable,
        workspaces: workspaces
            .into_iter()
            .map(|workspace| WorkspaceLine {
                name: workspace.name,
                role: workspace.member_role.as_str(),
            })
            .collect(),
        projects,
        has_app: who.user.totp_confirmed_at.is_some(),
        can_have_passkeys: passkeys::is_possible(app),
        passkeys: passkeys.into_iter().map(passkey_line).collect(),
        sessions: sessions
            .into_iter()
            .filter(|session| !is_idle(session, app.now()))
            .map(|session| session_line(session, who.session.id))
            .collect(),
        entries: entries.items.into_iter().map(entry_line).collect(),
        note: None,
        error: None,
        current_error: None,
        new_error: None,
    })
}

/// The first projects by name. A session that is restricted to some resources gets none, because
/// the pages of each project decide about access.
async fn projects_of(
    read: &mut Conn,
    who: &SignedIn,
    workspaces: &[Membership],
) -> HandlerResult<Vec<ProjectLine>> {
    if who.session.resources.is_some() {
        return Ok(Vec::new());
    }
    let tenant: Vec<_> = workspaces.iter().map(|membership| membership.id).collect();
    let list = List {
        workspaces: &tenant,
        selection: ProjectSelection::All,
        search: None,
        sort: Sort::Name,
        order: Order::Asc,
        paging: Paging::new(1, Paging::MAX_SIZE).unwrap_or(Paging::DEFAULT),
    };
    let found = store::projects::list(read, list).await?;
    let line = |project: Project| ProjectLine {
        id: project.id.to_string(),
        name: project.name,
    };
    Ok(found.items.into_iter().map(line).collect())
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

fn entry_line(entry: Entry) -> EntryLine {
    EntryLine {
        action: entry.action.replace(['.', '_'], " "),
        at: entry.created_at.strftime("%Y-%m-%d %H:%M UTC").to_string(),
        address: entry.ip.unwrap_or_default(),
        credential: entry.actor_credential_id.map(|id| id.to_string()),
    }
}

/// Number of entries on the page. `GET /api/user/audit` lists all of them.
const ENTRIES: u32 = 20;

/// A provider's name, for users. If the provider is not the configured one, this is its issuer.
fn provider_name(app: &App, issuer: String) -> String {
    let configured = app.config.openid.as_ref();
    match configured.filter(|config| config.issuer == issuer) {
        Some(config) => config.name.clone(),
        None => issuer,
    }
}

fn session_line(session: Session, this: SessionId) -> SessionLine {
    SessionLine {
        id: session.id.to_string(),
        browser: browser_name(session.user_agent.as_deref().unwrap_or_default()),
        address: session.ip.unwrap_or_default(),
        last_seen: session
            .last_seen_at
            .strftime("%Y-%m-%d %H:%M UTC")
            .to_string(),
        is_this: session.id == this,
    }
}

/// The common name of a browser, from its `User-Agent`. Every browser claims to be its
/// predecessors, so the first match is used. An unknown browser is shown unchanged.
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
    fn a_browser_is_shown_with_its_common_name() {
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

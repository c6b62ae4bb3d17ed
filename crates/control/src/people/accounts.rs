//! User accounts: creation, passwords, and the list of sessions.

use std::net::IpAddr;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::json;
use store::users::{self, NewUser, Role, Status, User};
use store::workspaces::Type;
use store::{PasswordHash, Store, Tx, members};
use types::id::{SessionId, UserId, WorkspaceId, unix_millis};
use types::problem::Problem;

use super::attempts::AttemptKey;
use super::email::Email;
use super::notices::{self, Notice};
use super::password::{Password, Passwords, Verdict};
use super::session::{self, SignedIn};
use super::sign_in::SignInError;
use crate::app::App;
use crate::audit::{self, Action, Actor, AuditTarget};
use crate::http_api::problem::HandlerResult;
use crate::http_api::user_text::is_invisible;
use crate::runtime::random;

/// A user to create. The password has been checked.
#[derive(Debug)]
pub struct NewAccount {
    /// The address. `email_verified` states if the user has proved to read it.
    pub email: Email,
    /// Name to show: see [`parse_name`].
    pub name: String,
    /// Hash of the password. `None` for users of an OpenID provider.
    pub password: Option<PasswordHash>,
    /// Role of the user in the installation.
    pub role: Role,
    /// True if the user has proved to read mail to the address.
    pub email_verified: bool,
}

/// Creates a user and the user's personal workspace.
///
/// # Errors
/// [`store::Conflict::EmailTaken`].
pub async fn create(
    tx: &mut Tx,
    person: NewAccount,
    now: Timestamp,
) -> HandlerResult<(UserId, WorkspaceId)> {
    let id = UserId::new(unix_millis(now), random::bytes()?);
    let workspace = WorkspaceId::new(unix_millis(now), random::bytes()?);
    let new = NewUser {
        id,
        email: person.email.as_str().to_owned(),
        name: person.name.clone(),
        password_hash: person.password,
        role: person.role,
        email_verified: person.email_verified,
        now,
    };
    users::insert(tx, &new).await?;
    store::workspaces::insert(tx, workspace, Type::Personal, &person.name, now).await?;
    members::insert(tx, workspace, id, members::Role::Owner, None, now).await?;
    let actor = Actor::user(id);
    audit::record(
        tx,
        &actor,
        None,
        Action::UserCreated,
        AuditTarget::User(id),
        now,
    )
    .await?;
    Ok((id, workspace))
}

/// Creates an operator of the installation. The command line creates the first user this way.
pub async fn create_admin(
    store: &Store,
    passwords: &Passwords,
    email: &str,
    given_name: &str,
    password: &str,
    now: Timestamp,
) -> HandlerResult<(UserId, WorkspaceId)> {
    let email = Email::parse(email).map_err(|error| bad("email", &error))?;
    let password =
        Password::chosen(password, email.as_str()).map_err(|error| bad("password", &error))?;
    let hash = passwords.hash(password).await?;
    let person = NewAccount {
        email,
        name: parse_name(given_name)?,
        password: Some(PasswordHash(hash)),
        role: Role::Admin,
        email_verified: true,
    };
    let mut tx = store.begin().await?;
    let made = create(&mut tx, person, now).await?;
    tx.commit().await?;
    Ok(made)
}

/// Validates the display name of a user or a workspace. It is trimmed, has one line, and is short
/// enough for a page.
pub fn parse_name(given: &str) -> HandlerResult<String> {
    let name = given.trim();
    let length = name.chars().count();
    if name.chars().any(is_invisible) || !(1..=MAX_NAME).contains(&length) {
        let detail = "A name must have 1 to 100 characters on one line, without invisible \
            characters.";
        return Err(Problem::invalid_request(detail).with_field("name").into());
    }
    Ok(name.to_owned())
}

/// Changes the display name.
pub async fn change_name(app: &App, who: &SignedIn, given: &str) -> HandlerResult<()> {
    let now = app.now();
    let name = parse_name(given)?;
    let id = who.user.id;
    let mut tx = app.store.begin().await?;
    users::set_name(&mut tx, id, &name, now).await?;
    let actor = Actor::user(id);
    audit::record(
        &mut tx,
        &actor,
        None,
        Action::NameChanged,
        AuditTarget::User(id),
        now,
    )
    .await?;
    tx.commit().await?;
    Ok(())
}

/// Ends all sessions of the user, including the current one.
pub async fn end_sessions(app: &App, who: &SignedIn) -> HandlerResult<()> {
    let now = app.now();
    let id = who.user.id;
    let mut tx = app.store.begin().await?;
    store::sessions::end_all(&mut tx, id, None, now).await?;
    let actor = Actor::user(id);
    audit::record(
        &mut tx,
        &actor,
        None,
        Action::SessionsEnded,
        AuditTarget::User(id),
        now,
    )
    .await?;
    tx.commit().await?;
    Ok(())
}

/// Checks the password of a signed-in user. The attempt counts like a sign-in.
pub async fn check_password(app: &App, user: &User, text: &str) -> Result<(), SignInError> {
    AttemptKey::password(&user.email)
        .record(app, app.now())
        .await?;
    let stored_hash = user.password_hash.clone().map(|PasswordHash(text)| text);
    let Ok(password) = Password::typed(text) else {
        return Err(SignInError::Wrong);
    };
    match app.people.passwords.verify(password, stored_hash).await? {
        Verdict::Mismatch => Err(SignInError::Wrong),
        Verdict::Match | Verdict::MatchNeedsRehash => {
            let mut tx = app.store.begin().await?;
            AttemptKey::password(&user.email).reset(&mut tx).await?;
            tx.commit().await?;
            Ok(())
        }
    }
}

/// Effect of a password change on credentials and linked applications.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Credentials {
    /// They stay valid.
    Stay,
    /// They are revoked, because an attacker may have issued one.
    Revoked,
}

impl Credentials {
    /// Reads the value of the form's checkbox.
    pub fn of_box(text: &str) -> Self {
        if text.is_empty() {
            Self::Stay
        } else {
            Self::Revoked
        }
    }

    /// Applies the choice in the transaction that sets the password.
    pub(super) async fn apply(
        self,
        tx: &mut Tx,
        user: UserId,
        actor: &Actor,
        now: Timestamp,
    ) -> HandlerResult<()> {
        if self == Self::Stay {
            return Ok(());
        }
        let count = store::credentials::revoke_all(tx, user, now).await?;
        let (action, target) = (Action::CredentialsRevoked, AuditTarget::User(user));
        let details = json!({"count": count});
        audit::record_with(tx, actor, None, action, target, details, now).await
    }
}

/// Sets a new password and ends the user's other sessions. The current session gets another cookie,
/// which is returned as the value of `Set-Cookie`. The caller has checked the old password. `None`
/// means that the session ended meanwhile and nothing was changed.
pub async fn change_password(
    app: &Arc<App>,
    who: &SignedIn,
    new: Password,
    credentials: Credentials,
    ip: IpAddr,
) -> HandlerResult<Option<String>> {
    let now = app.now();
    let user = &who.user;
    let hash = app.people.passwords.hash(new).await?;
    let mut tx = app.store.begin().await?;
    users::set_password(&mut tx, user.id, Some(&PasswordHash(hash)), now).await?;
    store::sessions::end_all(&mut tx, user.id, Some(who.session.id), now).await?;
    store::links::revoke(&mut tx, user.id, store::links::Kind::PasswordReset, now).await?;
    let actor = Actor::user(user.id).with_ip(ip);
    let target = AuditTarget::User(user.id);
    audit::record(&mut tx, &actor, None, Action::PasswordChanged, target, now).await?;
    credentials.apply(&mut tx, user.id, &actor, now).await?;
    let Some(cookie) = session::renew(app, &mut tx, &who.session, now).await? else {
        return Ok(None);
    };
    tx.commit().await?;
    notices::send(app, user, &Notice::PasswordChanged, ip, now);
    Ok(Some(cookie))
}

/// Ends one of the user's sessions. A missing session has already ended, which is not an error.
pub async fn end_session(app: &App, who: &SignedIn, id: SessionId) -> HandlerResult<()> {
    let mut tx = app.store.begin().await?;
    store::sessions::end_one(&mut tx, who.user.id, id, app.now()).await?;
    tx.commit().await?;
    Ok(())
}

/// Reads the user's current row and locks it until the transaction ends. Decisions must use this
/// row and not an older copy.
pub(super) async fn lock_user(tx: &mut Tx, id: UserId) -> HandlerResult<User> {
    users::lock(tx, id).await?;
    let user = users::by_id(tx, id).await?;
    let user = user.filter(|user| user.status == Status::Active);
    Ok(user.ok_or_else(Problem::unauthenticated)?)
}

fn bad(field: &str, error: &dyn std::error::Error) -> Problem {
    Problem::invalid_request(error.to_string()).with_field(field)
}

/// Longest name, in characters.
const MAX_NAME: usize = 100;

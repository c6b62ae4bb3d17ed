//! The first operator of an installation.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use credentials::Secret;
use jiff::{SignedDuration, Timestamp};
use store::users;
use types::id::UserId;
use types::problem::Problem;

use crate::app::App;
use crate::credentials::issue_admin_pat;
use crate::http_api::problem::HandlerResult;
use crate::people::accounts;
use crate::people::password::{Password, Verdict};
use crate::runtime::random;

/// Creates the operator with this address and a random password, which is returned. `None` if an
/// account with the address exists. Then nothing was changed.
///
/// # Errors
/// The address is invalid, or the database fails.
pub async fn first_admin(app: &App, email: &str) -> HandlerResult<Option<Secret>> {
    let mut read = app.store.read().await?;
    let known = users::by_email(&mut read, email).await?;
    drop(read);
    if known.is_some() {
        return Ok(None);
    }
    let password = draw_password()?;
    match create(app, email, &password).await {
        Ok(_) => Ok(Some(Secret::new(password))),
        // Another process that starts at the same time was faster.
        Err(refusal) if refusal.problem().status == CONFLICT => Ok(None),
        Err(refusal) => Err(refusal),
    }
}

/// The operators of the installation, by address.
///
/// # Errors
/// The database fails.
pub async fn operators(app: &App) -> HandlerResult<Vec<users::User>> {
    let mut read = app.store.read().await?;
    Ok(users::admins(&mut read).await?)
}

/// Draws a password that cannot be guessed.
///
/// # Errors
/// The system's random generator fails.
pub fn draw_password() -> HandlerResult<String> {
    Ok(URL_SAFE_NO_PAD.encode(random::bytes::<PASSWORD_BYTES>()?))
}

/// The operator of an installation on one machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operator {
    pub id: UserId,
    /// True if the password that the installation stores still opens the account.
    pub is_password_current: bool,
}

/// The operator with this address, who is created with this password if there is none yet. For an
/// installation that is restarted with its existing data.
///
/// # Errors
/// Address or password are invalid, or the database fails.
pub async fn ensure_operator(app: &App, email: &str, password: &Secret) -> HandlerResult<Operator> {
    let text = std::str::from_utf8(password.expose()).map_err(|_| Problem::internal())?;
    let mut read = app.store.read().await?;
    let known = users::by_email(&mut read, email).await?;
    drop(read);
    let Some(user) = known else {
        let id = create(app, email, text).await?;
        return Ok(Operator {
            id,
            is_password_current: true,
        });
    };
    // Other users with the address must not get the tokens of an operator.
    if user.role != users::Role::Admin || user.status != users::Status::Active {
        let detail =
            format!("{email} is the address of an account that is not an active operator.");
        return Err(Problem::conflict().with_detail(detail).into());
    }
    // The password may have been changed on the account page. Then the stored one must not be
    // shown.
    let stored_hash = user.password_hash.clone().map(|hash| hash.0);
    let password_holds = match Password::typed(text) {
        Ok(password) => {
            let verdict = app.people.passwords.verify(password, stored_hash).await?;
            verdict != Verdict::Mismatch
        }
        Err(_) => false,
    };
    Ok(Operator {
        id: user.id,
        is_password_current: password_holds,
    })
}

/// A personal access token of the operator, with every permission and no boundary.
///
/// # Errors
/// The database fails.
pub async fn operator_token(
    app: &App,
    operator: Operator,
    name: &str,
    life: SignedDuration,
) -> HandlerResult<Secret> {
    // The token has whole seconds.
    let now = Timestamp::from_second(app.now().as_second()).map_err(|_| Problem::internal())?;
    let end = now.checked_add(life).map_err(|_| Problem::internal())?;
    issue_admin_pat(app, operator.id, name, Some(end)).await
}

async fn create(app: &App, email: &str, password: &str) -> HandlerResult<UserId> {
    let name = email.split('@').next().unwrap_or(email);
    let passwords = &app.people.passwords;
    let made =
        accounts::create_admin(&app.store, passwords, email, name, password, app.now()).await?;
    Ok(made.0)
}

/// The only conflict of a new account is its address.
const CONFLICT: u16 = 409;

/// 24 characters: short enough to type once, far beyond guessing.
const PASSWORD_BYTES: usize = 18;

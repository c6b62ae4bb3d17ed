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
use crate::people::accounts;
use crate::people::password::{Password, Verdict};
use crate::people::sign_in::hash_refusal;
use crate::problem::Answer;
use crate::random;

/// Makes the operator with this address and a password that was drawn for them, which is returned;
/// `None`: somebody has the address already, and nothing was changed.
///
/// # Errors
/// The address is none, or the database fails.
pub async fn first_admin(app: &App, email: &str) -> Answer<Option<Secret>> {
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

/// A password that nobody guesses.
///
/// # Errors
/// The system has no randomness.
pub fn draw_password() -> Answer<String> {
    Ok(URL_SAFE_NO_PAD.encode(random::bytes::<PASSWORD_BYTES>()?))
}

/// The person who runs an installation of one machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operator {
    /// Who it is.
    pub id: UserId,
    /// Whether the password that the installation keeps still opens the account.
    pub password_holds: bool,
}

/// The operator with this address, who is made with this password where there is none yet: for
/// an installation that starts again and again on what it kept.
///
/// # Errors
/// Address or password are none, or the database fails.
pub async fn ensure_operator(app: &App, email: &str, password: &Secret) -> Answer<Operator> {
    let text = std::str::from_utf8(password.expose()).map_err(|_| Problem::internal())?;
    let mut read = app.store.read().await?;
    let known = users::by_email(&mut read, email).await?;
    drop(read);
    let Some(user) = known else {
        let id = create(app, email, text).await?;
        return Ok(Operator {
            id,
            password_holds: true,
        });
    };
    // Whoever else has the address is not handed the tokens of an operator.
    if user.role != users::Role::Admin || user.status != users::Status::Active {
        let detail = format!("{email} is the address of an account that is no active operator.");
        return Err(Problem::conflict().with_detail(detail).into());
    }
    // Whoever changed it on the account's page is not told a password that is wrong.
    let kept = user.password_hash.clone().map(|hash| hash.0);
    let password_holds = match Password::typed(text) {
        Ok(password) => {
            let verdict = app.people.passwords.verify(password, kept).await;
            verdict.map_err(|error| hash_refusal(&error))? != Verdict::Wrong
        }
        Err(_) => false,
    };
    Ok(Operator {
        id: user.id,
        password_holds,
    })
}

/// A personal access token of the operator: every permission, no boundary.
///
/// # Errors
/// The database fails.
pub async fn operator_token(
    app: &App,
    operator: Operator,
    name: &str,
    life: SignedDuration,
) -> Answer<Secret> {
    // Whole seconds, as in the token.
    let now = Timestamp::from_second(app.now().as_second()).map_err(|_| Problem::internal())?;
    let end = now.checked_add(life).map_err(|_| Problem::internal())?;
    issue_admin_pat(app, operator.id, name, Some(end)).await
}

async fn create(app: &App, email: &str, password: &str) -> Answer<UserId> {
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

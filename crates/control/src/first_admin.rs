//! The first operator of an installation.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use credentials::Secret;
use store::users;

use crate::app::App;
use crate::people::accounts;
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
    let name = email.split('@').next().unwrap_or(email);
    let password = URL_SAFE_NO_PAD.encode(random::bytes::<PASSWORD_BYTES>()?);
    let passwords = &app.people.passwords;
    accounts::create_admin(&app.store, passwords, email, name, &password, app.now()).await?;
    Ok(Some(Secret::new(password)))
}

/// 24 characters: short enough to type once, far beyond guessing.
const PASSWORD_BYTES: usize = 18;

//! Change or verification of a user's mail address, with a link that is sent to it.
//!
//! The link works only for the signed-in user who requested it. Access to the mailbox alone is not
//! enough. Otherwise an attacker could enter a victim's address into the attacker's account and
//! wait until the victim follows the link. The address would then count as verified for that
//! account, and the OpenID provider would sign the victim in to it.

use std::net::IpAddr;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use store::links::{self, Kind, Link};
use store::users::{self, User};
use store::{Conflict, SecretHash};
use types::problem::Problem;

use super::email::Email;
use super::secret_link::LinkSecret;
use super::session::{SignedIn, later};
use super::throttle::TooManyAttemptsError;
use crate::app::App;
use crate::audit::{self, Action, Actor, AuditTarget};
use crate::http_api::problem::HandlerResult;
use crate::mail::Message;

/// Sends a link to the address. The caller has authenticated the user. The response does not reveal
/// if another account has the address. In that case its owner receives a mail about it instead.
///
/// # Errors
/// Too many mails were sent lately to the address or for this user.
pub async fn request(
    app: &Arc<App>,
    who: &SignedIn,
    email: Email,
    ip: IpAddr,
) -> HandlerResult<()> {
    let now = app.now();
    let own = Email::parse(&who.user.email).map_err(|_| Problem::internal())?;
    // Counted by recipient and by sender, so that neither can be abused.
    let changes = &app.people.email_change_throttle;
    let keys = [Some(&email), Some(&own).filter(|own| **own != email)];
    for key in keys.into_iter().flatten() {
        changes
            .record_attempt(key, now)
            .map_err(|TooManyAttemptsError(seconds)| {
                let detail = "Too many mails were requested. Wait a little and try again.";
                Problem::too_many_requests()
                    .with_detail(detail)
                    .with_retry_after(seconds)
            })?;
    }
    let secret = LinkSecret::draw()?;
    let id = who.user.id;
    let link = Link {
        user_id: id,
        kind: Kind::Email,
        email: email.as_str().to_owned(),
        created_at: now,
        expires_at: later(now, LIFETIME),
    };
    let mut tx = app.store.begin().await?;
    let holder = users::by_email(&mut tx, email.as_str()).await?;
    let is_taken = holder.is_some_and(|holder| holder.id != id);
    // Only the newest link works. An older mail is useless to a thief.
    links::revoke(&mut tx, id, Kind::Email, now).await?;
    links::insert(&mut tx, SecretHash(secret.hash()), &link).await?;
    let actor = Actor::user(id).with_ip(ip);
    let action = Action::EmailChangeRequested;
    audit::record(&mut tx, &actor, None, action, AuditTarget::User(id), now).await?;
    tx.commit().await?;
    let message = if is_taken {
        already_taken(app, email)
    } else {
        link_mail(app, &who.user, email, &secret)
    };
    post(app, message, now);
    Ok(())
}

/// The new address of a pending change. `None` if the pending link only verifies the current
/// address.
pub async fn pending(app: &App, user: &User) -> HandlerResult<Option<String>> {
    let mut read = app.store.read().await?;
    let link = links::pending(&mut read, user.id, Kind::Email, app.now()).await?;
    let other = link.filter(|link| store::fold_case(&link.email) != store::fold_case(&user.email));
    Ok(other.map(|link| link.email))
}

/// The address that a link would set, if the link still works and is this user's.
pub async fn address(
    app: &App,
    who: &SignedIn,
    secret: &LinkSecret,
) -> HandlerResult<Option<String>> {
    let mut read = app.store.read().await?;
    let hash = SecretHash(secret.hash());
    let link = links::live(&mut read, hash, Kind::Email, app.now()).await?;
    let own = link.filter(|link| link.user_id == who.user.id);
    Ok(own.map(|link| link.email))
}

/// Sets the address and uses the link. The old address gets a notice. False if the link does not
/// work (any more), belongs to another user, or another account has the address by now.
pub async fn complete(
    app: &Arc<App>,
    who: &SignedIn,
    secret: &LinkSecret,
    ip: IpAddr,
) -> HandlerResult<bool> {
    let now = app.now();
    let user = &who.user;
    let mut tx = app.store.begin().await?;
    let link = links::consume(&mut tx, SecretHash(secret.hash()), Kind::Email, now).await?;
    // On `None` the transaction is dropped, so nothing is used.
    let Some(link) = link.filter(|link| link.user_id == user.id) else {
        return Ok(false);
    };
    let is_change = store::fold_case(&link.email) != store::fold_case(&user.email);
    let changed = users::set_email(&mut tx, user.id, &user.name, &link.email, true, now).await;
    match changed {
        Ok(_) => {}
        Err(error) if error.conflict() == Some(Conflict::EmailTaken) => return Ok(false),
        Err(error) => return Err(error.into()),
    }
    // Links that were sent to the old address must not work any more.
    links::revoke(&mut tx, user.id, Kind::PasswordReset, now).await?;
    let actor = Actor::user(user.id).with_ip(ip);
    let action = if is_change {
        Action::EmailChanged
    } else {
        Action::EmailVerified
    };
    audit::record(
        &mut tx,
        &actor,
        None,
        action,
        AuditTarget::User(user.id),
        now,
    )
    .await?;
    tx.commit().await?;
    if is_change && let Ok(old) = Email::parse(&user.email) {
        post(app, notice(app, user, old, &link.email), now);
    }
    Ok(true)
}

fn post(app: &Arc<App>, message: Message, now: Timestamp) {
    let failure = "a mail about an address could not be sent";
    app.people.mail_after_response(message, now, failure);
}

fn link_mail(app: &App, user: &User, email: Email, secret: &LinkSecret) -> Message {
    let address = app
        .config
        .url(&format!("/account/email/{}", secret.reveal()));
    let text = format!(
        "Hello {name},\n\nyou asked to use this address for your account at {platform}. Open this \
         link while you are signed in to confirm it; it works once, within an \
         hour:\n\n{address}\n\nIf it was not you, you do not have to do anything: someone mistyped \
         their own address.\n",
        name = user.name,
        platform = app.config.base_url,
    );
    Message::new(email, "Confirm your mail address", text)
}

fn already_taken(app: &App, email: Email) -> Message {
    let text = format!(
        "Hello,\n\nsomeone, perhaps you, asked to use this address for another account at \
         {platform}. The address already belongs to an account, so nothing was changed.\n",
        platform = app.config.base_url,
    );
    Message::new(email, "Your mail address is already in use", text)
}

fn notice(app: &App, user: &User, old: Email, new: &str) -> Message {
    let text = format!(
        "Hello {name},\n\nyour account at {platform} now uses the address {new} instead of this \
         one.\n\nIf it was not you, contact the operator of the platform immediately.\n",
        name = user.name,
        platform = app.config.base_url,
    );
    Message::new(old, "Your mail address was changed", text)
}

/// Lifetime of a link. It is long enough for slow mail, and short because other people may read the
/// mailbox.
const LIFETIME: SignedDuration = SignedDuration::from_hours(1);

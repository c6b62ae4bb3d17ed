//! Password reset with a link that is sent by mail.

use std::net::IpAddr;
use std::sync::Arc;

use daemon::connections::source_network;
use jiff::{SignedDuration, Timestamp};
use store::links::{self, Kind, Link};
use store::users::{self, Status, User};
use store::{PasswordHash, SecretHash, Tx};
use types::problem::Problem;

use super::accounts::Credentials;
use super::attempts::reset_all;
use super::email::Email;
use super::notices::{self, Notice};
use super::password::Password;
use super::secret_link::LinkSecret;
use super::session::later;
use super::throttle::TooManyAttemptsError;
use crate::app::App;
use crate::audit::{self, Action, Actor, AuditTarget};
use crate::http_api::problem::HandlerResult;
use crate::mail::Message;

/// Sends a link to the address, if an account has it. The response does not reveal that: it is the
/// same and takes as long, because the mail is sent after it.
///
/// # Errors
/// The client address sends too many requests, or the database is not available. If an account was
/// sent too many mails, this is not reported either.
pub async fn request(app: &Arc<App>, email: Email, ip: IpAddr) -> HandlerResult<()> {
    let now = app.now();
    let requests = &app.people.reset_requests;
    if let Err(TooManyAttemptsError(seconds)) =
        requests.networks.record_attempt(&source_network(ip), now)
    {
        return Err(Problem::too_many_requests()
            .with_retry_after(seconds)
            .into());
    }
    let user = users::by_email(&mut *app.store.read().await?, email.as_str()).await?;
    if requests.accounts.record_attempt(&email, now).is_err() {
        return Ok(());
    }
    let Some(user) = user.filter(|user| user.status == Status::Active) else {
        return Ok(());
    };
    let app_of_task = Arc::clone(app);
    app.people.spawn_after_response(async move {
        if let Err(refusal) = send(&app_of_task, &user, email, ip, now).await {
            tracing::error!(
                user.id = %user.id,
                error = %refusal.problem().detail,
                "a reset link could not be sent"
            );
        }
    });
    Ok(())
}

async fn send(
    app: &App,
    user: &User,
    email: Email,
    ip: IpAddr,
    now: Timestamp,
) -> HandlerResult<()> {
    let secret = LinkSecret::draw()?;
    let link = Link {
        user_id: user.id,
        kind: Kind::PasswordReset,
        email: email.as_str().to_owned(),
        created_at: now,
        expires_at: later(now, LIFETIME),
    };
    let mut tx = app.store.begin().await?;
    // Only the newest link works. An older mail is useless to a thief.
    links::revoke(&mut tx, user.id, Kind::PasswordReset, now).await?;
    links::insert(&mut tx, SecretHash(secret.hash()), &link).await?;
    let actor = Actor::anonymous().with_ip(ip);
    audit::record(
        &mut tx,
        &actor,
        None,
        Action::ResetRequested,
        AuditTarget::User(user.id),
        now,
    )
    .await?;
    tx.commit().await?;
    let address = app.config.url(&format!("/reset/{}", secret.reveal()));
    let text = format!(
        "Hello {name},\n\nsomeone, perhaps you, asked to reset the password of your account at \
         {platform}. Open this link to set a new one; it works once, within an \
         hour:\n\n{address}\n\nIf it was not you, you do not have to do anything: your password \
         stays as it is.\n",
        name = user.name,
        platform = app.config.base_url,
    );
    let message = Message::new(email, "Set a new password", text);
    app.people.mailer.send(message, now).await.map_err(|error| {
        tracing::error!(
            error = &error as &dyn std::error::Error,
            "a mail could not be sent"
        );
        Problem::unavailable().into()
    })
}

/// The user of a link, if it still works.
pub async fn user_of_link(app: &App, secret: &LinkSecret) -> HandlerResult<Option<User>> {
    let mut read = app.store.read().await?;
    let hash = SecretHash(secret.hash());
    let Some(link) = links::live(&mut read, hash, Kind::PasswordReset, app.now()).await? else {
        return Ok(None);
    };
    let user = users::by_id(&mut read, link.user_id).await?;
    Ok(user.filter(|user| may_use(user, &link)))
}

/// Sets the password, uses the link, and ends every session of the user. False if the link does not
/// work (any more). The second factor stays, because a mailbox alone must not open an account that
/// has one. If the address was not verified before, see [`start_afresh`].
pub async fn complete(
    app: &Arc<App>,
    secret: &LinkSecret,
    new: Password,
    credentials: Credentials,
    ip: IpAddr,
) -> HandlerResult<bool> {
    let now = app.now();
    let hash = app.people.passwords.hash(new).await?;
    let mut tx = app.store.begin().await?;
    let link = links::consume(&mut tx, SecretHash(secret.hash()), Kind::PasswordReset, now).await?;
    let Some(link) = link else {
        return Ok(false);
    };
    users::lock(&mut tx, link.user_id).await?;
    let user = users::by_id(&mut tx, link.user_id).await?;
    let Some(user) = user.filter(|user| may_use(user, &link)) else {
        return Ok(false);
    };
    if !user.email_verified {
        start_afresh(&mut tx, &user, now).await?;
    }
    users::set_password(&mut tx, user.id, Some(&PasswordHash(hash)), now).await?;
    users::verify_email(&mut tx, user.id, &link.email, now).await?;
    links::revoke(&mut tx, user.id, Kind::PasswordReset, now).await?;
    store::sessions::end_all(&mut tx, user.id, None, now).await?;
    let actor = Actor::user(user.id).with_ip(ip);
    audit::record(
        &mut tx,
        &actor,
        None,
        Action::PasswordReset,
        AuditTarget::User(user.id),
        now,
    )
    .await?;
    credentials.apply(&mut tx, user.id, &actor, now).await?;
    reset_all(&mut tx, &user).await?;
    tx.commit().await?;
    notices::send(app, &user, &Notice::PasswordReset, ip, now);
    Ok(true)
}

/// Removes every other credential of the account, because their creator never verified the address.
/// An attacker could have invited the owner's address, followed the link, and left a token or a
/// passkey until the owner signs up (account pre-hijacking).
async fn start_afresh(tx: &mut Tx, user: &User, now: Timestamp) -> HandlerResult<()> {
    store::credentials::revoke_all(tx, user.id, now).await?;
    store::passkeys::delete_all(tx, user.id).await?;
    users::remove_totp(tx, user.id, now).await?;
    users::set_recovery_codes(tx, user.id, &[]).await?;
    Ok(())
}

fn may_use(user: &User, link: &Link) -> bool {
    user.status == Status::Active && store::fold_case(&user.email) == store::fold_case(&link.email)
}

/// Lifetime of a link. It is long enough for slow mail, and short because other people may read the
/// mailbox.
const LIFETIME: SignedDuration = SignedDuration::from_hours(1);

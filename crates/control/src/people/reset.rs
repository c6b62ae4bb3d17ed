//! Setting a new password without the old one, by a link that is sent by mail.

use std::net::IpAddr;
use std::sync::Arc;

use daemon::connections::source_network;
use jiff::{SignedDuration, Timestamp};
use store::links::{self, Kind, Link};
use store::users::{self, Status, User};
use store::{PasswordHash, SecretHash, Tx};
use types::problem::Problem;

use super::accounts::Credentials;
use super::attempts::forgive_all;
use super::email::Email;
use super::notices::{self, Notice};
use super::password::Password;
use super::secret_link::LinkSecret;
use super::session::later;
use super::sign_in::hash_refusal;
use super::throttle::TooSoon;
use crate::app::App;
use crate::audit::{self, Action, Actor, Target};
use crate::mail::Message;
use crate::problem::Answer;

/// Sends a link to the address, if somebody has it. Whoever asks is not told which: the answer is
/// the same and takes as long, because the mail goes out after it.
///
/// # Errors
/// The place asks too often, or the database is away. That an account was sent too many mails is
/// not said either.
pub async fn request(app: &Arc<App>, email: Email, ip: IpAddr) -> Answer<()> {
    let now = app.now();
    let requests = &app.people.resets;
    if let Err(TooSoon(seconds)) = requests.places.begin(&source_network(ip), now) {
        return Err(Problem::too_many_requests()
            .with_retry_after(seconds)
            .into());
    }
    let user = users::by_email(&mut *app.store.read().await?, email.as_str()).await?;
    if requests.accounts.begin(&email, now).is_err() {
        return Ok(());
    }
    let Some(user) = user.filter(|user| user.status == Status::Active) else {
        return Ok(());
    };
    let app_of_task = Arc::clone(app);
    app.people.after_answer(async move {
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

async fn send(app: &App, user: &User, email: Email, ip: IpAddr, now: Timestamp) -> Answer<()> {
    let secret = LinkSecret::draw()?;
    let link = Link {
        user_id: user.id,
        kind: Kind::PasswordReset,
        email: email.as_str().to_owned(),
        created_at: now,
        expires_at: later(now, LIFETIME),
    };
    let mut tx = app.store.begin().await?;
    // The newest link is the only one: an older mail that somebody finds opens nothing.
    links::revoke(&mut tx, user.id, Kind::PasswordReset, now).await?;
    links::insert(&mut tx, SecretHash(secret.hash()), &link).await?;
    let actor = Actor::nobody().at(ip);
    audit::record(
        &mut tx,
        &actor,
        None,
        Action::ResetRequested,
        Target::User(user.id),
        now,
    )
    .await?;
    tx.commit().await?;
    let address = app.config.url(&format!("/reset/{}", secret.reveal()));
    let text = format!(
        "Hello {name},\n\nsomebody, perhaps you, asked to set a new password for your account at \
         {platform}. With this link you do it; it works once, within an hour:\n\n{address}\n\n\
         If it was not you, there is nothing to do: your password stays as it is.\n",
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

/// The person whom a link is for, if it still works.
pub async fn person(app: &App, secret: &LinkSecret) -> Answer<Option<User>> {
    let mut read = app.store.read().await?;
    let hash = SecretHash(secret.hash());
    let Some(link) = links::live(&mut read, hash, Kind::PasswordReset, app.now()).await? else {
        return Ok(None);
    };
    let user = users::by_id(&mut read, link.user_id).await?;
    Ok(user.filter(|user| may_use(user, &link)))
}

/// Sets the password, uses the link up, and ends every session of the person. False: the link does
/// not work (any more). The second factor stays: a mailbox alone opens no account that has one.
/// Unless nobody had proved the address before: see [`start_afresh`].
pub async fn complete(
    app: &Arc<App>,
    secret: &LinkSecret,
    new: Password,
    credentials: Credentials,
    ip: IpAddr,
) -> Answer<bool> {
    let now = app.now();
    let hash = app
        .people
        .passwords
        .hash(new)
        .await
        .map_err(|error| hash_refusal(&error))?;
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
    let actor = Actor::person(user.id).at(ip);
    audit::record(
        &mut tx,
        &actor,
        None,
        Action::PasswordReset,
        Target::User(user.id),
        now,
    )
    .await?;
    credentials.apply(&mut tx, user.id, &actor, now).await?;
    forgive_all(&mut tx, &user).await?;
    tx.commit().await?;
    notices::send(app, &user, &Notice::PasswordReset, ip, now);
    Ok(true)
}

/// Takes away whatever opens the account beside its password. Whoever made it never proved to hold
/// the address: it may be somebody who invited another's address, followed the link, and left a
/// token or a passkey behind for the day when the owner comes (account pre-hijacking).
async fn start_afresh(tx: &mut Tx, user: &User, now: Timestamp) -> Answer<()> {
    store::credentials::revoke_all(tx, user.id, now).await?;
    store::passkeys::delete_all(tx, user.id).await?;
    users::remove_totp(tx, user.id, now).await?;
    users::set_recovery_codes(tx, user.id, &[]).await?;
    Ok(())
}

fn may_use(user: &User, link: &Link) -> bool {
    user.status == Status::Active && store::fold(&user.email) == store::fold(&link.email)
}

/// How long a link works: long enough for slow mail, short for a mailbox that others read.
const LIFETIME: SignedDuration = SignedDuration::from_hours(1);

//! Another mail address, or the proof of the present one: by a link that is sent to it.
//!
//! The link works for whoever is signed in as the person who asked, and for nobody else. Were the
//! mailbox alone enough, somebody could write another's address into an account of their own and
//! wait for the other to follow the link: the account would then hold an address that is proved,
//! and the OpenID provider would let its owner into it.

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
use super::throttle::TooSoon;
use crate::app::App;
use crate::audit::{self, Action, Actor, Target};
use crate::mail::Message;
use crate::problem::Answer;

/// Sends a link to the address. The caller has seen a proof of who the person is. Whether somebody
/// else has the address is not told: its owner gets a mail that says so instead.
///
/// # Errors
/// The address, or this person, got too many mails lately.
pub async fn request(app: &Arc<App>, who: &SignedIn, email: Email, ip: IpAddr) -> Answer<()> {
    let now = app.now();
    let own = Email::parse(&who.user.email).map_err(|_| Problem::internal())?;
    // Counted by whom it is for, and by who asks: neither is flooded, nor floods.
    let changes = &app.people.changes;
    let keys = [Some(&email), Some(&own).filter(|own| **own != email)];
    for key in keys.into_iter().flatten() {
        changes.begin(key, now).map_err(|TooSoon(seconds)| {
            let detail = "Too many mails were asked for. Wait a little and try again.";
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
    // The newest link is the only one: an older mail that somebody finds changes nothing.
    links::revoke(&mut tx, id, Kind::Email, now).await?;
    links::insert(&mut tx, SecretHash(secret.hash()), &link).await?;
    let actor = Actor::person(id).at(ip);
    let action = Action::EmailChangeRequested;
    audit::record(&mut tx, &actor, None, action, Target::User(id), now).await?;
    tx.commit().await?;
    let message = if is_taken {
        already_taken(app, email)
    } else {
        link_mail(app, &who.user, email, &secret)
    };
    post(app, message, now);
    Ok(())
}

/// The address that a change is under way to. That of a proof of the present one is none.
pub async fn pending(app: &App, user: &User) -> Answer<Option<String>> {
    let mut read = app.store.read().await?;
    let link = links::pending(&mut read, user.id, Kind::Email, app.now()).await?;
    let other = link.filter(|link| store::fold(&link.email) != store::fold(&user.email));
    Ok(other.map(|link| link.email))
}

/// The address that a link puts into force, if it still works and is this person's.
pub async fn address(app: &App, who: &SignedIn, secret: &LinkSecret) -> Answer<Option<String>> {
    let mut read = app.store.read().await?;
    let hash = SecretHash(secret.hash());
    let link = links::live(&mut read, hash, Kind::Email, app.now()).await?;
    let own = link.filter(|link| link.user_id == who.user.id);
    Ok(own.map(|link| link.email))
}

/// Puts the address into force and uses the link up; whoever reads the old address gets a notice.
/// False: the link does not work (any more), is another's, or somebody has the address by now.
pub async fn complete(
    app: &Arc<App>,
    who: &SignedIn,
    secret: &LinkSecret,
    ip: IpAddr,
) -> Answer<bool> {
    let now = app.now();
    let user = &who.user;
    let mut tx = app.store.begin().await?;
    let link = links::consume(&mut tx, SecretHash(secret.hash()), Kind::Email, now).await?;
    // The transaction is dropped where this is `None`, and nothing was used up.
    let Some(link) = link.filter(|link| link.user_id == user.id) else {
        return Ok(false);
    };
    let is_change = store::fold(&link.email) != store::fold(&user.email);
    let changed = users::set_email(&mut tx, user.id, &user.name, &link.email, true, now).await;
    match changed {
        Ok(_) => {}
        Err(error) if error.conflict() == Some(Conflict::EmailTaken) => return Ok(false),
        Err(error) => return Err(error.into()),
    }
    // What was sent to the old address opens nothing any more.
    links::revoke(&mut tx, user.id, Kind::PasswordReset, now).await?;
    let actor = Actor::person(user.id).at(ip);
    let action = if is_change {
        Action::EmailChanged
    } else {
        Action::EmailVerified
    };
    audit::record(&mut tx, &actor, None, action, Target::User(user.id), now).await?;
    tx.commit().await?;
    if is_change && let Ok(old) = Email::parse(&user.email) {
        post(app, notice(app, user, old, &link.email), now);
    }
    Ok(true)
}

fn post(app: &Arc<App>, message: Message, now: Timestamp) {
    let app_of_task = Arc::clone(app);
    app.people.after_answer(async move {
        if let Err(error) = app_of_task.people.mailer.send(message, now).await {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "a mail about an address could not be sent"
            );
        }
    });
}

fn link_mail(app: &App, user: &User, email: Email, secret: &LinkSecret) -> Message {
    let address = app
        .config
        .url(&format!("/account/email/{}", secret.reveal()));
    let text = format!(
        "Hello {name},\n\nyou want to use this address for your account at {platform}. With this \
         link you confirm it, while you are signed in; it works once, within an hour:\n\n\
         {address}\n\nIf it was not you, there is nothing to do: somebody mistyped their own.\n",
        name = user.name,
        platform = app.config.base_url,
    );
    Message::new(email, "Confirm your mail address", text)
}

fn already_taken(app: &App, email: Email) -> Message {
    let text = format!(
        "Hello,\n\nsomebody, perhaps you, wants to use this address for another account at \
         {platform}. It is in use by an account already, so nothing was changed.\n",
        platform = app.config.base_url,
    );
    Message::new(email, "Your mail address is in use already", text)
}

fn notice(app: &App, user: &User, old: Email, new: &str) -> Message {
    let text = format!(
        "Hello {name},\n\nyour account at {platform} now uses the address {new} in place of this \
         one.\n\nIf it was not you, tell whoever runs the platform at once.\n",
        name = user.name,
        platform = app.config.base_url,
    );
    Message::new(old, "Your mail address was changed", text)
}

/// How long a link works: long enough for slow mail, short for a mailbox that others read.
const LIFETIME: SignedDuration = SignedDuration::from_hours(1);

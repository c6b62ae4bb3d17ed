//! Mails about personal access tokens that expire soon.

use jiff::{SignedDuration, Timestamp};
use store::Store;
use store::credentials::expiry::{self, ExpiringToken};
use store::users::{self, Status, User};
use types::id::{CredentialId, UserId};

use crate::app::App;
use crate::http_api::problem::HandlerResult;
use crate::http_api::user_text::printable;
use crate::mail::Message;
use crate::people::email::Email;

/// Notifies the owners of personal access tokens that expire within [`NOTICE`], once for each token.
/// The mails are sent after this returns. A mail whose failure is temporary is sent again in a later
/// pass.
///
/// # Errors
/// The database; tokens that were not announced are announced in a later pass.
pub(crate) async fn notify(app: &App) -> HandlerResult<()> {
    let limit = app.people.notice_limit(BATCH);
    if limit == 0 {
        return Ok(());
    }
    let now = app.now();
    let end = now.saturating_add(NOTICE).unwrap_or(Timestamp::MAX);
    let mut tx = app.store.begin().await?;
    let tokens = expiry::take(&mut tx, now, end, limit).await?;
    let mut messages = Vec::new();
    for owned in tokens.chunk_by(|left, right| left.user_id == right.user_id) {
        let Some(owner) = owned.first().map(|token| token.user_id) else {
            continue;
        };
        // Users without a usable account or address get no mail.
        if let Some((user, email)) = recipient(&mut tx, owner).await? {
            let message = Message::new(email, SUBJECT, text(app, &user, owned));
            let ids: Vec<_> = owned.iter().map(|token| token.id).collect();
            messages.push((message, ids));
        }
    }
    tx.commit().await?;
    for (message, ids) in messages {
        let store = app.store.clone();
        let release = async move { release(&store, &ids).await };
        app.people
            .send_notice(message, now, "expiring tokens", release);
    }
    Ok(())
}

/// The owner with their address, if the account is in use and the address is valid.
async fn recipient(conn: &mut store::Conn, owner: UserId) -> HandlerResult<Option<(User, Email)>> {
    let user = users::by_id(conn, owner).await?;
    let user = user.filter(|user| user.status == Status::Active);
    Ok(user.and_then(|user| {
        let email = Email::parse(&user.email).ok()?;
        Some((user, email))
    }))
}

/// Lets a later pass announce the tokens.
async fn release(store: &Store, ids: &[CredentialId]) -> Result<(), store::Error> {
    let mut tx = store.begin().await?;
    expiry::release(&mut tx, ids).await?;
    tx.commit().await
}

fn text(app: &App, owner: &User, tokens: &[ExpiringToken]) -> String {
    let line = |token: &ExpiringToken| {
        let end = token.expires_at.strftime("%Y-%m-%d %H:%M UTC");
        format!("  {end}  \"{}\" ({})\n", printable(&token.name), token.id)
    };
    let mut list: String = tokens.iter().take(MAX_LISTED).map(line).collect();
    if let more @ 1.. = tokens.len().saturating_sub(MAX_LISTED) {
        list.extend(["  and ", &more.to_string(), " more\n"]);
    }
    format!(
        "Hello {name},\n\nthese tokens of your account at {platform} expire soon:\n\n{list}\n\
         Programs that use them are refused after that time. Replace a token that is still in use \
         with `svc credential rotate ID`, or create another one.\n\
         To replace the token of an application, link it again.\n\n\
         Your account: {account}\n",
        name = printable(&owner.name),
        platform = app.config.base_url,
        account = app.config.url("/account"),
    )
}

const SUBJECT: &str = "Tokens of your account expire soon";

/// Enough time to replace a token, also over a weekend or a holiday.
const NOTICE: SignedDuration = SignedDuration::from_hours(7 * 24);

/// Maximum number of tokens of one pass, and of notices that wait. It is below the number of mails
/// that may wait, which other mails share.
const BATCH: u32 = 100;

/// Tokens in one mail, as many as a person reads. A program can issue hundreds.
const MAX_LISTED: usize = 20;

//! Mails about uploaded certificates that expire soon.

use store::domains::{self, Domain};
use store::members::Member;
use store::projects::{self, Project};
use store::{Store, Tx};
use types::id::DomainId;

use super::notice::recipients;
use crate::app::App;
use crate::http_api::problem::HandlerResult;
use crate::http_api::user_text::printable;
use crate::mail::Message;

/// Notifies the owners of the workspace, and the user that added the domain, of uploaded certificates
/// that expire soon, once for each certificate. The mails are sent after this returns. A certificate
/// whose mail fails for a time is announced again in a later pass.
///
/// # Errors
/// The database; certificates that were not announced are announced in a later pass.
pub(crate) async fn notify(app: &App) -> HandlerResult<()> {
    let limit = app.people.notice_limit(BATCH);
    if limit == 0 {
        return Ok(());
    }
    let now = app.now();
    let mut tx = app.store.begin().await?;
    let mut messages = Vec::new();
    for domain in domains::take_expiring(&mut tx, now, limit).await? {
        messages.extend(messages_about(app, &mut tx, &domain).await?);
    }
    tx.commit().await?;
    for (message, id) in messages {
        let store = app.store.clone();
        let release = async move { release(&store, id).await };
        app.people
            .send_notice(message, now, "an expiring certificate", release);
    }
    Ok(())
}

async fn messages_about(
    app: &App,
    tx: &mut Tx,
    domain: &Domain,
) -> HandlerResult<Vec<(Message, DomainId)>> {
    // The domains of a deleted project are deleted with it.
    let Some(project) = projects::by_id(tx, domain.project_id).await? else {
        return Ok(Vec::new());
    };
    let to = recipients(tx, &project, domain).await?;
    let messages = to.into_iter().map(|(member, email)| {
        let subject = format!("{}: the certificate expires soon", domain.hostname);
        let text = text(app, &project, domain, &member);
        (Message::new(email, subject, text), domain.id)
    });
    Ok(messages.collect())
}

/// Lets a later pass announce the certificate.
async fn release(store: &Store, id: DomainId) -> Result<(), store::Error> {
    let mut tx = store.begin().await?;
    domains::release_notice(&mut tx, id).await?;
    tx.commit().await
}

fn text(app: &App, project: &Project, domain: &Domain, recipient: &Member) -> String {
    let end = domain.certificate_expires_at;
    let end = end.map(|end| end.strftime("%Y-%m-%d %H:%M UTC").to_string());
    format!(
        "Hello {name},\n\nthe certificate that was uploaded for this domain expires soon:\n\n\
         Domain: {domain}\nProject: {project} ({endpoint})\nExpires: {end}\n\n\
         Browsers refuse it after that time. Upload the next one:\n\n  \
         svc domain certificate set {id} --cert FILE --key FILE\n\n\
         or let the engine order one:\n\n  svc domain certificate remove {id}\n\n\
         The platform: {platform}\n",
        name = printable(&recipient.name),
        end = end.unwrap_or_default(),
        domain = domain.hostname,
        project = printable(&project.name),
        endpoint = project.endpoint,
        id = domain.id,
        platform = app.config.base_url,
    )
}

/// Maximum number of certificates of one pass. It is below the number of mails that may wait, which
/// other mails share, although each one can have several recipients.
const BATCH: u32 = 20;

//! Mails about domains whose records are missing.

use std::sync::Arc;

use api::control::domains::DomainRecord;
use jiff::Timestamp;
use store::Conn;
use store::domains::Domain;
use store::members::{self, Member, Status};
use store::projects::Project;

use super::lifecycle::{Change, releases_at, suspends_at};
use super::records::ExpectedRecords;
use crate::app::App;
use crate::http_api::problem::HandlerResult;
use crate::http_api::user_text::printable;
use crate::mail::Message;
use crate::people::email::Email;

/// Notifies the owners of the workspace, and the user that added the domain, of a change for the
/// worse. The mails are sent after this returns.
///
/// # Errors
/// The database.
pub(super) async fn send(
    app: &Arc<App>,
    project: &Project,
    domain: &Domain,
    change: Change,
    now: Timestamp,
) -> HandlerResult<()> {
    let Some(notice) = notice_text(domain, change) else {
        return Ok(());
    };
    let records = ExpectedRecords::new(app, project, domain)?.to_api();
    let mut conn = app.store.read().await?;
    let recipients = recipients(&mut conn, project, domain).await?;
    drop(conn);
    for (member, email) in recipients {
        let subject = format!("{}: {}", domain.hostname, notice.subject);
        let text = text(app, (project, domain), &member, &notice, &records);
        let message = Message::new(email, subject, text);
        let failure = "a notice about a domain could not be sent";
        app.people.mail_after_response(message, now, failure);
    }
    Ok(())
}

/// The owners of the workspace, and the user that added the domain, with their addresses.
///
/// # Errors
/// The database.
pub(super) async fn recipients(
    conn: &mut Conn,
    project: &Project,
    domain: &Domain,
) -> HandlerResult<Vec<(Member, Email)>> {
    let workspace = project.workspace_id;
    let owners = members::first_owners(conn, workspace, MAX_OWNERS).await?;
    let creator = members::by_user(conn, workspace, domain.created_by).await?;
    let owners = owners.into_iter();
    let others = owners.filter(|member| member.id != domain.created_by);
    let creator = creator.filter(|member| member.status == Status::Active);
    let members = creator.into_iter().chain(others);
    let with_address = members.filter_map(|member| {
        let email = Email::parse(&member.email).ok()?;
        Some((member, email))
    });
    Ok(with_address.collect())
}

/// Subject and first paragraph of a mail about a change.
struct NoticeText {
    subject: &'static str,
    paragraph: String,
}

/// `None` for a change that needs no mail.
fn notice_text(domain: &Domain, change: Change) -> Option<NoticeText> {
    let shown = |at: Option<Timestamp>| {
        at.unwrap_or(domain.next_check_at)
            .strftime("%Y-%m-%d %H:%M UTC")
            .to_string()
    };
    Some(match change {
        Change::Verified => return None,
        Change::Warned => NoticeText {
            subject: "DNS records are missing",
            paragraph: format!(
                "The DNS records of the domain were not found. It is served until {}. If the records \
                 are still missing then, it is suspended.",
                shown(suspends_at(domain))
            ),
        },
        Change::Suspended => NoticeText {
            subject: "the domain is suspended",
            paragraph: format!(
                "The DNS records of the domain have been missing for days, so it is not served any \
                 more. The project holds it until {}.",
                shown(releases_at(domain))
            ),
        },
        Change::Released => NoticeText {
            subject: "the domain is released",
            paragraph: format!(
                "The DNS records of the domain have been missing for weeks, so the project no longer \
                 holds it. Until {} no other project can have it, and the project can verify it \
                 again.",
                shown(domain.quarantine_until)
            ),
        },
    })
}

fn text(
    app: &App,
    (project, domain): (&Project, &Domain),
    recipient: &Member,
    notice: &NoticeText,
    records: &[DomainRecord],
) -> String {
    let lines: Vec<_> = records
        .iter()
        .map(|record| format!("  {}  {}  {}", record.kind, record.name, record.value))
        .collect();
    let lines = lines.join("\n");
    format!(
        "Hello {name},\n\n{paragraph}\n\nDomain: {domain}\nProject: {project} ({endpoint})\n\n\
         Records to enter:\n\n{lines}\n\nAfter that, check them with `svc domain verify {id}`. If the \
         domain is not needed any more, remove it with `svc domain remove {id}`.\n\n\
         The platform: {platform}\n",
        name = printable(&recipient.name),
        paragraph = notice.paragraph,
        domain = domain.hostname,
        project = printable(&project.name),
        endpoint = project.endpoint,
        id = domain.id,
        platform = app.config.base_url,
    )
}

/// Owners that get a notice.
const MAX_OWNERS: u32 = 10;

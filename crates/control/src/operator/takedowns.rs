//! Taking down single host names of tunnels, and the list of them for the members of a project.
//!
//! Engines get the names with their projects, so a takedown takes effect within a second, also for
//! visitors that are connected.

use std::sync::Arc;

use api::control::takedowns::{CreateTakedown, OperatorTakedownList, Takedown, TakedownList};
use axum::Json;
use axum::extract::State;
use http::StatusCode;
use serde_json::json;
use store::members;
use store::projects::{self, Project};
use store::takedowns::{self, Takedown as Row};
use store::{Conn, domains};
use types::domain_name::DomainName;
use types::permission::Permission;
use types::problem::Problem;
use types::tunnel::Hostname;

use super::Reason;
use crate::app::App;
use crate::audit::{self, Action, Actor, AuditTarget};
use crate::caller::access;
use crate::caller::{Caller, Operator, ProjectsRead};
use crate::http_api::extract::{Body, ClientIp, Query, Segment};
use crate::http_api::problem::{HandlerResult, Refusal, bad};
use crate::http_api::user_text::printable;
use crate::http_api::wire::date;
use crate::mail::Message;
use crate::people::email::Email;
use crate::projects::region_of;

pub(super) async fn list(
    _: Operator,
    State(app): State<Arc<App>>,
    mut query: Query,
) -> HandlerResult<Json<OperatorTakedownList>> {
    let page = query.page()?;
    query.finish()?;
    let mut read = app.store.read().await?;
    let found = takedowns::list_all(&mut read, page.rows()).await?;
    Ok(Json(OperatorTakedownList {
        takedowns: found.items.into_iter().map(view).collect(),
        paging: page.position(found.total),
    }))
}

/// Takes down a host name, and notifies the owners of the workspace after the response.
pub(super) async fn create(
    operator: Operator,
    State(app): State<Arc<App>>,
    ClientIp(ip): ClientIp,
    Body(body): Body<CreateTakedown>,
) -> HandlerResult<(StatusCode, Json<Takedown>)> {
    let reason = Reason::parse(&body.reason)?;
    let hostname = parse_hostname(&body.hostname)?;
    let now = app.now();
    let mut tx = app.store.begin().await?;
    let project = project_of(&app, &mut tx, &hostname).await?;
    let count = takedowns::count_of_project(&mut tx, project.id).await?;
    if count >= MAX_PER_PROJECT {
        let detail = "Too many names of this project are taken down; suspend the project.";
        return Err(Problem::conflict().with_detail(detail).into());
    }
    let row = Row {
        hostname,
        project_id: project.id,
        reason: reason.as_str().to_owned(),
        created_by: operator.principal.user.id,
        created_at: now,
    };
    if !takedowns::insert(&mut tx, &row).await? {
        let detail = "The host name is taken down already.";
        return Err(Problem::conflict().with_detail(detail).into());
    }
    let actor = Actor::caller(&operator.principal).with_ip(ip);
    let workspace = Some(project.workspace_id);
    let action = Action::HostnameTakenDown;
    let target = AuditTarget::Project(project.id);
    let details = json!({"hostname": row.hostname, "reason": row.reason});
    audit::record_with(&mut tx, &actor, workspace, action, target, details, now).await?;
    let messages = notices(&app, &mut tx, &project, &row).await?;
    tx.commit().await?;
    for message in messages {
        let failure = "a notice about a taken down host name could not be sent";
        app.people.mail_after_response(message, now, failure);
    }
    Ok((StatusCode::CREATED, Json(view(row))))
}

/// Restores a host name.
pub(super) async fn delete(
    operator: Operator,
    State(app): State<Arc<App>>,
    Segment(hostname): Segment,
    ClientIp(ip): ClientIp,
) -> HandlerResult<StatusCode> {
    let hostname = parse_hostname(&hostname).map_err(|_| Problem::not_found())?;
    let now = app.now();
    let mut tx = app.store.begin().await?;
    let deleted = takedowns::delete(&mut tx, &hostname, now).await?;
    let row = deleted.ok_or_else(Problem::not_found)?;
    // A takedown can outlive its project.
    let project = projects::by_id(&mut tx, row.project_id).await?;
    let workspace = project.map(|project| project.workspace_id);
    let actor = Actor::caller(&operator.principal).with_ip(ip);
    let action = Action::HostnameRestored;
    let target = AuditTarget::Project(row.project_id);
    let details = json!({"hostname": row.hostname});
    audit::record_with(&mut tx, &actor, workspace, action, target, details, now).await?;
    tx.commit().await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The taken down names of a project, for its members.
pub(super) async fn of_project(
    caller: Caller<ProjectsRead>,
    State(app): State<Arc<App>>,
    Segment(id): Segment,
    query: Query,
) -> HandlerResult<Json<TakedownList>> {
    query.finish()?;
    let mut conn = app.store.read().await?;
    let permission = Permission::AccountProjectsReadOnly;
    let found = access::project(&mut conn, &caller.principal, &id, permission).await?;
    let rows = takedowns::of_project(&mut conn, found.project.id, MAX_SHOWN).await?;
    Ok(Json(TakedownList {
        takedowns: rows.into_iter().map(view).collect(),
    }))
}

/// Parses a host name without a port. A trailing dot, upper case and internationalised names are
/// accepted.
fn parse_hostname(given: &str) -> HandlerResult<String> {
    let given = given.trim();
    if let Ok(hostname) = given.parse::<Hostname>()
        && !hostname.is_label()
    {
        return Ok(hostname.as_str().to_owned());
    }
    let domain = given.parse::<DomainName>().ok();
    let domain = domain.filter(|domain| !domain.is_wildcard());
    domain
        .map(|domain| domain.as_str().to_owned())
        .ok_or_else(|| {
            let detail = "hostname: it must be one complete host name without a port";
            bad("hostname", detail)
        })
}

/// The endpoint and the cluster's domain in the name `<slug>-<endpoint>.t.<domain>`. Engines accept
/// any slug.
fn endpoint_and_domain(hostname: &str) -> Option<(&str, &str)> {
    let (label, domain) = hostname.split_once(".t.")?;
    let (_, endpoint) = label.rsplit_once('-')?;
    (!label.contains('.')).then_some((endpoint, domain))
}

/// The project that has a host name, by its endpoint or by a custom domain.
async fn project_of(app: &App, conn: &mut Conn, hostname: &str) -> HandlerResult<Project> {
    if let Some((endpoint, domain)) = endpoint_and_domain(hostname) {
        let project = projects::by_endpoint(conn, endpoint).await?;
        let is_there = |project: &Project| {
            region_of(app, project).is_some_and(|region| region.domain == domain)
        };
        if let Some(project) = project.filter(is_there) {
            return Ok(project);
        }
    }
    let parent = hostname.split_once('.').map(|(_, parent)| parent);
    let wildcard = parent.map(|parent| format!("*.{parent}"));
    for name in [Some(hostname), wildcard.as_deref()].into_iter().flatten() {
        let Some(holder) = domains::holder(conn, name).await? else {
            continue;
        };
        if let Some(project) = projects::by_id(conn, holder).await? {
            return Ok(project);
        }
    }
    Err(unknown())
}

fn unknown() -> Refusal {
    let problem = Problem::not_found().with_detail("No project has this host name.");
    problem.with_field("hostname").into()
}

/// The mails to the owners of the workspace.
async fn notices(
    app: &App,
    conn: &mut Conn,
    project: &Project,
    row: &Row,
) -> HandlerResult<Vec<Message>> {
    let owners = members::first_owners(conn, project.workspace_id, MAX_OWNERS).await?;
    let messages = owners.into_iter().filter_map(|owner| {
        let email = Email::parse(&owner.email).ok()?;
        let subject = format!("{}: taken down", row.hostname);
        let text = format!(
            "Hello {name},\n\nan operator of the platform has taken down the following address. Its \
             visitors are refused; the other tunnels of the project are not affected.\n\n\
             Address: {hostname}\nProject: {project} ({endpoint})\nReason: {reason}\n\n\
             If you do not agree, reply to the operator of the platform.\n\nThe platform: {platform}\n",
            name = printable(&owner.name),
            hostname = row.hostname,
            project = printable(&project.name),
            endpoint = project.endpoint,
            reason = printable(&row.reason),
            platform = app.config.base_url,
        );
        Some(Message::new(email, subject, text))
    });
    Ok(messages.collect())
}

fn view(row: Row) -> Takedown {
    Takedown {
        hostname: row.hostname,
        project_id: row.project_id.to_string(),
        reason: row.reason,
        created_at: date(row.created_at),
    }
}

/// Maximum number of names of a project. They are a part of each update about the project, of which
/// they take a quarter at most.
const MAX_PER_PROJECT: u64 = 1_000;
/// Maximum number of names in the list of a project: those, and some of names that it got later.
const MAX_SHOWN: u32 = 2_000;
/// Owners that get a notice.
const MAX_OWNERS: u32 = 10;

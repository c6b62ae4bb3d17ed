//! `/api/operator/*`.

use std::sync::Arc;

use api::control::operator::{
    OperatorProject, OperatorProjectList, OperatorUser, OperatorUserList, OperatorWorkspace,
    OperatorWorkspaceList, Suspend,
};
use api::control::people::AuditList;
use axum::Json;
use axum::extract::State;
use store::{Order, projects, users, workspaces};
use types::problem::Problem;

use super::{Reason, Subject, resume, suspend};
use crate::app::App;
use crate::audit::{AuditFilter, entry};
use crate::caller::Operator;
use crate::http_api::extract::{Body, ClientIp, Page, Query, Segment};
use crate::http_api::problem::{HandlerResult, Refusal};
use crate::http_api::wire::date;

type AppState = State<Arc<App>>;

pub(super) async fn list_users(
    _: Operator,
    State(app): AppState,
    mut query: Query,
) -> HandlerResult<Json<OperatorUserList>> {
    let sorts = [
        ("id", users::Sort::Id),
        ("email", users::Sort::Email),
        ("name", users::Sort::Name),
    ];
    let list = List::take(&mut query, &sorts)?;
    query.finish()?;
    let mut read = app.store.read().await?;
    let (search, sort, order) = (list.search.as_deref(), list.sort, list.order);
    let found = users::list(&mut read, search, sort, order, list.page.rows()).await?;
    let ids: Vec<_> = found.items.iter().map(|user| user.id).collect();
    let uses = users::last_uses(&mut read, &ids).await?;
    let users = found.items.into_iter();
    Ok(Json(OperatorUserList {
        users: users.map(|row| user(row, &uses)).collect(),
        paging: list.page.position(found.total),
    }))
}

pub(super) async fn get_user(
    _: Operator,
    State(app): AppState,
    Segment(id): Segment,
) -> HandlerResult<Json<OperatorUser>> {
    let mut read = app.store.read().await?;
    let found = users::by_id(&mut read, parse_id(&id)?).await?;
    let found = found.ok_or_else(missing)?;
    let uses = users::last_uses(&mut read, &[found.id]).await?;
    Ok(Json(user(found, &uses)))
}

pub(super) async fn suspend_user(
    operator: Operator,
    State(app): AppState,
    Segment(id): Segment,
    ClientIp(ip): ClientIp,
    Body(body): Body<Suspend>,
) -> HandlerResult<Json<OperatorUser>> {
    let reason = Reason::parse(&body.reason)?;
    let subject = Subject::User(parse_id(&id)?);
    suspend(&app, &operator, ip, subject, &reason).await?;
    get_user(operator, State(app), Segment(id)).await
}

pub(super) async fn resume_user(
    operator: Operator,
    State(app): AppState,
    Segment(id): Segment,
    ClientIp(ip): ClientIp,
) -> HandlerResult<Json<OperatorUser>> {
    resume(&app, &operator, ip, Subject::User(parse_id(&id)?)).await?;
    get_user(operator, State(app), Segment(id)).await
}

pub(super) async fn list_workspaces(
    _: Operator,
    State(app): AppState,
    mut query: Query,
) -> HandlerResult<Json<OperatorWorkspaceList>> {
    let sorts = [
        ("id", workspaces::Sort::Id),
        ("name", workspaces::Sort::Name),
    ];
    let list = List::take(&mut query, &sorts)?;
    query.finish()?;
    let mut read = app.store.read().await?;
    let (search, sort, order) = (list.search.as_deref(), list.sort, list.order);
    let found = workspaces::list(&mut read, search, sort, order, list.page.rows()).await?;
    Ok(Json(OperatorWorkspaceList {
        workspaces: found.items.into_iter().map(workspace).collect(),
        paging: list.page.position(found.total),
    }))
}

pub(super) async fn get_workspace(
    _: Operator,
    State(app): AppState,
    Segment(id): Segment,
) -> HandlerResult<Json<OperatorWorkspace>> {
    let mut read = app.store.read().await?;
    let found = workspaces::by_id(&mut read, parse_id(&id)?).await?;
    found.map(workspace).map(Json).ok_or_else(missing)
}

pub(super) async fn suspend_workspace(
    operator: Operator,
    State(app): AppState,
    Segment(id): Segment,
    ClientIp(ip): ClientIp,
    Body(body): Body<Suspend>,
) -> HandlerResult<Json<OperatorWorkspace>> {
    let reason = Reason::parse(&body.reason)?;
    let subject = Subject::Workspace(parse_id(&id)?);
    suspend(&app, &operator, ip, subject, &reason).await?;
    get_workspace(operator, State(app), Segment(id)).await
}

pub(super) async fn resume_workspace(
    operator: Operator,
    State(app): AppState,
    Segment(id): Segment,
    ClientIp(ip): ClientIp,
) -> HandlerResult<Json<OperatorWorkspace>> {
    resume(&app, &operator, ip, Subject::Workspace(parse_id(&id)?)).await?;
    get_workspace(operator, State(app), Segment(id)).await
}

pub(super) async fn list_projects(
    _: Operator,
    State(app): AppState,
    mut query: Query,
) -> HandlerResult<Json<OperatorProjectList>> {
    let list = List::take(&mut query, &crate::projects::SORTS)?;
    query.finish()?;
    let mut read = app.store.read().await?;
    let (search, sort, order) = (list.search.as_deref(), list.sort, list.order);
    let found = projects::list_all(&mut read, search, sort, order, list.page.rows()).await?;
    Ok(Json(OperatorProjectList {
        projects: found.items.into_iter().map(project).collect(),
        paging: list.page.position(found.total),
    }))
}

pub(super) async fn get_project(
    _: Operator,
    State(app): AppState,
    Segment(id): Segment,
) -> HandlerResult<Json<OperatorProject>> {
    let mut read = app.store.read().await?;
    let found = projects::by_id(&mut read, parse_id(&id)?).await?;
    found.map(project).map(Json).ok_or_else(missing)
}

pub(super) async fn suspend_project(
    operator: Operator,
    State(app): AppState,
    Segment(id): Segment,
    ClientIp(ip): ClientIp,
    Body(body): Body<Suspend>,
) -> HandlerResult<Json<OperatorProject>> {
    let reason = Reason::parse(&body.reason)?;
    let subject = Subject::Project(parse_id(&id)?);
    suspend(&app, &operator, ip, subject, &reason).await?;
    get_project(operator, State(app), Segment(id)).await
}

pub(super) async fn resume_project(
    operator: Operator,
    State(app): AppState,
    Segment(id): Segment,
    ClientIp(ip): ClientIp,
) -> HandlerResult<Json<OperatorProject>> {
    resume(&app, &operator, ip, Subject::Project(parse_id(&id)?)).await?;
    get_project(operator, State(app), Segment(id)).await
}

pub(super) async fn list_audit(
    _: Operator,
    State(app): AppState,
    mut query: Query,
) -> HandlerResult<Json<AuditList>> {
    let page = query.page()?;
    let filter = AuditFilter::from_query(&mut query)?.with_actor(&mut query)?;
    query.finish()?;
    let mut read = app.store.read().await?;
    let scope = store::audit::Scope::All;
    let found = store::audit::list(&mut read, scope, &filter.stored(), page.rows()).await?;
    Ok(Json(AuditList {
        entries: found.items.into_iter().map(entry).collect(),
        paging: page.position(found.total),
    }))
}

/// Parameters of every list.
struct List<S> {
    search: Option<String>,
    sort: S,
    order: Order,
    page: Page,
}

impl<S: Copy + Default> List<S> {
    fn take(query: &mut Query, sorts: &[(&str, S)]) -> HandlerResult<Self> {
        let page = query.page()?;
        Ok(Self {
            search: query.text("q").filter(|text| !text.is_empty()),
            sort: query.keyword("sort", sorts)?.unwrap_or_default(),
            order: query.order()?.unwrap_or_default(),
            page,
        })
    }
}

/// Parses an id. An invalid one gives 404.
fn parse_id<T: std::str::FromStr>(id: &str) -> HandlerResult<T> {
    id.parse().map_err(|_| missing())
}

fn missing() -> Refusal {
    Problem::not_found().into()
}

fn user(row: users::User, uses: &[users::LastUse]) -> OperatorUser {
    let last_use = uses.iter().find(|last| last.user_id == row.id);
    OperatorUser {
        id: row.id.to_string(),
        email: row.email,
        name: row.name,
        role: row.role.as_str().to_owned(),
        status: row.status.as_str().to_owned(),
        email_verified: row.email_verified,
        second_factor: row.totp_confirmed_at.is_some(),
        last_seen_at: last_use.map(|last| date(last.used_at)),
        created_at: date(row.created_at),
        updated_at: date(row.updated_at),
    }
}

fn workspace(row: workspaces::Workspace) -> OperatorWorkspace {
    OperatorWorkspace {
        id: row.id.to_string(),
        kind: row.kind.as_str().to_owned(),
        name: row.name,
        status: row.status.as_str().to_owned(),
        subscription_status: row.subscription_status,
        created_at: date(row.created_at),
        updated_at: date(row.updated_at),
    }
}

fn project(row: projects::Project) -> OperatorProject {
    OperatorProject {
        id: row.id.to_string(),
        workspace_id: row.workspace_id.to_string(),
        name: row.name,
        endpoint: row.endpoint,
        plan: row.plan,
        provider: row.provider,
        region: row.region,
        status: row.status.as_str().to_owned(),
        suspended_at: row.suspended_at.map(date),
        created_at: date(row.created_at),
        updated_at: date(row.updated_at),
    }
}

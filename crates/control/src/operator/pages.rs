//! `/operator`: pages for operators.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use store::{Order, Paging, projects, users, workspaces};
use types::percent::escaped;
use types::problem::Problem;

use super::{Reason, Subject};
use crate::app::App;
use crate::caller::Operator;
use crate::http_api::extract::{ClientIp, Path, Query};
use crate::http_api::problem::HandlerResult;
use crate::pages::form::Form;
use crate::pages::layout::{PageRefusal, page, page_with, see_other};
use crate::pages::signed_in;
use crate::people::session::Visitor;

#[derive(Template)]
#[template(path = "operator.html")]
struct OperatorPage {
    kind: Kind,
    kinds: [Kind; 3],
    search: String,
    rows: Vec<Row>,
    total: u64,
    /// Addresses of the previous and the next page.
    previous: Option<String>,
    next: Option<String>,
    note: Option<&'static str>,
    error: Option<String>,
}

struct Row {
    id: String,
    title: String,
    detail: String,
    is_suspended: bool,
    /// True for the operator's own account, which cannot be suspended.
    is_self: bool,
}

/// The three lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Users,
    Workspaces,
    Projects,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Users, Self::Workspaces, Self::Projects];

    const fn path(self) -> &'static str {
        match self {
            Self::Users => "users",
            Self::Workspaces => "workspaces",
            Self::Projects => "projects",
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Self::Users => "Users",
            Self::Workspaces => "Workspaces",
            Self::Projects => "Projects",
        }
    }

    fn parse(text: &str) -> Result<Self, PageRefusal> {
        let found = Self::ALL.into_iter().find(|kind| kind.path() == text);
        found.ok_or_else(|| Problem::not_found().into())
    }

    fn subject(self, id: &str) -> Result<Subject, PageRefusal> {
        let subject = match self {
            Self::Users => id.parse().ok().map(Subject::User),
            Self::Workspaces => id.parse().ok().map(Subject::Workspace),
            Self::Projects => id.parse().ok().map(Subject::Project),
        };
        subject.ok_or_else(|| Problem::not_found().into())
    }
}

/// The first list.
pub(super) async fn home() -> Response {
    see_other("/operator/users")
}

/// One of the lists.
pub(super) async fn list(
    State(app): State<Arc<App>>,
    visitor: Visitor,
    Path(kind): Path<String>,
    mut query: Query,
) -> Result<Response, PageRefusal> {
    let kind = Kind::parse(&kind)?;
    let operator = require_operator(visitor, kind)?;
    let mut shown = operator_page(&app, &operator, kind, &mut query).await?;
    shown.note = match query.text("done").as_deref() {
        Some("suspended") => Some("It was suspended."),
        Some("resumed") => Some("It can be used again."),
        _ => None,
    };
    Ok(page(&shown))
}

/// Suspends the object that the form names.
pub(super) async fn suspend(
    State(app): State<Arc<App>>,
    visitor: Visitor,
    Path((kind, id)): Path<(String, String)>,
    ClientIp(ip): ClientIp,
    mut form: Form,
) -> Result<Response, PageRefusal> {
    let kind = Kind::parse(&kind)?;
    let operator = require_operator(visitor, kind)?;
    let subject = kind.subject(&id)?;
    let done = match Reason::parse(&form.text("reason")) {
        Ok(reason) => super::suspend(&app, &operator, ip, subject, &reason).await,
        Err(refusal) => Err(refusal),
    };
    answer(&app, &operator, kind, done, "suspended").await
}

/// Resumes the object that the form names.
pub(super) async fn resume(
    State(app): State<Arc<App>>,
    visitor: Visitor,
    Path((kind, id)): Path<(String, String)>,
    ClientIp(ip): ClientIp,
    _form: Form,
) -> Result<Response, PageRefusal> {
    let kind = Kind::parse(&kind)?;
    let operator = require_operator(visitor, kind)?;
    let done = super::resume(&app, &operator, ip, kind.subject(&id)?).await;
    answer(&app, &operator, kind, done, "resumed").await
}

/// Redirects to the list, or shows the list with an error.
async fn answer(
    app: &App,
    operator: &Operator,
    kind: Kind,
    done: HandlerResult<()>,
    word: &str,
) -> Result<Response, PageRefusal> {
    let refusal = match done {
        Ok(()) => return Ok(see_other(&format!("/operator/{}?done={word}", kind.path()))),
        Err(refusal) => refusal,
    };
    let problem = refusal.problem();
    if ![400, 409].contains(&problem.status) {
        return Err(refusal.into());
    }
    let mut retry_page = operator_page(app, operator, kind, &mut Query::parse("")?).await?;
    retry_page.error = Some(problem.detail.to_string());
    Ok(page_with(StatusCode::UNPROCESSABLE_ENTITY, &retry_page))
}

/// The operator who visits the page. For all other users it does not exist.
fn require_operator(visitor: Visitor, kind: Kind) -> Result<Operator, PageRefusal> {
    let who = signed_in(visitor, &format!("/operator/{}", kind.path()))?;
    Operator::of(who.principal()).ok_or_else(|| Problem::not_found().into())
}

async fn operator_page(
    app: &App,
    operator: &Operator,
    kind: Kind,
    query: &mut Query,
) -> Result<OperatorPage, PageRefusal> {
    let number = query.page()?.page;
    let search = query.text("q").unwrap_or_default();
    let paging = Paging::new(number, ROWS).unwrap_or(Paging::DEFAULT);
    let q = Some(search.as_str()).filter(|text| !text.is_empty());
    let mut read = app.store.read().await?;
    let (rows, total) = match kind {
        Kind::Users => {
            let (sort, order) = (users::Sort::Email, Order::Asc);
            let found = users::list(&mut read, q, sort, order, paging).await?;
            let rows = found.items.into_iter().map(|user| Row {
                is_self: user.id == operator.principal.user.id,
                is_suspended: user.status == users::Status::Suspended,
                id: user.id.to_string(),
                title: user.name,
                detail: match user.role {
                    users::Role::Admin => format!("{} · operator", user.email),
                    users::Role::User => user.email,
                },
            });
            (rows.collect::<Vec<_>>(), found.total)
        }
        Kind::Workspaces => {
            let (sort, order) = (workspaces::Sort::Name, Order::Asc);
            let found = workspaces::list(&mut read, q, sort, order, paging).await?;
            let rows = found.items.into_iter().map(|workspace| Row {
                is_self: false,
                is_suspended: workspace.status == workspaces::Status::Suspended,
                id: workspace.id.to_string(),
                title: workspace.name,
                detail: workspace.kind.as_str().to_owned(),
            });
            (rows.collect(), found.total)
        }
        Kind::Projects => {
            let (sort, order) = (projects::Sort::Name, Order::Asc);
            let found = projects::list_all(&mut read, q, sort, order, paging).await?;
            let rows = found.items.into_iter().map(|project| Row {
                is_self: false,
                is_suspended: project.suspended_at.is_some(),
                id: project.id.to_string(),
                title: project.name,
                detail: format!("{} · {}", project.endpoint, project.plan),
            });
            (rows.collect(), found.total)
        }
    };
    let last = total.div_ceil(u64::from(ROWS));
    let address = |page: u32| {
        let path = kind.path();
        format!("/operator/{path}?page={page}&q={}", escaped(&search))
    };
    let previous = (number > 1).then(|| address(number - 1));
    let next = (u64::from(number) < last).then(|| address(number + 1));
    Ok(OperatorPage {
        kind,
        kinds: Kind::ALL,
        search,
        rows,
        total,
        previous,
        next,
        note: None,
        error: None,
    })
}

/// Number of rows on a page.
const ROWS: u32 = 50;

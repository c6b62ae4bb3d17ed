//! API for reading domains, and for the support of Domain Connect.

use std::sync::Arc;

use api::control::domains::{Domain, DomainConnect, DomainList};
use axum::Json;
use axum::extract::State;
use hickory_proto::rr::{RData, RecordType};
use store::Conn;
use store::domains;
use store::projects::Project;
use tokio::time::timeout;
use types::domain_name::registered_name;
use types::permission::Permission;
use types::problem::Problem;

use super::check::absolute;
use super::dns::{Answers, LIMIT, NameServerAnswer, Resolver, WalkError};
use super::records::{ExpectedRecords, base_of};
use super::view::view;
use crate::app::App;
use crate::caller::access;
use crate::caller::{Caller, ProjectsRead};
use crate::http_api::extract::{Path, Query, Segment};
use crate::http_api::problem::HandlerResult;
use crate::http_api::user_text::printable;

pub(super) async fn list(
    caller: Caller<ProjectsRead>,
    State(app): State<Arc<App>>,
    Segment(id): Segment,
    query: Query,
) -> HandlerResult<Json<DomainList>> {
    query.finish()?;
    let mut conn = app.store.read().await?;
    let found = access::project(&mut conn, &caller.principal, &id, READ).await?;
    let own = domains::of_project(&mut conn, found.project.id).await?;
    let shown = own.iter().map(|domain| -> HandlerResult<Domain> {
        let expected = ExpectedRecords::new(&app, &found.project, domain)?;
        Ok(view(domain, &expected))
    });
    let domains = shown.collect::<HandlerResult<_>>()?;
    Ok(Json(DomainList { domains }))
}

pub(super) async fn get(
    caller: Caller<ProjectsRead>,
    State(app): State<Arc<App>>,
    Path((project_id, domain_id)): Path<(String, String)>,
) -> HandlerResult<Json<Domain>> {
    let mut conn = app.store.read().await?;
    let found = access::project(&mut conn, &caller.principal, &project_id, READ).await?;
    let domain = find(&mut conn, &found.project, &domain_id).await?;
    let expected = ExpectedRecords::new(&app, &found.project, &domain)?;
    Ok(Json(view(&domain, &expected)))
}

/// Finds out whether the zone names a Domain Connect service, as section 4.1 of the protocol
/// describes.
pub(super) async fn domain_connect(
    caller: Caller<ProjectsRead>,
    State(app): State<Arc<App>>,
    Path((project_id, domain_id)): Path<(String, String)>,
) -> HandlerResult<Json<DomainConnect>> {
    let mut conn = app.store.read().await?;
    let found = access::project(&mut conn, &caller.principal, &project_id, READ).await?;
    let domain = find(&mut conn, &found.project, &domain_id).await?;
    drop(conn);
    let service = service(&app.domains.resolver, base_of(&domain)).await;
    Ok(Json(shown_service(service)))
}

/// The domain of a project with this id.
pub(super) async fn find(
    conn: &mut Conn,
    project: &Project,
    id: &str,
) -> HandlerResult<domains::Domain> {
    let id = id.parse().map_err(|_| Problem::not_found())?;
    let found = domains::by_id(conn, project.id, id).await?;
    Ok(found.ok_or_else(Problem::not_found)?)
}

/// The Domain Connect service that the zone of a name has, if any.
async fn service(resolver: &Resolver, base: &str) -> Result<Option<String>, WalkError> {
    // The record is at the registered name.
    let registered = registered_name(base);
    let Some(name) = absolute(&format!("{DOMAIN_CONNECT}.{registered}")) else {
        return Ok(None);
    };
    let _slot = resolver.slot().await?;
    let mut walk = resolver.walk();
    let answers = timeout(LIMIT, walk.answers(&name, RecordType::TXT)).await;
    let answers = answers.map_err(|_| WalkError::Timeout)??;
    Ok(first_text(&answers))
}

fn first_text(answers: &Answers) -> Option<String> {
    let records = answers.0.iter().flat_map(|(_, answer)| match answer {
        NameServerAnswer::Records(records) => records.as_slice(),
        NameServerAnswer::Alias(_) | NameServerAnswer::Nothing => &[],
    });
    let mut texts = records.filter_map(|data| match data {
        RData::TXT(text) => String::from_utf8(text.txt_data.concat()).ok(),
        _ => None,
    });
    texts.find(|text| is_service(text))
}

/// A host and perhaps a path. The text is shown to the user and never requested here.
fn is_service(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._/:".contains(&byte);
    (1..=MAX_SERVICE_BYTES).contains(&text.len()) && text.bytes().all(is_allowed)
}

fn shown_service(service: Result<Option<String>, WalkError>) -> DomainConnect {
    match service {
        Ok(Some(service)) => DomainConnect {
            supported: true,
            detail: format!(
                "The DNS provider supports Domain Connect at {}. Enter the records with the pages of \
                 the provider.",
                printable(&service)
            ),
            service: Some(service),
        },
        Ok(None) => DomainConnect {
            supported: false,
            service: None,
            detail: "The DNS provider does not offer Domain Connect. Enter the records yourself."
                .to_owned(),
        },
        Err(error) => DomainConnect {
            supported: false,
            service: None,
            detail: format!("The support could not be determined: {error}. Try again later."),
        },
    }
}

const READ: Permission = Permission::AccountProjectsReadOnly;
const DOMAIN_CONNECT: &str = "_domainconnect";

/// The longest host, and a short path.
const MAX_SERVICE_BYTES: usize = 512;

//! Reserved TCP addresses of a project: ports of its cluster.

use std::ops::RangeInclusive;
use std::sync::Arc;

use api::control::addresses::{
    LIST, RELEASE, RESERVE, ReserveTcpAddress, TcpAddress, TcpAddressList,
};
use axum::extract::State;
use axum::{Json, Router};
use http::StatusCode;
use jiff::Timestamp;
use serde_json::json;
use store::addresses::{self, Address};
use store::projects::Project;
use store::{Conflict, Tx};
use types::id::{AddressId, unix_millis};
use types::permission::Permission;
use types::problem::Problem;

use crate::app::App;
use crate::caller::access;
use crate::caller::{Caller, Principal, ProjectsRead, ProjectsWrite};
use crate::http_api::extract::{OptionalBody, Path, Query, Segment};
use crate::http_api::problem::{HandlerResult, Refusal};
use crate::http_api::route::OperationRouter as _;
use crate::http_api::wire::date;
use crate::projects::settings;
use crate::projects::{audit_entry, region_of};
use crate::runtime::jobs::ago;
use crate::runtime::random;

/// The routes of this module.
pub fn routes() -> Router<Arc<App>> {
    Router::new()
        .serve(LIST, list)
        .serve(RESERVE, reserve)
        .serve(RELEASE, release)
}

async fn list(
    caller: Caller<ProjectsRead>,
    State(app): State<Arc<App>>,
    Segment(id): Segment,
    query: Query,
) -> HandlerResult<Json<TcpAddressList>> {
    query.finish()?;
    let permission = Permission::AccountProjectsReadOnly;
    let mut conn = app.store.read().await?;
    let found = access::project(&mut conn, &caller.principal, &id, permission).await?;
    let own = addresses::of_project(&mut conn, found.project.id).await?;
    let addresses = own.into_iter().map(to_api).collect::<HandlerResult<_>>()?;
    Ok(Json(TcpAddressList { addresses }))
}

async fn reserve(
    Caller { principal: who, .. }: Caller<ProjectsWrite>,
    State(app): State<Arc<App>>,
    Segment(id): Segment,
    OptionalBody(_): OptionalBody<ReserveTcpAddress>,
) -> HandlerResult<(StatusCode, Json<TcpAddress>)> {
    for _ in 0..ATTEMPTS {
        match reserve_once(&app, &who, &id).await {
            // A request in another workspace took the same port at the same moment.
            Ok(None) => {}
            Ok(Some(address)) => return Ok((StatusCode::CREATED, Json(to_api(address)?))),
            Err(refusal) => return Err(refusal),
        }
    }
    Err(conflict("Too many simultaneous reservations; try again."))
}

/// Reserves a port: one that the project returned and that is still free, else the lowest free one.
/// `None` if another transaction was quicker.
async fn reserve_once(app: &App, who: &Principal, id: &str) -> HandlerResult<Option<Address>> {
    let now = app.now();
    let mut tx = app.store.begin().await?;
    // The lock makes each request in a workspace count the ports of the earlier ones.
    let project = access::locked_project(&mut tx, who, id, WRITE).await?;
    access::require_usable(&project)?;
    if !settings::project_settings(&project)?.published_tcp_enabled {
        let detail = "The project's policy does not allow TCP tunnels to be published.";
        return Err(Problem::new(409, "published_tcp_disabled", detail).into());
    }
    let (domain, ports) = pool(app, &project)?;
    let most = app.plan_service.terms_of(&project)?.tcp_addresses;
    let own = addresses::of_project(&mut tx, project.id).await?;
    if own.len() >= usize::try_from(most).unwrap_or(usize::MAX) {
        let detail = format!("The plan of the project has {most} TCP addresses.");
        return Err(access::not_in_plan(detail));
    }
    let port = claim_port(&mut tx, app, &project, domain, ports, now).await?;
    let address = Address {
        id: AddressId::new(unix_millis(now), random::bytes()?),
        project_id: project.id,
        cluster_domain: domain.to_owned(),
        port: port.into(),
        created_at: now,
    };
    match addresses::insert(&mut tx, &address).await {
        Err(store::Error::Conflict(Conflict::PortTaken)) => return Ok(None),
        other => other?,
    }
    record(
        &mut tx,
        who,
        &project,
        "address.reserved",
        (address.id, port),
        now,
    )
    .await?;
    tx.commit().await?;
    Ok(Some(address))
}

async fn claim_port(
    tx: &mut Tx,
    app: &App,
    project: &Project,
    domain: &str,
    ports: &RangeInclusive<u16>,
    now: Timestamp,
) -> HandlerResult<u16> {
    let (first, last) = (*ports.start(), *ports.end());
    if let Some(port) = addresses::take_back(tx, domain, project.id, first, last).await? {
        return Ok(port);
    }
    let released_by = ago(now, app.config.retention.released_ports);
    addresses::release_quarantined(tx, domain, released_by).await?;
    let free = addresses::lowest_free(tx, domain, first, last).await?;
    free.ok_or_else(|| conflict(EXHAUSTED))
}

/// Returns an address. The port is then kept free for a while (`retention.released_ports_hours`).
async fn release(
    Caller { principal: who, .. }: Caller<ProjectsWrite>,
    State(app): State<Arc<App>>,
    Path((project_id, address_id)): Path<(String, String)>,
) -> HandlerResult<StatusCode> {
    let now = app.now();
    let mut tx = app.store.begin().await?;
    let found = access::project(&mut tx, &who, &project_id, WRITE).await?;
    let project = found.project;
    let id = address_id.parse().map_err(|_| Problem::not_found())?;
    let Some(port) = addresses::release(&mut tx, project.id, id, now).await? else {
        return Err(Problem::not_found().into());
    };
    record(&mut tx, &who, &project, "address.released", (id, port), now).await?;
    tx.commit().await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The cluster of a project, and the ports that can be reserved there.
fn pool<'a>(app: &'a App, project: &Project) -> HandlerResult<(&'a str, &'a RangeInclusive<u16>)> {
    let domain = region_of(app, project).map(|region| region.domain.as_str());
    let engines = app.config.engines.iter();
    let engine = domain.and_then(|domain| {
        let mut engines = engines.filter(|engine| engine.cluster_domain == domain);
        engines.next()
    });
    let pool = engine.and_then(|engine| {
        let ports = engine.tcp_ports.as_ref()?;
        Some((engine.cluster_domain.as_str(), ports))
    });
    pool.ok_or_else(|| {
        let detail = "TCP addresses are not available on the cluster of this project. \
            The operator of the platform can add them (`engines[].tcp_ports`).";
        Problem::new(409, "feature_unavailable", detail).into()
    })
}

async fn record(
    tx: &mut Tx,
    who: &Principal,
    project: &Project,
    action: &str,
    (id, port): (AddressId, u16),
    now: Timestamp,
) -> HandlerResult<()> {
    let details = json!({"address": id, "port": port});
    let workspace = project.workspace_id;
    audit_entry::record_project_action(tx, who, workspace, project.id, action, details, now).await
}

fn to_api(address: Address) -> HandlerResult<TcpAddress> {
    let port = u16::try_from(address.port).map_err(|_| {
        tracing::error!(address.id = %address.id, "a reserved port is not a valid port");
        Problem::internal()
    })?;
    Ok(TcpAddress {
        id: address.id.to_string(),
        project_id: address.project_id.to_string(),
        domain: address.cluster_domain,
        port,
        created_at: date(address.created_at),
    })
}

fn conflict(detail: &'static str) -> Refusal {
    Problem::conflict().with_detail(detail).into()
}

const WRITE: Permission = Permission::AccountProjectsReadWrite;

/// Every port of the range is reserved, or was released a short time ago.
const EXHAUSTED: &str = "No port of the cluster is free. The operator of the platform can add \
    some (`engines[].tcp_ports`).";

/// If this many workspaces of one cluster reserve a port at the same time, each has its port
/// after as many rounds.
const ATTEMPTS: usize = 8;

//! The clusters of engines. The data is from the database, so that it includes links of all
//! processes.

use std::sync::Arc;

use api::control::operator::{OperatorCluster, OperatorEngineList, OperatorLink};
use askama::Template;
use axum::Json;
use axum::extract::State;
use axum::response::Response;
use jiff::Timestamp;
use store::{Conn, changes, engines};
use types::problem::Problem;

use crate::app::App;
use crate::caller::Operator;
use crate::config::ClusterConfig;
use crate::engines::{INVENTORY_EXPIRY, LINK_EXPIRY, reported_certificates};
use crate::http_api::extract::Query;
use crate::http_api::problem::HandlerResult;
use crate::http_api::wire::date;
use crate::pages::layout::{PageRefusal, page};
use crate::pages::signed_in;
use crate::people::session::Visitor;

/// `GET /api/operator/engines`.
pub(super) async fn list(
    _: Operator,
    State(app): State<Arc<App>>,
    query: Query,
) -> HandlerResult<Json<OperatorEngineList>> {
    query.finish()?;
    Ok(Json(engine_list(&app).await?))
}

#[derive(Template)]
#[template(path = "operator_engines.html")]
struct EnginesPage {
    list: OperatorEngineList,
}

/// `/operator/engines`: the same list as a page.
pub(super) async fn show(
    State(app): State<Arc<App>>,
    visitor: Visitor,
) -> Result<Response, PageRefusal> {
    let who = signed_in(visitor, "/operator/engines")?;
    Operator::of(who.principal()).ok_or_else(Problem::not_found)?;
    let list = engine_list(&app).await?;
    Ok(page(&EnginesPage { list }))
}

async fn engine_list(app: &App) -> HandlerResult<OperatorEngineList> {
    let mut conn = app.store.read().await?;
    let head = changes::head(&mut conn).await?;
    let mut clusters = Vec::with_capacity(app.config.engines.len());
    for engine in &app.config.engines {
        clusters.push(cluster(app, &mut conn, engine).await?);
    }
    Ok(OperatorEngineList {
        clusters,
        version: counted(head.version),
    })
}

async fn cluster(
    app: &App,
    conn: &mut Conn,
    engine: &ClusterConfig,
) -> HandlerResult<OperatorCluster> {
    let domain = &engine.cluster_domain;
    let ago = |time| app.now().saturating_sub(time).unwrap_or(Timestamp::MIN);
    let since = ago(LINK_EXPIRY);
    let links = engines::linked(conn, domain, since, MAX_LINKS).await?;
    let reporters = engines::reporters(conn, domain, 1).await?;
    let online = engines::inventory(conn, domain, ago(INVENTORY_EXPIRY)).await?;
    let certificates = reported_certificates(conn, domain, app.now()).await?;
    Ok(OperatorCluster {
        cluster_domain: domain.clone(),
        enrolled: engine.enrolment_secret_file.is_some(),
        links: links
            .into_iter()
            .map(|link| OperatorLink {
                address: link.address,
                program_version: link.program_version,
                linked_at: date(link.linked_at),
                seen_at: date(link.seen_at),
                version: counted(link.version),
            })
            .collect(),
        certificates,
        reported_at: reporters.first().map(|newest| date(newest.last_at)),
        clients: counted(online.clients),
        tunnels: counted(online.tunnels),
    })
}

/// The database has signed counters from 0.
fn counted(count: i64) -> u64 {
    u64::try_from(count).unwrap_or_default()
}

/// Maximum number of listed links per cluster: as many as a process accepts in total.
const MAX_LINKS: u32 = 256;

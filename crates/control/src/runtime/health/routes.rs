//! Routes for load balancers and supervisors.

use std::sync::Arc;

use api::control::health::{HEALTHZ, Health, HealthStatus, READYZ};
use axum::extract::State;
use axum::{Json, Router};
use types::problem::Problem;

use crate::app::App;
use crate::http_api::problem::HandlerResult;
use crate::http_api::route::OperationRouter as _;

/// Liveness and readiness.
pub fn routes() -> Router<Arc<App>> {
    Router::new()
        .serve(HEALTHZ, liveness)
        .serve(READYZ, readiness)
}

async fn liveness() -> Json<Health> {
    Json(OK)
}

async fn readiness(State(app): State<Arc<App>>) -> HandlerResult<Json<Health>> {
    let is_ready = app.health.is_ready(&app.store).await && !app.clock_skew.is_too_large();
    if is_ready {
        Ok(Json(OK))
    } else {
        Err(Problem::unavailable()
            .with_retry_after(RETRY_AFTER_SECONDS)
            .into())
    }
}

const OK: Health = Health {
    status: HealthStatus::Ok,
};
/// As for every refusal because of the database.
const RETRY_AFTER_SECONDS: u32 = 2;

//! Plan, usage and TURN usage of a project.

use std::sync::Arc;

use api::control::plans::Price;
use api::control::records::{
    Carried, CarriedInHour, PLAN, ProjectPlan, Relayed, RelayedInHour, TURN_USAGE, TurnUsage,
    USAGE, Usage,
};
use axum::extract::State;
use axum::{Json, Router};
use store::usage;
use types::permission::Permission;
use types::problem::Problem;

use crate::app::App;
use crate::caller::access;
use crate::caller::{Caller, PlanRead};
use crate::http_api::extract::{Query, Segment};
use crate::http_api::problem::HandlerResult;
use crate::http_api::route::OperationRouter as _;
use crate::logs::timeline::{Range, rfc3339};

/// The routes of this module.
pub fn routes() -> Router<Arc<App>> {
    Router::new()
        .serve(PLAN, plan)
        .serve(USAGE, tunnels)
        .serve(TURN_USAGE, relays)
}

async fn plan(
    caller: Caller<PlanRead>,
    State(app): State<Arc<App>>,
    Segment(id): Segment,
    query: Query,
) -> HandlerResult<Json<ProjectPlan>> {
    query.finish()?;
    let mut conn = app.store.read().await?;
    let found = access::project(&mut conn, &caller.principal, &id, PERMISSION).await?;
    let Ok(plan) = found.project.plan.parse() else {
        tracing::error!(project.id = %found.project.id, "the plan is not known");
        return Err(Problem::internal().into());
    };
    let catalogue = app.plan_service.catalogue();
    let terms = catalogue.terms(plan);
    Ok(Json(ProjectPlan {
        plan,
        name: terms.name.clone(),
        description: terms.description.clone(),
        monthly: (terms.monthly > 0).then_some(Price {
            amount_minor: terms.monthly,
            currency: catalogue.currency,
        }),
        log_retention_days: terms.log_retention_days,
        webhooks: terms.webhooks,
        tcp_addresses: terms.tcp_addresses,
        domains: terms.domains,
    }))
}

async fn tunnels(
    caller: Caller<PlanRead>,
    State(app): State<Arc<App>>,
    Segment(id): Segment,
    query: Query,
) -> HandlerResult<Json<Usage>> {
    let range = read_range(&app, query)?;
    let mut conn = app.store.read().await?;
    let found = access::project(&mut conn, &caller.principal, &id, PERMISSION).await?;
    let (project, period) = (found.project.id, range.period());
    let total = usage::sum(&mut conn, project, period).await?;
    let hours = usage::hours(&mut conn, project, period).await?;
    let hours = hours.into_iter().map(|hour| CarriedInHour {
        start: rfc3339(hour.begins_at),
        carried: carried(&hour.counted),
    });
    Ok(Json(Usage {
        start: rfc3339(range.start),
        end: rfc3339(range.end),
        total: carried(&total),
        hours: hours.collect(),
    }))
}

async fn relays(
    caller: Caller<PlanRead>,
    State(app): State<Arc<App>>,
    Segment(id): Segment,
    query: Query,
) -> HandlerResult<Json<TurnUsage>> {
    let range = read_range(&app, query)?;
    let mut conn = app.store.read().await?;
    let found = access::project(&mut conn, &caller.principal, &id, PERMISSION).await?;
    let (project, period) = (found.project.id, range.period());
    let total = usage::sum_turn(&mut conn, project, period).await?;
    let hours = usage::turn_hours(&mut conn, project, period).await?;
    let hours = hours.into_iter().map(|hour| RelayedInHour {
        start: rfc3339(hour.begins_at),
        relayed: relayed(&hour.counted),
    });
    Ok(Json(TurnUsage {
        start: rfc3339(range.start),
        end: rfc3339(range.end),
        total: relayed(&total),
        hours: hours.collect(),
    }))
}

fn read_range(app: &App, mut query: Query) -> HandlerResult<Range> {
    let range = Range::from_query(&mut query, app.now())?;
    query.finish()?;
    Ok(range.to_whole_hours())
}

fn carried(usage: &usage::Usage) -> Carried {
    Carried {
        streams: usage.streams,
        failed_streams: usage.failed_streams,
        upstream_bytes: usage.upstream_bytes,
        downstream_bytes: usage.downstream_bytes,
    }
}

fn relayed(usage: &usage::TurnUsage) -> Relayed {
    Relayed {
        credentials: usage.credentials,
        allocations: usage.allocations,
        relayed_bytes: usage.relayed_bytes,
    }
}

const PERMISSION: Permission = Permission::AccountPlanReadOnly;

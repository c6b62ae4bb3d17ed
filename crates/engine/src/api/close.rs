//! `DELETE /api/tunnels/{id}`: closes a tunnel (EN-7).

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use credentials::VerifiedToken;
use daemon::problem::Refusal;
use http::StatusCode;
use types::filter::WatchParams;
use types::problem::Problem;

use super::Api;
use super::caller::{Caller, CloseTunnels};
use crate::access::check_close_boundary;
use crate::live::{LiveTunnel, LoadMetric};

/// Closes tunnels for callers of the API. The API has only the live state; the implementation also
/// releases the port of a tunnel and notifies its agent.
pub trait TunnelCloser<A>: std::fmt::Debug + Send + Sync {
    /// Closes a tunnel for the caller with this token. Returns false if the tunnel is not online
    /// any more.
    fn close(&self, tunnel: &LiveTunnel<A>, caller: &VerifiedToken) -> bool;
}

/// Closes a tunnel of any agent in the project. The response for a tunnel that the token must not
/// see is the same as for a missing one.
pub(super) async fn close_tunnel<A: LoadMetric>(
    caller: Caller<CloseTunnels>,
    State(api): State<Arc<Api<A>>>,
    id: Result<Path<String>, PathRejection>,
) -> Result<StatusCode, Refusal> {
    let token = Arc::clone(&caller.token);
    let view = api.view(&caller.project, caller.token, WatchParams::default());
    let found = api.shown_tunnel(&view, id)?;
    check_close_boundary(&token, &caller.project, &found.view)?;
    if api.closer.close(&found, &token) {
        Ok(StatusCode::NO_CONTENT)
    } else {
        Err(Problem::not_found().into())
    }
}

//! `/api/clients`, `/api/tunnels`, `/api/tunnels/{id}`: the current live state (EN-1).

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::{IntoResponse as _, Response};
use daemon::problem::Refusal;
use http::Uri;
use http::header::CACHE_CONTROL;
use serde_json::Value;
use types::filter::{ClientFilter, ListParams, TunnelFilter, WatchParams};
use types::problem::Problem;

use super::Api;
use super::answers::AnswerWriter;
use super::caller::{Caller, ReadResources};
use crate::access::check_list_boundary;
use crate::live::{LiveTunnel, LoadMetric, View, write_array};

/// The clients that match (EN-2b).
pub(super) async fn clients<A: LoadMetric>(
    caller: Caller<ReadResources>,
    State(api): State<Arc<Api<A>>>,
    uri: Uri,
) -> Result<Response, Refusal> {
    let params = ListParams::<ClientFilter>::from_query(query(&uri), api.compat)?;
    check_list_boundary(&caller.token, &caller.project)?;
    let filter = WatchParams {
        clients: params.filters,
        ..WatchParams::default()
    };
    let view = api.view(&caller.project, caller.token, filter);
    let writer = AnswerWriter::new(&api.answers, &caller.project)?;
    let clients = api.live.clients(&view, at_most(params.limit));
    let clients = clients.iter().map(|client| client.to_json());
    let answer = writer.fill(|out| write_array(out, clients))?;
    Ok(answer.json(&api.upgraded))
}

/// The tunnels that match (EN-2a).
pub(super) async fn tunnels<A: LoadMetric>(
    caller: Caller<ReadResources>,
    State(api): State<Arc<Api<A>>>,
    uri: Uri,
) -> Result<Response, Refusal> {
    let params = ListParams::<TunnelFilter>::from_query(query(&uri), api.compat)?;
    check_list_boundary(&caller.token, &caller.project)?;
    let filter = WatchParams {
        tunnels: params.filters,
        ..WatchParams::default()
    };
    let view = api.view(&caller.project, caller.token, filter);
    let writer = AnswerWriter::new(&api.answers, &caller.project)?;
    let tunnels = api.live.tunnels(&view, at_most(params.limit));
    let tunnels = tunnels.iter().filter_map(|tunnel| view.tunnel_json(tunnel));
    let answer = writer.fill(|out| write_array(out, tunnels))?;
    Ok(answer.json(&api.upgraded))
}

/// One tunnel. A tunnel that the token does not show is reported as not found.
pub(super) async fn tunnel<A: LoadMetric>(
    caller: Caller<ReadResources>,
    State(api): State<Arc<Api<A>>>,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, Refusal> {
    let view = api.view(&caller.project, caller.token, WatchParams::default());
    let found = api.shown_tunnel(&view, id)?;
    let found = view.tunnel_json(&found.view);
    Ok(json(found.ok_or_else(Problem::not_found)?))
}

impl<A: LoadMetric> Api<A> {
    /// The tunnel with an id, if the view shows it.
    pub(super) fn shown_tunnel(
        &self,
        view: &View,
        id: Result<Path<String>, PathRejection>,
    ) -> Result<Arc<LiveTunnel<A>>, Refusal> {
        let Path(id) = id.map_err(|_| Problem::not_found())?;
        let found = self.live.find(&view.project, &id);
        let found =
            found.filter(|tunnel| tunnel.view.id.as_str() == id && view.shows_tunnel(&tunnel.view));
        Ok(found.ok_or_else(Problem::not_found)?)
    }
}

fn query(uri: &Uri) -> &str {
    uri.query().unwrap_or_default()
}

fn at_most(limit: Option<u16>) -> usize {
    limit.map_or(usize::MAX, usize::from)
}

/// A JSON response that must not be cached, because the live state changes.
fn json(body: Value) -> Response {
    ([(CACHE_CONTROL, "no-store")], Json(body)).into_response()
}

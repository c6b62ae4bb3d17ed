//! Visits in reports of engines: the request log.

use jiff::Timestamp;
use serde_json::Value;
use store::{Tx, directory, logs};
use types::id::{LogId, ProjectId, TunnelId, unix_millis};
use types::tunnel::TunnelName;

use super::reports::retention_end;
use crate::billing::plans::Catalogue;
use crate::http_api::problem::HandlerResult;
use crate::runtime::random;

/// A visit in a report, with validated values.
pub(super) struct Stream {
    pub(super) project: ProjectId,
    pub(super) id: String,
    pub(super) tunnel: Option<TunnelId>,
    pub(super) tunnel_name: Option<TunnelName>,
    pub(super) user: Option<String>,
    pub(super) outcome: String,
    pub(super) created_at: Timestamp,
    pub(super) summary: Value,
}

/// Stores a visit. False if it was stored before.
pub(super) async fn store_stream(
    tx: &mut Tx,
    catalogue: &Catalogue,
    project: &directory::Project,
    stream: Stream,
    now: Timestamp,
) -> HandlerResult<bool> {
    let search = searchable_text(&stream.summary);
    let log = logs::Log {
        id: LogId::new(unix_millis(stream.created_at), random::bytes()?),
        workspace_id: project.workspace_id,
        project_id: project.id,
        stream_id: stream.id,
        tunnel_id: stream.tunnel,
        user_id: stream.user,
        outcome: stream.outcome,
        summary: stream.summary,
        created_at: stream.created_at,
        expires_at: retention_end(catalogue, project, now),
    };
    Ok(logs::insert(tx, &log, &search).await?)
}

/// The searchable text: host, path, method and addresses, and nothing that may be secret.
fn searchable_text(summary: &Value) -> String {
    let found = SEARCHABLE_FIELDS
        .iter()
        .filter_map(|place| summary.pointer(place)?.as_str());
    let mut text = found.collect::<Vec<_>>().join(" ");
    let end = text.floor_char_boundary(MAX_SEARCHED_BYTES.min(text.len()));
    text.truncate(end);
    text
}

/// Members of a summary that are searchable: of `stream.summary`, and of the short form.
const SEARCHABLE_FIELDS: [&str; 8] = [
    "/request/http/request/method",
    "/request/http/request/host",
    "/request/http/request/path",
    "/request/downstream/ip",
    "/method",
    "/host",
    "/path",
    "/source_ip",
];
const MAX_SEARCHED_BYTES: usize = 4 * 1024;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_searchable_text_has_hosts_and_paths_and_no_queries() {
        let summary = json!({"request": {"downstream": {"ip": "192.0.2.1"}, "http": {"request": {
            "host": "a.example", "path": "/b", "query": "token=c", "url": "https://a/?token=c"}}}});
        assert_eq!(searchable_text(&summary), "a.example /b 192.0.2.1");
        let long = json!({"path": "ä".repeat(5_000)});
        assert!(searchable_text(&long).len() <= MAX_SEARCHED_BYTES);
    }
}

//! Responses of the platform: the stream of changes, and receipts of reports.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use api::link::{ALIVE_SECONDS, Cursor, LinkMessage, Platform, Receipt, Report};
use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::{Query, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::{ENROLMENT_SECRET, PlatformState, SentState};
use crate::fixtures::BASE_HOST;

/// The error response of a request, if the platform is configured to refuse it or the secret is
/// wrong.
fn refusal(shared: &PlatformState, headers: &HeaderMap) -> Option<StatusCode> {
    let expected = format!("Bearer {ENROLMENT_SECRET}");
    let bearer = headers.get("authorization").map(HeaderValue::as_bytes);
    let conduct = shared.behavior.lock();
    if conduct.is_unavailable {
        Some(StatusCode::SERVICE_UNAVAILABLE)
    } else if conduct.refuses || bearer != Some(expected.as_bytes()) {
        Some(StatusCode::UNAUTHORIZED)
    } else {
        None
    }
}

pub(super) async fn changes(
    State(shared): State<Arc<PlatformState>>,
    Query(query): Query<BTreeMap<String, String>>,
    headers: HeaderMap,
) -> Response {
    if let Some(status) = refusal(&shared, &headers) {
        return status.into_response();
    }
    let (sender, receiver) = mpsc::channel::<Result<Bytes, Infallible>>(64);
    tokio::spawn(async move {
        shared.connections.send_modify(|count| *count += 1);
        stream_changes(&shared, query.get("since").map(String::as_str), &sender).await;
        shared.connections.send_modify(|count| *count -= 1);
    });
    Body::from_stream(ReceiverStream::new(receiver)).into_response()
}

/// Sends everything to one engine, until it disconnects or is disconnected.
async fn stream_changes(
    shared: &PlatformState,
    since: Option<&str>,
    sender: &mpsc::Sender<Result<Bytes, Infallible>>,
) {
    let mut version = shared.version.subscribe();
    let mut cuts = shared.cuts.subscribe();
    cuts.borrow_and_update();
    let mut garbage = shared.garbage.subscribe();
    garbage.borrow_and_update();
    let (mut lines, mark, mut sent) = {
        let state = shared.sent.lock();
        let known = since
            .and_then(|since| since.split_once('.'))
            .filter(|(_, mark)| *mark == state.mark.to_string())
            .and_then(|(version, _)| version.parse::<usize>().ok());
        let lines = match known {
            Some(known) => state.changes_since(known),
            None => state.everything(shared),
        };
        version.borrow_and_update();
        (lines, state.mark, state.log.len())
    };
    if lines.is_empty() {
        lines.push(LinkMessage::Alive {});
    }
    let mut alive = tokio::time::interval(Duration::from_secs(ALIVE_SECONDS));
    loop {
        for line in lines.drain(..) {
            let mut line = serde_json::to_vec(&line).expect("a line");
            line.push(b'\n');
            if sender.send(Ok(line.into())).await.is_err() {
                return;
            }
        }
        tokio::select! {
            _ = cuts.changed() => return,
            () = sender.closed() => return,
            _ = version.changed() => {}
            _ = garbage.changed() => {
                sender.send(Ok(Bytes::from_static(b"garbage\n"))).await.ok();
            }
            _ = alive.tick() => lines.push(LinkMessage::Alive {}),
        }
        if shared.behavior.lock().is_silent {
            lines.clear();
            continue;
        }
        let state = shared.sent.lock();
        if state.mark == mark {
            lines.extend(state.changes_since(sent));
            sent = state.log.len();
        }
    }
}

impl SentState {
    fn cursor(&self, version: usize) -> Cursor {
        Cursor(format!("{version}.{}", self.mark))
    }

    fn changes_since(&self, version: usize) -> Vec<LinkMessage> {
        let changes = self.log.iter().enumerate().skip(version);
        changes
            .map(|(before, items)| LinkMessage::Change {
                cursor: self.cursor(before + 1),
                items: items.clone(),
            })
            .collect()
    }

    fn everything(&self, shared: &PlatformState) -> Vec<LinkMessage> {
        let platform = Platform {
            base_url: format!("http://{}", shared.address),
            cluster_domain: BASE_HOST.to_owned(),
        };
        let items = self.items.values().cloned();
        let mut lines = vec![LinkMessage::SnapshotBegin { platform }];
        lines.extend(items.map(|item| LinkMessage::Item { item }));
        lines.push(LinkMessage::SnapshotEnd {
            cursor: self.cursor(self.log.len()),
        });
        lines
    }
}

pub(super) async fn reports(
    State(shared): State<Arc<PlatformState>>,
    headers: HeaderMap,
    Json(report): Json<Report>,
) -> Response {
    if let Some(status) = refusal(&shared, &headers) {
        return status.into_response();
    }
    let mut through = 0;
    shared.reported.send_modify(|reported| {
        reported.requests += 1;
        let last = reported.through.entry(report.reporter).or_default();
        through = report.sequence.max(*last);
        if report.sequence > *last {
            *last = report.sequence;
            reported.records.extend(report.records);
        }
    });
    let mut conduct = shared.behavior.lock();
    if let Some(left) = conduct.lost_receipts.checked_sub(1) {
        conduct.lost_receipts = left;
        return StatusCode::BAD_GATEWAY.into_response();
    }
    Json(Receipt { through }).into_response()
}

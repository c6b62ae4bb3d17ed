//! Recordings: reading, export, verification, search and deletion (EN-8, WT-4).
//!
//! These are the only responses of this API with bytes of a terminal, and these are past bytes:
//! live ones are only sent over WebTTY (WT-3).

use std::sync::Arc;

use ::api::webtty as paths;
use ::api::webtty::{
    DEFAULT_HITS, EventsParams, ExportQuery, MAX_HITS, RecordedEvent, RecordingHit,
    RecordingSearch, RecordingVerdict, SearchParams,
};
use axum::Router;
use axum::body::Body;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::response::IntoResponse as _;
use axum::routing::{delete, get};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use daemon::problem::Refusal;
use http::header::{CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{StatusCode, Uri};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json as value};
use tokio_stream::wrappers::ReceiverStream;
use tracing::{info, warn};
use tty::recording::Record;
use tty::recording::search::MAX_QUERY;
use types::filter::{MAX_LIMIT, ParamError, params_of_query};
use types::id::WebttySessionId;
use types::json as strict;
use types::permission::Permission;
use types::problem::Problem;
use types::webtty::RecordType;

use super::{HandlerResult, check_may_list, json, path, shows};
use crate::api::Api;
use crate::api::caller::{AnyCredential, Caller, DeleteRecordings, ReadRecordings};
use crate::live::LoadMetric;
use crate::webtty::program;
use crate::webtty::recordings::{Export, Format, ReadError, RecordedSession, Search};

pub(super) fn router<A: LoadMetric>() -> Router<Arc<Api<A>>> {
    Router::new()
        .route(paths::EVENTS, get(events::<A>))
        .route(paths::EXPORT, get(export::<A>))
        .route(paths::VERIFY, get(verify::<A>))
        .route(paths::RECORDING, delete(remove::<A>))
        .route(paths::SEARCH, get(search::<A>))
}

/// Records. A caller that may see the session sees the kinds of events; the input and output
/// requires permission to read recordings (WT-4).
async fn events<A: LoadMetric>(
    caller: Caller<AnyCredential>,
    State(api): State<Arc<Api<A>>>,
    id: Result<Path<String>, PathRejection>,
    uri: Uri,
) -> HandlerResult {
    let logs = Permission::WebttyLogsReadOnly;
    let required = api.tenancy.require(&caller.token, &caller.project, logs);
    let may_read_content = required.is_ok();
    if !may_read_content {
        api.terminal_permission(&caller.token, &caller.project)?;
    }
    let params: EventsParams = params(&uri)?;
    let from = match params.from_seq.as_deref() {
        None => 1,
        Some(text) => number(text)
            .ok_or_else(|| ParamError::new("from_seq", "expected a whole number as text"))?,
    };
    let limit = limit(params.limit, MAX_LIMIT, MAX_LIMIT)?;
    let id = path(id)?;
    let (session, kept) = match stored_session(&api, &caller, &id).await {
        Ok(kept) => kept,
        // The session started a moment ago.
        Err(problem) if problem.status == 404 && api.session_of(&caller, &id).is_ok() => {
            return Ok(json(Vec::<RecordedEvent>::new()));
        }
        Err(problem) => return Err(problem.into()),
    };
    let (project, recorder) = (&caller.project.id, &api.terminals.recorder);
    let read = recorder.records(project, &session, from, limit);
    let (records, sealed) = read.await.map_err(|why| read_problem(&why))?;
    let shown = records.into_iter();
    let sees_arguments = api.sees_arguments(&caller.token, &caller.project, &kept.session);
    let shown = shown.map(|mut record| {
        if !sees_arguments && record.record_type == RecordType::Open {
            record.detail = record.detail.map(|line| program(&line).to_owned());
        }
        event(&id, record, sealed, may_read_content)
    });
    Ok(json(shown.collect::<Vec<_>>()))
}

/// A recording in a format of other programs.
async fn export<A: LoadMetric>(
    caller: Caller<ReadRecordings>,
    State(api): State<Arc<Api<A>>>,
    id: Result<Path<String>, PathRejection>,
    query: Result<Query<ExportQuery>, QueryRejection>,
) -> HandlerResult {
    let query = query.map_err(|bad| Problem::invalid_request(bad.body_text()))?;
    let export = export_options(&query)?;
    let id = path(id)?;
    let (session, _) = stored_session(&api, &caller, &id).await?;
    let exporting = api
        .terminals
        .recorder
        .export(&caller.project.id, &session, export);
    let pieces = exporting.await.map_err(|why| read_problem(&why))?;
    info!(session = id, user = ?caller.token.user_id, "a recording was exported");
    let (media, extension) = match export.format {
        Format::Text => ("text/plain; charset=utf-8", "txt"),
        Format::Json => ("application/json", "json"),
        Format::Ndjson => ("application/x-ndjson", "ndjson"),
        Format::Asciicast | Format::AsciicastV3 => ("application/x-asciicast", "cast"),
    };
    let headers = [
        (CONTENT_TYPE, media.to_owned()),
        (CACHE_CONTROL, "no-store".to_owned()),
        // The output of a command is untrusted: a browser must not interpret it as a page.
        (X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
        (
            CONTENT_DISPOSITION,
            format!("attachment; filename=\"{session}.{extension}\""),
        ),
    ];
    let body = Body::from_stream(ReceiverStream::new(pieces));
    Ok((headers, body).into_response())
}

/// Verifies that a recording is unchanged.
async fn verify<A: LoadMetric>(
    caller: Caller<ReadRecordings>,
    State(api): State<Arc<Api<A>>>,
    id: Result<Path<String>, PathRejection>,
) -> HandlerResult {
    let (session, _) = stored_session(&api, &caller, &path(id)?).await?;
    let verifying = api.terminals.recorder.verify(&caller.project.id, &session);
    let verdict = verifying.await.map_err(|why| read_problem(&why))?;
    let (broken_at, fault) = verdict.broken.unzip();
    Ok(json(RecordingVerdict {
        ok: broken_at.is_none(),
        records: verdict.records,
        head: hex::encode(verdict.head.hash),
        broken_at: broken_at.map(|seq| seq.to_string()),
        fault,
    }))
}

/// Removes a recording.
async fn remove<A: LoadMetric>(
    caller: Caller<DeleteRecordings>,
    State(api): State<Arc<Api<A>>>,
    id: Result<Path<String>, PathRejection>,
) -> HandlerResult {
    let (session, _) = stored_session(&api, &caller, &path(id)?).await?;
    let by = caller.token.user_id.as_deref();
    let removing = api
        .terminals
        .recorder
        .delete(&caller.project.id, &session, by);
    removing.await.map_err(|why| read_problem(&why))?;
    info!(%session, user = by, "a recording was deleted");
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Lines of output in the sessions of the project.
async fn search<A: LoadMetric>(
    caller: Caller<ReadRecordings>,
    State(api): State<Arc<Api<A>>>,
    uri: Uri,
) -> HandlerResult {
    let params: SearchParams = params(&uri)?;
    check_may_list(&caller, Permission::WebttyLogsReadOnly)?;
    let query = params.query.unwrap_or_default();
    if query.is_empty() || query.len() > MAX_QUERY {
        let message = format!("expected a text of 1 to {MAX_QUERY} bytes");
        return Err(ParamError::new("query", message).into());
    }
    let limit = limit(params.limit, DEFAULT_HITS, MAX_HITS)?;
    let search = Search {
        query,
        limit,
        session_id: params.session_id,
        server_id: params.server_id,
        user_id: params.user_id,
        before: params.before,
    };
    let (token, project) = (&caller.token, &caller.project);
    let searching = api
        .terminals
        .recorder
        .search(&project.id, search, |tunnel| shows(token, project, tunnel));
    let answer = searching.await.map_err(|why| read_problem(&why))?;
    let hits = answer.hits.into_iter().map(|hit| RecordingHit {
        session_id: hit.session_id,
        seq: hit.seq.to_string(),
        created_at: format!("{:.3}", hit.created_at),
        line: hit.line,
    });
    Ok(json(RecordingSearch {
        hits: hits.collect(),
        next: answer.next,
        incomplete: answer.unreadable,
    }))
}

/// A stored session that the caller may see.
pub(super) async fn stored_session<A: LoadMetric, N>(
    api: &Api<A>,
    caller: &Caller<N>,
    id: &str,
) -> Result<(WebttySessionId, RecordedSession), Problem> {
    let session: WebttySessionId = id.parse().map_err(|_| Problem::not_found())?;
    let finding = api.terminals.recorder.session(&caller.project.id, &session);
    let kept = finding.await.map_err(|why| read_problem(&why))?;
    let kept = kept.filter(|kept| shows(&caller.token, &caller.project, &kept.tunnel));
    kept.map(|kept| (session, kept))
        .ok_or_else(Problem::not_found)
}

/// The problem for a recording that cannot be read. The details of the store go to the log.
pub(super) fn read_problem(why: &ReadError) -> Problem {
    let code = match why {
        ReadError::NotFound => return Problem::not_found(),
        ReadError::Deleted => {
            return Problem::new(404, "recording_deleted", "This recording was deleted.");
        }
        ReadError::Busy => {
            let busy = "Too many recordings are being read.";
            return Problem::new(503, "recordings_busy", busy).with_retry_after(BUSY_RETRY);
        }
        ReadError::Store(error) => {
            warn!(%error, "recordings cannot be read");
            let away = "The storage of the recordings cannot be read at the moment.";
            return Problem::new(503, "recording_unavailable", away).with_retry_after(BUSY_RETRY);
        }
        ReadError::Running => "recording_running",
        ReadError::Sealed => "session_sealed",
        ReadError::ModifiedRecording(_) | ReadError::Unopened { .. } => "recording_broken",
    };
    Problem::new(409, code, "").with_detail(why.to_string())
}

/// A record as this API shows it.
fn event(session_id: &str, record: Record, sealed: bool, with_payload: bool) -> RecordedEvent {
    let mut metadata = Map::new();
    if let Some(size) = record.terminal_size {
        let size = value!({"row": size.rows, "col": size.cols});
        metadata.insert("terminal_size".to_owned(), size);
    }
    if let Some(code) = record.exit_code {
        metadata.insert("exit_code".to_owned(), code.into());
    }
    if record.masked {
        metadata.insert("masked".to_owned(), true.into());
    }
    if let Some(detail) = record.detail {
        metadata.insert("detail".to_owned(), Value::String(detail));
    }
    // The payload could be guessed from a hash without a salt.
    let hashes = with_payload || record.salt.is_some();
    let has_payload = with_payload && !record.payload.is_empty();
    let payload = has_payload.then(|| STANDARD.encode(&record.payload));
    let (ciphertext, plaintext) = if sealed {
        (payload, None)
    } else {
        (None, payload)
    };
    RecordedEvent {
        id: format!("{session_id}-{}", record.seq),
        session_id: session_id.to_owned(),
        seq: record.seq.to_string(),
        // Microseconds are significant: the hash covers them.
        created_at: format!("{:.6}", record.created_at),
        event_type: record.record_type,
        direction: record.direction,
        stream_type: record.stream_type,
        participant_id: record.participant_id,
        payload_length: record.payload_length,
        payload_ciphertext: ciphertext,
        payload_plaintext: plaintext,
        salt: record
            .salt
            .filter(|_| with_payload)
            .map(|salt| hex::encode(salt.0)),
        prev_hash: hashes.then(|| hex::encode(record.prev_hash)),
        hash: hashes.then(|| hex::encode(record.hash)),
        metadata: (!metadata.is_empty()).then_some(metadata),
    }
}

fn export_options(query: &ExportQuery) -> Result<Export, Refusal> {
    let format = match query.format.as_deref() {
        None | Some("text") => Format::Text,
        Some("json") => Format::Json,
        Some("ndjson") => Format::Ndjson,
        Some("asciicast") => Format::Asciicast,
        Some("asciicast-v3") => Format::AsciicastV3,
        Some(_) => {
            let known = "expected text, json, ndjson, asciicast or asciicast-v3";
            return Err(ParamError::new("format", known).into());
        }
    };
    let all = Export::default();
    Ok(Export {
        format,
        from_seq: query.from_seq.unwrap_or(all.from_seq),
        max_events: query.max_events.unwrap_or(all.max_events),
        stdin: query.include_stdin.unwrap_or(all.stdin),
        stdout: query.include_stdout.unwrap_or(all.stdout),
        stderr: query.include_stderr.unwrap_or(all.stderr),
        timestamps: query.include_timestamps.unwrap_or(all.timestamps),
        markers: query.include_markers.unwrap_or(all.markers),
    })
}

/// The JSON value `params` of a query, parsed strictly; the defaults if there is none.
fn params<T: DeserializeOwned + Default>(uri: &Uri) -> Result<T, Refusal> {
    let Some(text) = params_of_query(uri.query().unwrap_or_default())? else {
        return Ok(T::default());
    };
    let read = strict::parse(text.as_bytes(), PARAMS).map_err(ParamError::from)?;
    if !read.is_object() {
        return Err(ParamError::new("params", "expected an object").into());
    }
    serde_json::from_value(read)
        .map_err(|error| ParamError::new("params", error.to_string()).into())
}

/// The length of a list, as in its schema.
fn limit(given: Option<u16>, default: u16, most: u16) -> Result<usize, ParamError> {
    let limit = given.unwrap_or(default);
    if (1..=most).contains(&limit) {
        return Ok(usize::from(limit));
    }
    let message = format!("expected an integer from 1 to {most}");
    Err(ParamError::new("limit", message))
}

/// Accepts digits only, and no other notation of a number.
fn number(text: &str) -> Option<u64> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| digits)
}

/// A query is at most two lines of text.
const PARAMS: strict::Limits = strict::Limits {
    bytes: 4096,
    depth: 4,
};

/// Seconds after which a reader may try again.
const BUSY_RETRY: u32 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    /// WT-4: a hash from before salts were introduced requires permission to read its payload.
    #[test]
    fn wt_4_a_hash_without_a_salt_is_not_shown_without_the_payload() {
        let stored = value!({"seq": "1", "created_at": "2026-01-01T00:00:00Z", "type": "data",
            "direction": "client_to_server", "stream_type": "stdin", "payload_length": 1,
            "payload": "eA==", "prev_hash": "00".repeat(32), "hash": "11".repeat(32)});
        let mut record: Record = serde_json::from_value(stored).unwrap();
        let shown = |record: &Record, reads| event("wts_1", record.clone(), false, reads);
        let watched = shown(&record, false);
        assert_eq!((watched.hash, watched.prev_hash), (None, None));
        assert!(shown(&record, true).hash.is_some());
        record.salt = Some(tty::recording::Salt([1; 16]));
        let watched = shown(&record, false);
        assert!(watched.hash.is_some() && watched.prev_hash.is_some());
        assert_eq!(watched.salt, None);
        assert!(shown(&record, true).salt.is_some());
    }
}

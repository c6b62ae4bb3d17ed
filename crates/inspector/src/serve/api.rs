//! The API of the page. `docs/inspector.md` describes it.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    Json, Router,
    extract::{DefaultBodyLimit, Path, Query, State, rejection::JsonRejection},
    http::{StatusCode, header},
    response::{
        AppendHeaders, IntoResponse, Response,
        sse::{Event, KeepAlive, Sse},
    },
    routing::{get, post, put},
};
use futures_util::{Stream, stream};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::exchange::{Exchange, MessageSender, content};
use crate::replay::{Changes, PreparedRequest, ReplayError};
use crate::view::{Detail, MessageView, Secrets};
use crate::{Inspector, Subscription, Update, curl, har, limits};

type SharedState = State<Arc<super::State>>;

pub(super) fn router() -> Router<Arc<super::State>> {
    Router::new()
        .route("/state", get(state))
        .route("/events", get(events))
        .route("/paused", put(pause))
        .route("/exchanges", get(list).delete(clear))
        .route("/exchanges/{id}", get(detail))
        .route("/exchanges/{id}/messages", get(messages))
        .route("/exchanges/{id}/{side}/body", get(body))
        .route("/exchanges/{id}/curl", get(as_curl))
        .route("/exchanges/{id}/replay", post(replay))
        .route("/har", get(as_har))
        .layer(DefaultBodyLimit::max(CHANGES_BYTES))
}

/// An error response: a code and a message.
#[derive(Debug)]
pub(super) struct ApiError {
    status: StatusCode,
    code: &'static str,
    message: String,
}

impl ApiError {
    pub(super) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self {
            status,
            code,
            message: message.into(),
        }
    }

    fn not_stored() -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "not_found",
            "the exchange is no longer stored",
        )
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let body = json!({"error": {"code": self.code, "message": self.message}});
        (self.status, AppendHeaders(PRIVATE), Json(body)).into_response()
    }
}

impl std::convert::From<ReplayError> for ApiError {
    fn from(trouble: ReplayError) -> Self {
        match trouble {
            ReplayError::Changes(why) => {
                Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid_request", why)
            }
            ReplayError::Exchange(why) => Self::new(StatusCode::CONFLICT, "not_repeatable", why),
            ReplayError::Service(why) => {
                Self::new(StatusCode::BAD_GATEWAY, "service_unavailable", why)
            }
        }
    }
}

#[derive(Debug, Deserialize)]
struct RevealQuery {
    #[serde(default)]
    reveal: bool,
}

async fn state(State(state): SharedState) -> impl IntoResponse {
    let inspector = &state.inspector;
    let (paused, count, bytes) =
        inspector.read(|store| (store.is_paused(), store.iter().len(), store.bytes()));
    answer(json!({
        "version": state.version,
        "about": inspector.info(),
        "paused": paused,
        "kept": {"exchanges": count, "bytes": bytes},
        "limits": {
            "exchanges": limits::MAX_EXCHANGES,
            "bytes": limits::MAX_BYTES,
            "body_bytes": limits::BODY_BYTES,
            "message_bytes": limits::MESSAGE_BYTES,
            "messages": limits::MESSAGES,
        },
    }))
}

#[derive(Debug, Deserialize)]
struct ListQuery {
    /// Words that the exchange must contain.
    search: Option<String>,
}

async fn list(State(state): SharedState, Query(wanted): Query<ListQuery>) -> Response {
    let inspector = &state.inspector;
    let summaries = inspector.read(crate::store::Store::summaries);
    let Some(words) = wanted.search.filter(|words| !words.is_empty()) else {
        return answer(json!({"exchanges": summaries})).into_response();
    };
    // The search may read many megabytes, so it runs on a blocking thread.
    let inspector = inspector.clone();
    let searched = tokio::task::spawn_blocking(move || {
        let words = words.to_lowercase();
        let found = summaries.into_iter().filter(|summary| {
            // One at a time, because streams wait while the store is locked.
            let exchange = inspector.read(|store| store.get(summary.id).cloned());
            exchange.is_some_and(|exchange| contains_words(&exchange, &words))
        });
        found.collect::<Vec<_>>()
    });
    match searched.await {
        Ok(found) => answer(json!({"exchanges": found})).into_response(),
        Err(_stopped) => ApiError::not_stored().into_response(),
    }
}

/// True if the visible parts of an exchange contain these words, in lower case.
fn contains_words(exchange: &Exchange, words: &str) -> bool {
    let within = |text: &str| text.to_lowercase().contains(words);
    let bytes = |bytes: &[u8]| within(&String::from_utf8_lossy(bytes));
    let fields = |fields: &crate::exchange::Fields| {
        let mut all = fields.0.iter();
        all.any(|(name, value)| within(&format!("{name}: {value}")))
    };
    let request = &exchange.request;
    let response = exchange.response.as_ref();
    within(&format!(
        "{} {}{}",
        request.method, request.host, request.path
    )) || fields(&request.fields)
        || response.is_some_and(|response| fields(&response.fields))
        || bytes(&content::decode_body(&request.fields, &exchange.request_body).bytes)
        || response.is_some_and(|response| {
            bytes(&content::decode_body(&response.fields, &exchange.response_body).bytes)
        })
        || exchange.messages.iter().any(|message| bytes(&message.kept))
}

async fn clear(State(state): SharedState) -> StatusCode {
    state.inspector.clear();
    StatusCode::NO_CONTENT
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PauseState {
    paused: bool,
}

async fn pause(
    State(state): SharedState,
    wanted: Result<Json<PauseState>, JsonRejection>,
) -> Result<StatusCode, ApiError> {
    let Json(PauseState { paused }) = wanted.map_err(|rejection| malformed(&rejection))?;
    state.inspector.set_paused(paused);
    Ok(StatusCode::NO_CONTENT)
}

async fn detail(
    State(state): SharedState,
    Path(id): Path<u64>,
    Query(reveal): Query<RevealQuery>,
) -> Result<impl IntoResponse, ApiError> {
    let exchange = find(&state.inspector, id)?;
    Ok(answer(json!(Detail::of(
        &exchange,
        Secrets::of(reveal.reveal)
    ))))
}

#[derive(Debug, Deserialize)]
struct After {
    #[serde(default)]
    after: u64,
}

async fn messages(
    State(state): SharedState,
    Path(id): Path<u64>,
    Query(After { after }): Query<After>,
) -> Result<impl IntoResponse, ApiError> {
    let found = state.inspector.read(|store| {
        let exchange = store.get(id)?;
        let encoding = |fields: Option<&crate::exchange::Fields>| {
            let encoding = fields.and_then(|fields| fields.get("grpc-encoding"));
            encoding.unwrap_or("identity").to_owned()
        };
        let visitor = encoding(Some(&exchange.request.fields));
        let service = encoding(exchange.response.as_ref().map(|response| &response.fields));
        let messages = exchange.messages.iter();
        let fresh = messages.filter(|message| message.number > after);
        let fresh: Vec<_> = fresh.take(PAGE).cloned().collect();
        Some((fresh, visitor, service, exchange.removed_messages))
    });
    let (fresh, visitor, service, forgotten) = found.ok_or_else(ApiError::not_stored)?;
    let notes = fresh.iter().map(|message| {
        let encoding = match message.from {
            MessageSender::Visitor => &visitor,
            MessageSender::Service => &service,
        };
        MessageView::of(message, encoding)
    });
    let notes: Vec<_> = notes.collect();
    Ok(answer(json!({"messages": notes, "forgotten": forgotten})))
}

/// The decompressed bytes of a body, as a download.
async fn body(
    State(state): SharedState,
    Path((id, side)): Path<(u64, String)>,
) -> Result<Response, ApiError> {
    let exchange = find(&state.inspector, id)?;
    let shown = match side.as_str() {
        "request" => content::decode_body(&exchange.request.fields, &exchange.request_body),
        "response" => match &exchange.response {
            Some(response) => content::decode_body(&response.fields, &exchange.response_body),
            None => return Err(ApiError::not_stored()),
        },
        _ => return Err(ApiError::not_stored()),
    };
    // Never with its own media type, because it comes from an untrusted source.
    let kind = (header::CONTENT_TYPE, "application/octet-stream");
    let saved = (header::CONTENT_DISPOSITION, "attachment");
    Ok((
        AppendHeaders([kind, saved]),
        AppendHeaders(PRIVATE),
        shown.bytes,
    )
        .into_response())
}

async fn as_curl(
    State(state): SharedState,
    Path(id): Path<u64>,
    Query(reveal): Query<RevealQuery>,
) -> Result<impl IntoResponse, ApiError> {
    let exchange = find(&state.inspector, id)?;
    Ok((
        AppendHeaders([(header::CONTENT_TYPE, "text/plain; charset=utf-8")]),
        AppendHeaders(PRIVATE),
        curl::command(&exchange, Secrets::of(reveal.reveal)),
    ))
}

async fn replay(
    State(state): SharedState,
    Path(id): Path<u64>,
    changes: Result<Json<Changes>, JsonRejection>,
) -> Result<impl IntoResponse, ApiError> {
    let Json(changes) = changes.map_err(|rejection| malformed(&rejection))?;
    let exchange = find(&state.inspector, id)?;
    let prepared = PreparedRequest::new(&exchange, changes)?;
    let id = Box::pin(prepared.send(&state.inspector, &state.tasks, &state.stop)).await?;
    Ok((StatusCode::CREATED, answer(json!({"id": id}))))
}

#[derive(Debug, Deserialize)]
struct Archive {
    #[serde(default)]
    reveal: bool,
    /// The id of one exchange; all exchanges if absent.
    id: Option<u64>,
}

async fn as_har(
    State(state): SharedState,
    Query(Archive { reveal, id }): Query<Archive>,
) -> Result<Response, ApiError> {
    let selected = state.inspector.read(|store| {
        let selected = store.iter();
        let selected = selected.filter(|exchange| id.is_none_or(|id| exchange.summary.id == id));
        selected.cloned().collect::<Vec<_>>()
    });
    let version = state.version;
    let secrets = Secrets::of(reveal);
    let made = tokio::task::spawn_blocking(move || {
        har::archive(selected.iter(), version, secrets).to_string()
    });
    let text = made.await.map_err(|_stopped| ApiError::not_stored())?;
    let kind = (header::CONTENT_TYPE, "application/json");
    let saved = (
        header::CONTENT_DISPOSITION,
        "attachment; filename=\"svc.har\"",
    );
    Ok((AppendHeaders([kind, saved]), AppendHeaders(PRIVATE), text).into_response())
}

/// The list, and every later change.
async fn events(State(state): SharedState) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let stop = state.stop.clone();
    let mut subscription = state.inspector.subscribe();
    let first = snapshot(&mut subscription);
    let news = stream::unfold(
        (Some(first), subscription, stop),
        |(first, mut subscription, stop)| async move {
            if let Some(first) = first {
                return Some((Ok(first), (None, subscription, stop)));
            }
            let update = stop.run_until_cancelled(subscription.next()).await??;
            let event = match update {
                Update::Exchange(summary) => event("exchange", &json!(summary)),
                Update::Removed { up_to } => event("gone", &json!({"up_to": up_to})),
                Update::Paused(paused) => event("paused", &json!({"paused": paused})),
                Update::Info(about) => event("about", &json!(about)),
                Update::Missed => snapshot(&mut subscription),
            };
            Some((Ok(event), (None, subscription, stop)))
        },
    );
    Sse::new(news).keep_alive(KeepAlive::new().interval(HEARTBEAT))
}

fn snapshot(subscription: &mut Subscription) -> Event {
    event("snapshot", &json!({"exchanges": subscription.list()}))
}

fn event(name: &str, data: &Value) -> Event {
    Event::default().event(name).data(data.to_string())
}

fn find(inspector: &Inspector, id: u64) -> Result<Exchange, ApiError> {
    let found = inspector.read(|store| store.get(id).cloned());
    found.ok_or_else(ApiError::not_stored)
}

fn answer(value: Value) -> impl IntoResponse {
    (AppendHeaders(PRIVATE), Json(value))
}

fn malformed(rejection: &JsonRejection) -> ApiError {
    ApiError::new(rejection.status(), "invalid_request", rejection.body_text())
}

/// Prevents caching and content sniffing.
const PRIVATE: [(header::HeaderName, &str); 3] = [
    (header::CACHE_CONTROL, "no-store"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (
        header::HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
];

/// Maximum size of changes: a recorded body in base64 and JSON, with space for edits.
const CHANGES_BYTES: usize = 2 * 1024 * 1024;

/// Messages per response; the page requests the rest.
const PAGE: usize = 200;

/// Interval of keep-alive comments, so that both sides notice a broken connection.
const HEARTBEAT: Duration = Duration::from_secs(15);

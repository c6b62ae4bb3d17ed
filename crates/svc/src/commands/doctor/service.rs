//! The service behind the temporary tunnel. It reports the requests that reach it.

use std::{convert::Infallible, sync::Arc};

use aws_lc_rs::digest::{Context, SHA256};
use bytes::Bytes;
use client::Stream;
use futures_util::{SinkExt, StreamExt, stream};
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    body::{Frame, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{handshake::derive_accept_key, protocol::Role},
};

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// State that service and visitor share within this process.
#[derive(Debug)]
pub(super) struct ProbeState {
    /// Chunks of `/stream` that may be sent. The visitor releases each further chunk when it has
    /// received the previous one.
    pub(super) chunks: Semaphore,
}

impl ProbeState {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            chunks: Semaphore::new(0),
        })
    }
}

/// Serves the requests of one stream until it ends.
pub(super) async fn serve(stream: Stream, shared: Arc<ProbeState>) {
    let service = service_fn(|request| {
        let shared = Arc::clone(&shared);
        async move { Ok::<_, Infallible>(answer(request, shared).await) }
    });
    let served = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    // The visitor notices any failure.
    drop(served.with_upgrades().await);
}

async fn answer(mut request: Request<Incoming>, shared: Arc<ProbeState>) -> Response<Body> {
    match request.uri().path() {
        "/ping" => full_response(StatusCode::OK, "pong"),
        "/headers" => full_response(StatusCode::OK, describe(&request).to_string()),
        "/upload" => full_response(
            StatusCode::OK,
            hash_body(request.into_body()).await.to_string(),
        ),
        "/stream" => chunks(shared),
        "/socket" => echo(&mut request),
        _ => full_response(StatusCode::NOT_FOUND, ""),
    }
}

/// The request target and headers as received.
fn describe(request: &Request<Incoming>) -> Value {
    let field = |(name, value): (&header::HeaderName, &HeaderValue)| {
        json!([name.as_str(), String::from_utf8_lossy(value.as_bytes())])
    };
    json!({
        "method": request.method().as_str(),
        "target": request.uri().to_string(),
        "fields": request.headers().iter().map(field).collect::<Vec<_>>(),
    })
}

/// Length and hash of a body.
async fn hash_body(mut body: Incoming) -> Value {
    let mut context = Context::new(&SHA256);
    let mut length = 0;
    while let Some(Ok(frame)) = body.frame().await {
        if let Some(bytes) = frame.data_ref() {
            context.update(bytes);
            length += bytes.len();
        }
    }
    json!({ "length": length, "sha256": hex::encode(context.finish().as_ref()) })
}

/// Sends [`CHUNKS`] chunks. Each one after the first waits until it is released.
fn chunks(shared: Arc<ProbeState>) -> Response<Body> {
    let chunks = stream::unfold((shared, 0), |(shared, sent)| async move {
        if sent == CHUNKS {
            return None;
        }
        if sent > 0 {
            shared.chunks.acquire().await.ok()?.forget();
        }
        let frame = Frame::data(Bytes::from(format!("data: {sent}\n\n")));
        Some((Ok::<_, Infallible>(frame), (shared, sent + 1)))
    });
    let mut response = Response::new(StreamBody::new(chunks).boxed_unsync());
    let kind = HeaderValue::from_static("text/event-stream");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// Echoes WebSocket messages (RFC 6455).
fn echo(request: &mut Request<Incoming>) -> Response<Body> {
    let Some(key) = request.headers().get(header::SEC_WEBSOCKET_KEY) else {
        return full_response(StatusCode::UPGRADE_REQUIRED, "");
    };
    let accept = derive_accept_key(key.as_bytes());
    let upgrade = hyper::upgrade::on(request);
    tokio::spawn(async move {
        let Ok(upgraded) = upgrade.await else { return };
        let io = TokioIo::new(upgraded);
        let mut socket = WebSocketStream::from_raw_socket(io, Role::Server, None).await;
        while let Some(Ok(message)) = socket.next().await {
            let is_data = message.is_text() || message.is_binary();
            if is_data && socket.send(message).await.is_err() {
                return;
            }
        }
    });
    let mut response = full_response(StatusCode::SWITCHING_PROTOCOLS, "");
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    if let Ok(accept) = accept.parse() {
        headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
    }
    response
}

fn full_response(status: StatusCode, body: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Full::new(body.into()).boxed_unsync());
    *response.status_mut() = status;
    response
}

/// Number of chunks: enough to show that no chunk waits for a later one.
pub(super) const CHUNKS: usize = 5;

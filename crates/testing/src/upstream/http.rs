//! The well-behaved HTTP server, for both versions.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures_util::stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::Upstream;

type Body = UnsyncBoxBody<Bytes, hyper::Error>;

/// Serves [`Upstream::http1`] until the connection ends for any reason.
pub(super) async fn serve_http1<S>(stream: S, connection: usize)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let requests = Arc::new(AtomicUsize::new(0));
    let service = service_fn(move |request| {
        let number = requests.fetch_add(1, Ordering::Relaxed) + 1;
        async move { Ok::<_, Infallible>(answer(request, connection, number).await) }
    });
    hyper::server::conn::http1::Builder::new()
        .half_close(true)
        .serve_connection(TokioIo::new(stream), service)
        .await
        .ok();
}

/// Serves [`Upstream::h2c`] until the connection ends for any reason.
pub(super) async fn serve_http2<S>(stream: S, connection: usize)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let requests = Arc::new(AtomicUsize::new(0));
    let service = service_fn(move |request| {
        let number = requests.fetch_add(1, Ordering::Relaxed) + 1;
        async move {
            let answer = answer(request, connection, number).await;
            let mut trailers = HeaderMap::new();
            trailers.insert("x-trailer", "end".parse().expect("a field value"));
            Ok::<_, Infallible>(answer.map(|body| {
                body.with_trailers(async { Some(Ok(trailers)) })
                    .boxed_unsync()
            }))
        }
    });
    hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(stream), service)
        .await
        .ok();
}

async fn answer(request: Request<Incoming>, connection: usize, number: usize) -> Response<Body> {
    let path = request.uri().path().to_owned();
    let argument = |prefix: &str| path.strip_prefix(prefix).and_then(|rest| rest.parse().ok());
    if path == "/mirror" {
        let kind = request.headers().get("content-type").cloned();
        let mut response = Response::new(request.into_body().boxed_unsync());
        response
            .headers_mut()
            .extend(kind.map(|kind| (hyper::header::CONTENT_TYPE, kind)));
        response
    } else if let Some(len) = argument("/bytes/") {
        Response::new(full(Upstream::payload(len)))
    } else if let Some(len) = argument("/chunked/") {
        Response::new(in_frames(len))
    } else if let Some(status) = argument("/status/") {
        let status = u16::try_from(status)
            .ok()
            .and_then(|code| StatusCode::from_u16(code).ok());
        let mut response = Response::new(Empty::new().map_err(never).boxed_unsync());
        *response.status_mut() = status.expect("a status");
        response
    } else {
        describe(request, connection, number).await
    }
}

async fn describe(request: Request<Incoming>, connection: usize, number: usize) -> Response<Body> {
    let (head, body) = request.into_parts();
    let Ok(body) = body.collect().await else {
        // The response is not read by any client, because the visitor's body was truncated.
        let mut response = Response::new(full("the body broke off"));
        *response.status_mut() = StatusCode::BAD_REQUEST;
        return response;
    };
    let trailers = body.trailers().map(pairs);
    let description = json!({
        "connection": connection,
        "request": number,
        "method": head.method.as_str(),
        "target": head.uri.to_string(),
        "version": format!("{:?}", head.version),
        "headers": pairs(&head.headers),
        "body": String::from_utf8_lossy(&body.to_bytes()),
        "trailers": trailers,
    });
    let mut response = Response::new(full(description.to_string()));
    let kind = "application/json".parse().expect("a field value");
    response.headers_mut().insert("content-type", kind);
    response
}

fn pairs(fields: &HeaderMap) -> Value {
    fields
        .iter()
        .map(|(name, value)| json!([name.as_str(), lossy(value.as_bytes())]))
        .collect()
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(never).boxed_unsync()
}

fn in_frames(len: usize) -> Body {
    let payload = Bytes::from(Upstream::payload(len));
    let frames = (0..len)
        .step_by(FRAME)
        .map(move |start| Ok(Frame::data(payload.slice(start..len.min(start + FRAME)))));
    StreamBody::new(stream::iter(frames)).boxed_unsync()
}

fn never(never: Infallible) -> hyper::Error {
    match never {}
}

/// Not a divisor of any buffer size.
const FRAME: usize = 5_000;

//! The plain listener: it sends browsers to https, and takes nothing else.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use http::{Method, StatusCode, header};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use types::problem::Problem;
use types::query_credential;

use crate::core::{Core, Worker};

/// How long a request head may take, and with it the whole connection when nothing comes.
const HEAD_DEADLINE: Duration = Duration::from_secs(10);

/// Serves the plain listener of one worker until the engine drains.
pub(crate) async fn serve_plain(listener: TcpListener, worker: Arc<Worker>) {
    super::accept_loop(listener, &worker, |stream, peer| {
        let visitor = Arc::clone(&worker);
        worker.spawn(async move {
            let Some(socket) = super::admit::admit(stream, peer, &visitor.core).await else {
                return;
            };
            let core = Arc::clone(&visitor.core);
            let service = service_fn(move |request: Request<hyper::body::Incoming>| {
                let response = redirect(&request, &core);
                async move { Ok::<_, Infallible>(response) }
            });
            let mut builder = http1::Builder::new();
            builder
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_DEADLINE)
                .keep_alive(false);
            // Whatever ends it, there was nothing to lose.
            builder
                .serve_connection(TokioIo::new(socket), service)
                .await
                .ok();
        });
    })
    .await;
}

/// ED-1e: a token in the address has already travelled in clear once; it is not sent a second
/// time, so the answer names no location.
fn redirect<B>(request: &Request<B>, core: &Core) -> Response {
    let query = request.uri().query().unwrap_or_default();
    if query_credential::is_present(query, query_credential::COMPAT_NAMES) {
        return refuse(Problem::token_in_clear());
    }
    if request.method() != Method::GET && request.method() != Method::HEAD {
        return refuse(Problem::https_required());
    }
    let host = request
        .headers()
        .get(header::HOST)
        .map(http::HeaderValue::as_bytes);
    let Some(host) = host.and_then(::http1::Authority::parse) else {
        return refuse(Problem::invalid_request("Host is missing or malformed"));
    };
    let port = core.tls_addr.get().map_or(443, std::net::SocketAddr::port);
    let port = if port == 443 {
        String::new()
    } else {
        format!(":{port}")
    };
    let path = request
        .uri()
        .path_and_query()
        .map_or("/", |target| target.as_str());
    let location = format!("https://{}{port}{path}", host.host.to_ascii_lowercase());
    let headers = [
        (header::LOCATION, location),
        (header::CACHE_CONTROL, "no-store".to_owned()),
    ];
    (StatusCode::PERMANENT_REDIRECT, headers, Body::empty()).into_response()
}

fn refuse(problem: Problem) -> Response {
    daemon::problem::Refusal::from(problem).into_response()
}

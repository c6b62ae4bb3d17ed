//! The demo: a small web service that shows the requests it receives.

mod page;

use std::{convert::Infallible, net::SocketAddr, time::Duration};

use futures_util::{SinkExt, StreamExt, stream};
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    body::{Bytes, Frame, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use tokio::{net::TcpListener, time};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{handshake::derive_accept_key, protocol::Role},
};
use tracing::debug;

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Starts the service on a free loopback port, and returns its address. It runs until the process
/// ends.
pub(crate) async fn start() -> std::io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        loop {
            match listener.accept().await {
                Ok((stream, _peer)) => {
                    let io = TokioIo::new(stream);
                    let service =
                        service_fn(|request| async { Ok::<_, Infallible>(answer(request)) });
                    tokio::spawn(async move {
                        let served = http1::Builder::new().serve_connection(io, service);
                        if let Err(error) = served.with_upgrades().await {
                            debug!(%error, "a connection to the demo was lost");
                        }
                    });
                }
                Err(error) => {
                    debug!(%error, "the demo did not accept a connection");
                    time::sleep(PAUSE).await;
                }
            }
        }
    });
    Ok(address)
}

fn answer(mut request: Request<Incoming>) -> Response<Body> {
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    match request.uri().path() {
        "/sse" if is_read => clock(),
        "/ws" if request.headers().contains_key(header::SEC_WEBSOCKET_KEY) => echo(&mut request),
        "/ws" => {
            let mut refused = text(
                StatusCode::UPGRADE_REQUIRED,
                "This is a WebSocket: it echoes every message.\n",
            );
            let version = header::HeaderValue::from_static("13");
            refused
                .headers_mut()
                .insert(header::SEC_WEBSOCKET_VERSION, version);
            refused
        }
        "/headers" => json(request.headers()),
        "/favicon.ico" => text(StatusCode::NOT_FOUND, ""),
        _ => {
            let page = page::render(&request);
            let kind = "text/html; charset=utf-8";
            with_type(Response::new(full_body(page)), kind)
        }
    }
}

/// Sends the time once a second, until the client disconnects.
fn clock() -> Response<Body> {
    let ticks = stream::unfold(
        time::interval(Duration::from_secs(1)),
        |mut interval| async {
            interval.tick().await;
            let line = format!("data: {:.0}\n\n", Timestamp::now());
            Some((
                Ok::<_, Infallible>(Frame::data(Bytes::from(line))),
                interval,
            ))
        },
    );
    let body = StreamBody::new(ticks).boxed_unsync();
    with_type(Response::new(body), "text/event-stream")
}

/// Echoes WebSocket messages (RFC 6455).
fn echo(request: &mut Request<Incoming>) -> Response<Body> {
    let key = request.headers().get(header::SEC_WEBSOCKET_KEY);
    let accept = derive_accept_key(key.map(header::HeaderValue::as_bytes).unwrap_or_default());
    let upgrade = hyper::upgrade::on(request);
    tokio::spawn(async move {
        let Ok(upgraded) = upgrade.await else { return };
        let io = TokioIo::new(upgraded);
        let mut socket = WebSocketStream::from_raw_socket(io, Role::Server, None).await;
        while let Some(Ok(message)) = socket.next().await {
            if (message.is_text() || message.is_binary()) && socket.send(message).await.is_err() {
                return;
            }
        }
    });
    let mut response = text(StatusCode::SWITCHING_PROTOCOLS, "");
    let headers = response.headers_mut();
    headers.insert(
        header::CONNECTION,
        header::HeaderValue::from_static("upgrade"),
    );
    headers.insert(
        header::UPGRADE,
        header::HeaderValue::from_static("websocket"),
    );
    if let Ok(accept) = accept.parse() {
        headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
    }
    response
}

/// All headers as received, as pairs because a name can repeat.
fn json(headers: &HeaderMap) -> Response<Body> {
    let pairs: Vec<_> = pairs(headers).collect();
    let body = serde_json::json!({ "headers": pairs });
    with_type(
        Response::new(full_body(format!("{body:#}\n"))),
        "application/json",
    )
}

fn text(status: StatusCode, body: &'static str) -> Response<Body> {
    let mut response = with_type(
        Response::new(full_body(body.to_owned())),
        "text/plain; charset=utf-8",
    );
    *response.status_mut() = status;
    response
}

fn with_type(mut response: Response<Body>, kind: &'static str) -> Response<Body> {
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
    headers.insert(
        header::CACHE_CONTROL,
        header::HeaderValue::from_static("no-store"),
    );
    response
}

fn full_body(body: String) -> Body {
    Full::new(Bytes::from(body)).boxed_unsync()
}

fn pairs(headers: &HeaderMap) -> impl Iterator<Item = (String, String)> {
    headers.iter().map(|(name, value)| {
        (
            name.to_string(),
            String::from_utf8_lossy(value.as_bytes()).into_owned(),
        )
    })
}

/// Pause after a failed accept, so that a lack of file descriptors causes no busy loop.
const PAUSE: Duration = Duration::from_millis(100);

//! Public connections. HTTP requests are authorised, forwarded through a tunnel and recorded. TLS
//! and TCP connections are authorised once and copied.
//!
//! Modules for each pair of HTTP versions (visitor, service):
//!
//! | visitor | service uses HTTP/1.1 | service uses HTTP/2 |
//! |---|---|---|
//! | HTTP/1.1, our parser ([`http1`]) | [`http1::exchange`] | [`http1::to_http2`] |
//! | HTTP/2, `h2` ([`http2`]) | [`http2::requests`] | [`http2::requests`] with [`headers::translate`] |
//!
//! All of them share these modules: [`routing`] finds the tunnel, authorises the request and builds
//! the head for the service. [`headers`] selects the header fields that are forwarded. [`upstream`]
//! keeps connections to services. [`builtin`] serves the paths that the edge reserves on every host
//! name. [`access_record`] feeds the access log, the metrics and the usage reports. [`raw`] copies
//! TLS and TCP. [`websocket`] copies WebSockets.

pub(crate) mod access_record;
mod builtin;
mod connection_info;
mod engine_api;
mod headers;
mod http1;
mod http2;
pub(crate) mod raw;
mod replay;
mod response;
mod response_timeout;
pub(crate) mod revocation;
mod routing;
mod upstream;
mod websocket;

use std::sync::Arc;

use transport::TlsStream;

pub(crate) use self::access_record::outcome::Outcome;
pub(crate) use self::connection_info::ConnectionInfo;
pub(crate) use self::engine_api::serve as serve_api;
pub(crate) use self::http1::buffered::BufferedStream;
pub(crate) use self::response::error_format::ErrorFormat;
pub(crate) use self::response::local_response::EdgeResponse;
pub(crate) use self::upstream::{UpstreamIo, UpstreamPool};
use crate::core::Worker;

/// Serves HTTP on a visitor's connection, in the version that the handshake negotiated.
pub(crate) async fn serve_http(stream: TlsStream, info: ConnectionInfo, worker: Arc<Worker>) {
    stream
        .get_ref()
        .0
        .limit_stall(Some(worker.core.config.timeouts.visitor_stall));
    if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
        Box::pin(http2::serve(stream, info, worker)).await;
    } else {
        http1::serve(stream, info, worker).await;
    }
}

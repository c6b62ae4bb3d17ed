//! Public connections. HTTP requests are authorised, forwarded through a tunnel and recorded. TLS
//! and TCP connections are authorised once and copied.
//!
//! Modules for each pair of HTTP versions (visitor, service):
//!
//! | visitor | service uses HTTP/1.1 | service uses HTTP/2 |
//! |---|---|---|
//! | HTTP/1.1, our parser ([`http1`]) | [`exchange`] | [`http1_to_http2`] |
//! | HTTP/2, hyper ([`http2`]) | [`http2_requests`] | [`http2_requests`] with [`translate`] |
//!
//! All of them share these modules: [`routing`] finds the tunnel, authorises the request and builds
//! the head for the service. [`forwarding`] selects the header fields that pass. [`upstream_pool`]
//! keeps connections to services. [`access_record`] feeds the access log, the metrics and the usage
//! reports. [`raw`] copies TLS and TCP.

pub(crate) mod access_record;
mod answer;
mod body;
mod buffered;
mod builtin_routes;
mod connection_info;
mod copy;
mod cross_site;
mod engine_api;
mod error_format;
mod event_stream;
mod exchange;
mod forwarding;
mod http1;
mod http1_to_http2;
mod http2;
mod http2_requests;
mod in_flight;
mod loop_detection;
mod outcome;
pub(crate) mod raw;
mod response_timeout;
pub(crate) mod revocation;
mod routing;
mod slow_reader_timeout;
mod strict;
mod summary;
mod terminal;
mod trailers;
mod translate;
mod upgrade;
mod upstream_pool;

use std::sync::Arc;

use transport::TlsStream;

pub(crate) use self::answer::Answer;
pub(crate) use self::buffered::Buffered;
pub(crate) use self::connection_info::ConnectionInfo;
pub(crate) use self::engine_api::serve as serve_api;
pub(crate) use self::error_format::ErrorFormat;
pub(crate) use self::outcome::Outcome;
pub(crate) use self::upstream_pool::{UpstreamIo, UpstreamPool};
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

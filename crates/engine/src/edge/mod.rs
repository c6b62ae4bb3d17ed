//! Visitors: each request is judged once, carried through its tunnel, and written down.
//!
//! An HTTP/1.1 visitor is read by our own strict parser and served by one task ([`http1`],
//! [`exchange`]); an HTTP/2 visitor is served by the library ([`http2`], [`relay`]). Both decide
//! by [`plan`], the one place that knows what goes on to a service. Towards services there are
//! pooled connections ([`upstream`]) in whatever the service speaks. TLS and TCP tunnels carry
//! bytes that nobody here looks at ([`raw`]).

mod answer;
mod body;
mod bridge;
mod buffered;
mod copy;
mod cross_site;
mod engine_api;
mod event_stream;
mod exchange;
mod form;
mod forwarding;
pub(crate) mod hold;
mod http1;
mod http2;
mod idle;
mod loops;
mod own;
mod patience;
mod plan;
pub(crate) mod raw;
pub(crate) mod record;
mod relay;
mod seen;
mod stall;
mod strict;
mod summary;
mod terminal;
mod trailers;
mod translate;
mod upgrade;
mod upstream;

use std::sync::Arc;

use transport::TlsStream;

pub(crate) use self::answer::Answer;
pub(crate) use self::buffered::Buffered;
pub(crate) use self::engine_api::serve as serve_api;
pub(crate) use self::form::Form;
pub(crate) use self::seen::Seen;
pub(crate) use self::upstream::{UpIo, Upstreams};
use crate::core::Worker;

/// Serves a visitor of published HTTP tunnels, in the version that the handshake agreed on.
pub(crate) async fn serve_http(stream: TlsStream, seen: Seen, worker: Arc<Worker>) {
    stream
        .get_ref()
        .0
        .limit_stall(Some(worker.core.config.timeouts.visitor_stall));
    if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
        Box::pin(http2::serve(stream, seen, worker)).await;
    } else {
        http1::serve(stream, seen, worker).await;
    }
}

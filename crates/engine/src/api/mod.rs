//! Engine API: lists, live streams and the document, over the live state and the tokens.
//!
//! [`router`] answers every path of the base engine host that is not the agents'. On a published
//! tunnel's host nothing of this exists (EN-1a).

use std::sync::Arc;

use axum::Router;

use crate::access::Tokens;
use crate::clock::Clock;
use crate::live::Live;

/// What the handlers share.
#[derive(Debug)]
pub struct Api<A> {
    pub live: Arc<Live<A>>,
    pub tokens: Arc<Tokens>,
    pub clock: Arc<dyn Clock>,
    /// Id of the one project of a community engine: `default`.
    pub project: Arc<str>,
    /// `compat.rstream`: the other brand's spellings too.
    pub compat: bool,
}

/// Routes of the Engine API. Serve it over HTTP/1.1 and HTTP/2, the latter with extended CONNECT
/// (RFC 8441) enabled, and the former with upgrades.
pub fn router<A: Send + Sync + 'static>(api: Arc<Api<A>>) -> Router {
    Router::new().with_state(api)
}

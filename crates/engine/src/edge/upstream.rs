//! Connections to services through their tunnels, kept open for later requests.
//!
//! [`connect`] takes an idle connection from the [`pool`] of its worker or opens a stream through
//! the agent, with [`tls`] and the [`http2`] handshake if the tunnel asks for them.

mod connect;
mod http2;
mod http2_exchange;
mod http2_handshake;
mod io;
mod lent_stream;
mod pool;
mod tls;

pub(crate) use self::connect::{ConnectError, connect, connect_http1, keep};
pub(in crate::edge) use self::connect::{
    PEER_RETRY, connect_raw, discard_http2, end_early, problem_of_refusal,
};
pub(crate) use self::http2::{Http2, StreamPermit};
pub(in crate::edge) use self::http2_exchange::{
    Http2Exchange, Http2ResponseError, ServiceBody, ServiceResponse, is_service_failure,
};
pub(crate) use self::io::UpstreamIo;
pub(crate) use self::pool::{Connection, Http1, UpstreamPool};

//! HTTP visitors of published tunnels.

pub(crate) mod attacks;
mod desync;
mod domains;
mod early_responses;
mod grpc;
mod guard;
mod hard_stop;
mod headers;
mod http;
mod idle;
mod idle_http2;
mod interim;
mod interim_http2;
mod link_password;
mod plain;
mod proxy_protocol;
mod resets;
mod routing;
mod smuggling;
mod streaming;
mod time_to_first_byte;
mod tls_routes;
mod truncated;
mod upstreams;
mod websocket;

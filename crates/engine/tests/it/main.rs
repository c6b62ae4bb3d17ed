//! The engine through its real surfaces: listening servers on port 0, tokens, live state, real
//! agents, real visitors, and upstreams that behave and misbehave.

mod access;
mod api;
mod breaking;
mod grpc;
mod headers;
mod http;
mod interim;
mod live;
mod routing;
mod streaming;
mod support;
mod websocket;

//! Tests of the engine through its public interfaces: servers on port 0, tokens, live state, real
//! agents, real visitors, and correct and faulty upstreams. The modules say `cfg(test)` so that the
//! lints treat their helpers as tests.

#[cfg(test)]
mod access;
#[cfg(test)]
mod access_log;
#[cfg(test)]
mod api;
#[cfg(test)]
mod breaking;
#[cfg(test)]
mod bridged;
#[cfg(test)]
mod browser;
#[cfg(test)]
mod connections;
#[cfg(test)]
mod control_channel;
#[cfg(test)]
mod corpus;
#[cfg(test)]
mod desync;
#[cfg(test)]
mod dial;
#[cfg(test)]
mod drain;
#[cfg(test)]
mod early;
#[cfg(test)]
mod event_stream;
#[cfg(test)]
mod geo;
#[cfg(test)]
mod grpc;
#[cfg(test)]
mod guard;
#[cfg(test)]
mod hard;
#[cfg(test)]
mod hard_stop;
#[cfg(test)]
mod headers;
#[cfg(test)]
mod http;
#[cfg(test)]
mod interim;
#[cfg(test)]
mod lanes;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod live;
#[cfg(test)]
mod managed;
#[cfg(test)]
mod metrics;
#[cfg(test)]
mod mtls;
#[cfg(test)]
mod plain;
#[cfg(test)]
mod ports;
#[cfg(test)]
mod proxy_protocol;
#[cfg(test)]
mod relay;
#[cfg(test)]
#[path = "../../../../fuzz/replay.rs"]
mod replay;
#[cfg(test)]
mod resumption;
#[cfg(test)]
mod routing;
#[cfg(test)]
mod sdk_agents;
#[cfg(test)]
mod smuggling;
#[cfg(test)]
mod streaming;
#[cfg(test)]
mod support;
#[cfg(test)]
mod takeover;
#[cfg(test)]
#[path = "../fuzz_targets/mod.rs"]
mod targets;
#[cfg(test)]
mod tcp;
#[cfg(test)]
mod tls;
#[cfg(test)]
mod upstreams;
#[cfg(test)]
mod websocket;
#[cfg(test)]
mod webtty;
#[cfg(test)]
mod webtty_recordings;
#[cfg(test)]
mod wired;
#[cfg(test)]
mod world;

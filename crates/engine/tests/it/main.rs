//! Tests of the engine through its public interfaces: servers on port 0, tokens, live state, real
//! agents, real visitors, and correct and faulty upstreams. The modules have `cfg(test)` so that
//! the lints treat their helpers as tests.

#[cfg(test)]
mod access;
#[cfg(test)]
mod agent;
#[cfg(test)]
mod api;
#[cfg(test)]
mod browser;
#[cfg(test)]
mod cluster;
#[cfg(test)]
mod corpus;
#[cfg(test)]
mod document;
#[cfg(test)]
mod edge;
#[cfg(test)]
mod event_stream;
#[cfg(test)]
mod live;
#[cfg(test)]
mod managed;
#[cfg(test)]
mod membership;
#[cfg(test)]
mod operation;
#[cfg(test)]
mod raw_tunnels;
#[cfg(test)]
mod relay;
#[cfg(test)]
#[path = "../../../../fuzz/replay.rs"]
mod replay;
#[cfg(test)]
mod support;
#[cfg(test)]
#[path = "../fuzz_targets/mod.rs"]
mod targets;
#[cfg(test)]
mod webtty;
#[cfg(test)]
mod webtty_recordings;
#[cfg(test)]
mod world;

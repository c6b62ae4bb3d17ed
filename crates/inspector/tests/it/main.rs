//! Tests of the public interface: streams of third-party libraries, the HTTP API, and the stored
//! inputs of the fuzz target.

#[cfg(test)]
mod api;
#[cfg(test)]
mod corpus;
#[cfg(test)]
mod cost;
#[cfg(test)]
#[path = "../../../../fuzz/replay.rs"]
mod replay;
#[cfg(test)]
mod streams;
#[cfg(test)]
#[path = "../fuzz_targets/mod.rs"]
mod targets;

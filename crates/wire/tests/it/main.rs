//! Tests of all input that a peer can send.

#[cfg(test)]
mod corpus;
#[cfg(test)]
mod framing;
#[cfg(test)]
mod lanes;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod releases;
#[cfg(test)]
#[path = "../../../../fuzz/replay.rs"]
mod replay;
#[cfg(test)]
mod schema;
#[cfg(test)]
mod standing;
#[cfg(test)]
#[path = "../fuzz_targets/mod.rs"]
mod targets;

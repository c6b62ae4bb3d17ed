//! Tests of the public interface: verification of stored inputs.

#[cfg(test)]
mod corpus;
#[cfg(test)]
mod jws;
#[cfg(test)]
#[path = "../../../../fuzz/replay.rs"]
mod replay;
#[cfg(test)]
#[path = "../fuzz_targets/mod.rs"]
mod targets;

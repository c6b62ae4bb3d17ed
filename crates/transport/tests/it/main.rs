//! Integration tests: the results of the PROXY header parser for stored inputs.

#[cfg(test)]
mod corpus;
#[cfg(test)]
#[path = "../../../../fuzz/replay.rs"]
mod replay;
#[cfg(test)]
#[path = "../fuzz_targets/mod.rs"]
mod targets;

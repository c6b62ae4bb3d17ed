//! The crate from outside: what its reader of PROXY headers makes of kept inputs.

#[cfg(test)]
mod corpus;
#[cfg(test)]
#[path = "../../../../fuzz/replay.rs"]
mod replay;
#[cfg(test)]
#[path = "../fuzz_targets/mod.rs"]
mod targets;

//! The crate from outside: what verification makes of kept inputs.

#[cfg(test)]
mod corpus;
#[cfg(test)]
#[path = "../fuzz_targets/mod.rs"]
mod targets;

//! The crate from outside: what it says of itself in a document, and what its parsers make of
//! kept inputs.

#[cfg(test)]
mod corpus;
mod schemas;
#[cfg(test)]
#[path = "../fuzz_targets/mod.rs"]
mod targets;

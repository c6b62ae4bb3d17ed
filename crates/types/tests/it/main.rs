//! The crate from outside: what it says of itself in a document, and what its parsers make of
//! kept inputs.

#[cfg(test)]
mod corpus;
#[cfg(test)]
mod json_texts;
#[cfg(test)]
mod patterns;
#[cfg(test)]
#[path = "../../../../fuzz/replay.rs"]
mod replay;
mod schemas;
#[cfg(test)]
mod shapes;
#[cfg(test)]
#[path = "../fuzz_targets/mod.rs"]
mod targets;

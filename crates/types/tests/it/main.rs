//! Tests of the public interface: the schemas of its types, and its parsers with stored inputs.

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

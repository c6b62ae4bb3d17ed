//! The link over real sockets, to a platform that fails on request. The modules have `cfg(test)`
//! so that the lints treat their helpers as tests.

#[cfg(test)]
mod corpus;
#[cfg(test)]
mod following;
#[cfg(test)]
mod releases;
#[cfg(test)]
#[path = "../../../../fuzz/replay.rs"]
mod replay;
#[cfg(test)]
mod reporting;
#[cfg(test)]
mod saving;
#[cfg(test)]
mod support;
#[cfg(test)]
#[path = "../fuzz_targets/mod.rs"]
mod targets;

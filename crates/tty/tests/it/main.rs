//! Tests with messages of a peer, valid and malicious.

#[cfg(test)]
mod browser;
#[cfg(test)]
mod corpus;
#[cfg(test)]
mod framing;
#[cfg(test)]
#[path = "../../../../fuzz/replay.rs"]
mod replay;
#[cfg(test)]
#[path = "../fuzz_targets/mod.rs"]
mod targets;
#[cfg(test)]
mod xterm;

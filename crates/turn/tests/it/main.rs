//! Tests of the relay's public interface.

#[cfg(test)]
mod client;
#[cfg(test)]
mod corpus;
#[cfg(test)]
#[path = "../fuzz_targets/mod.rs"]
mod fuzz_targets;
#[cfg(test)]
mod random_packets;
#[cfg(test)]
#[path = "../../../../fuzz/replay.rs"]
mod replay;
#[cfg(test)]
mod sockets;
#[cfg(test)]
mod streams;

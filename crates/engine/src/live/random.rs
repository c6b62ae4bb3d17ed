//! Random bytes and times for ids and random names.

use jiff::Timestamp;

/// Random bytes of the operating system, from the process's only cryptography library.
pub(super) fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    #[expect(
        clippy::expect_used,
        reason = "the library ends the process itself where the system has no randomness"
    )]
    aws_lc_rs::rand::fill(&mut bytes).expect("the system has randomness");
    bytes
}

/// The time in an id.
pub(super) fn unix_millis(now: Timestamp) -> u64 {
    u64::try_from(now.as_millisecond()).unwrap_or(0)
}

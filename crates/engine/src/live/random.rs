//! What ids and drawn names are made of.

use jiff::Timestamp;

/// Random bytes of the operating system, by way of the process's one cryptography library.
pub(super) fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    #[expect(
        clippy::expect_used,
        reason = "the library ends the process itself where the system has no randomness"
    )]
    aws_lc_rs::rand::fill(&mut bytes).expect("the system has randomness");
    bytes
}

/// The time that an id carries.
pub(super) fn unix_millis(now: Timestamp) -> u64 {
    u64::try_from(now.as_millisecond()).unwrap_or(0)
}

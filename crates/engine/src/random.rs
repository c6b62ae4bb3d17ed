//! Randomness of the operating system.

/// Random bytes of the operating system.
pub(crate) fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    #[expect(
        clippy::expect_used,
        reason = "the library ends the process itself where the system has no randomness"
    )]
    aws_lc_rs::rand::fill(&mut bytes).expect("the system has randomness");
    bytes
}

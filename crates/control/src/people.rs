//! People: who they are, how they prove it, how long that lasts.

pub mod cookie;
pub mod email;
pub mod password;
pub mod recovery;
pub mod secret_link;
pub mod throttle;
pub mod totp;

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

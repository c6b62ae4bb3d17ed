//! Randomness for the retry delays of an agent.

pub use types::backoff::Backoff;

/// 64 uniform bits. A system without randomness could not have opened a TLS channel either, so the
/// fallback is the middle of the range.
pub fn random() -> u64 {
    let mut bytes = [0; 8];
    match rustls::crypto::aws_lc_rs::default_provider()
        .secure_random
        .fill(&mut bytes)
    {
        Ok(()) => u64::from_ne_bytes(bytes),
        Err(_unavailable) => u64::MAX / 2,
    }
}

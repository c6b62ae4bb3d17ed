//! When an agent tries again.

pub use types::backoff::Backoff;

/// 64 even bits. A system without randomness could not have opened a TLS channel either; the
/// middle of the range is then as good as any.
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

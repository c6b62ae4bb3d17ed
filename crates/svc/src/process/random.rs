//! Random bytes for secrets and keys.

use crate::failure::Failure;

/// `N` random bytes.
pub(crate) fn bytes<const N: usize>() -> Result<[u8; N], Failure> {
    let mut bytes = [0; N];
    rustls::crypto::aws_lc_rs::default_provider()
        .secure_random
        .fill(&mut bytes)
        .map_err(|_none| Failure::usage("the operating system provides no random numbers"))?;
    Ok(bytes)
}

/// `N` random bytes, in hex.
pub(crate) fn hex<const N: usize>() -> Result<String, Failure> {
    Ok(hex::encode(bytes::<N>()?))
}

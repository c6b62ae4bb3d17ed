//! Randomness for secrets and keys of ours.

use crate::failure::Failure;

/// `N` random bytes.
pub(crate) fn bytes<const N: usize>() -> Result<[u8; N], Failure> {
    let mut bytes = [0; N];
    rustls::crypto::aws_lc_rs::default_provider()
        .secure_random
        .fill(&mut bytes)
        .map_err(|_none| Failure::usage("the system gives no randomness"))?;
    Ok(bytes)
}

/// `N` random bytes, in hex.
pub(crate) fn hex<const N: usize>() -> Result<String, Failure> {
    let bytes = bytes::<N>()?;
    let digit = |nibble: u8| char::from_digit(nibble.into(), 16).unwrap_or('0');
    Ok(bytes
        .iter()
        .flat_map(|byte| [digit(byte >> 4), digit(byte & 0xF)])
        .collect())
}

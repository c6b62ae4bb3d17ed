//! Digests of tokens.

/// SHA-256 of a token's text: its key in caches and revocation lists.
pub type Digest = [u8; 32];

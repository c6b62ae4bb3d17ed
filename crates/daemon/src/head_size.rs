//! Size limit of a request head over HTTP/2.
//!
//! The library refuses a head above its configured size without a problem response and without an
//! access record, and far above it closes the whole connection. It is therefore configured with the
//! larger size [`hard`], and the actual limit is applied to each request.

use http::Request;

/// The size that the library enforces, in bytes: a larger head is refused on its stream. A head
/// several times larger, or one with more `CONTINUATION` frames than necessary, closes the
/// connection (RFC 9113, 10.5.1). Heads are decoded one at a time, so a connection uses this memory
/// once.
pub fn hard(header_bytes: usize) -> u32 {
    u32::try_from(header_bytes.saturating_mul(4)).unwrap_or(u32::MAX)
}

/// True if a head is larger than `header_bytes`: the uncompressed size of its fields, with 32 bytes
/// for each (RFC 9113, 6.5.2).
pub fn is_too_large<B>(request: &Request<B>, header_bytes: usize) -> bool {
    let fields = request.headers().iter();
    let size = fields.map(|(name, value)| name.as_str().len() + value.len() + OVERHEAD);
    size.sum::<usize>() > header_bytes
}

/// Bytes that RFC 9113 counts for each field in addition to its name and value.
const OVERHEAD: usize = 32;

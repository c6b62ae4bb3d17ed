//! The size of a request head over HTTP/2.
//!
//! The library refuses what is larger than the size that it is told, without a problem document and
//! without an access record, and far above it ends the connection for all of its requests. So it is told
//! [`hard`], and the limit itself is applied to each request.

use http::Request;

/// The size that the library enforces, in bytes: a head up to this is decoded, and refused on its stream.
/// Several times more, or more `CONTINUATION` frames than it needs, ends the connection (RFC 9113,
/// 10.5.1). One head is decoded at a time, so a connection holds this once.
pub fn hard(header_bytes: usize) -> u32 {
    u32::try_from(header_bytes.saturating_mul(4)).unwrap_or(u32::MAX)
}

/// Whether a head is larger than `header_bytes`: the uncompressed size of its fields, with 32
/// bytes for each (RFC 9113, 6.5.2).
pub fn is_too_large<B>(request: &Request<B>, header_bytes: usize) -> bool {
    let fields = request.headers().iter();
    let size = fields.map(|(name, value)| name.as_str().len() + value.len() + OVERHEAD);
    size.sum::<usize>() > header_bytes
}

/// Bytes that RFC 9113 counts for each field beside its name and value.
const OVERHEAD: usize = 32;

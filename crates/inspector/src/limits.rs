//! Limits of the records, with the reason for each.

/// Number of exchanges: more than a user scrolls through; the oldest are removed first.
pub const MAX_EXCHANGES: usize = 500;

/// Size of all bodies, heads and messages together. It is small for a development machine; the
/// oldest exchanges are removed first.
pub const MAX_BYTES: usize = 64 * 1024 * 1024;

/// Recorded bytes of one body, as transferred. The rest is only counted, because a page cannot
/// usefully show more.
pub const BODY_BYTES: usize = 256 * 1024;

/// Recorded bytes of one message. Chats and remote calls are far smaller; recording video over a
/// WebSocket is not useful.
pub const MESSAGE_BYTES: usize = 64 * 1024;

/// Messages of one exchange: an hour with one every few seconds; the oldest are removed first.
pub const MESSAGES: usize = 1000;

/// Size of all messages of one exchange, so that one busy WebSocket does not displace the other
/// exchanges.
pub const MESSAGES_BYTES: usize = 4 * 1024 * 1024;

/// Displayed bytes of a decompressed body. A small body can be crafted to expand to gigabytes.
pub const SHOWN_BYTES: usize = 1024 * 1024;

/// Maximum decompressed size of one WebSocket message. A longer one ends the decompression of its
/// direction, because later messages depend on it.
pub(crate) const INFLATED_BYTES: usize = 4 * 1024 * 1024;

/// Maximum size of a head, for both versions of HTTP: the largest that `http1` can parse, twice the
/// edge's limit for visitors.
pub(crate) const HEAD_BYTES: usize = 64 * 1024 - 1;

/// Pending requests of one connection: the engine sends them one at a time, and 100 at a time with
/// HTTP/2 unless the service allows more.
pub(crate) const PENDING_REQUESTS: usize = 1024;

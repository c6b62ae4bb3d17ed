//! What an inspector may keep, and why so much.

/// Exchanges in all: more than anybody scrolls through; the oldest leave first.
pub const MAX_EXCHANGES: usize = 500;

/// Bytes in all, of bodies, heads and messages together. A development machine does not miss them;
/// the oldest exchanges leave first.
pub const MAX_BYTES: usize = 64 * 1024 * 1024;

/// Bytes kept of one body, as it passed. What is longer is counted and not kept: a page shows no
/// more than this usefully.
pub const BODY_BYTES: usize = 256 * 1024;

/// Bytes kept of one message. Chats and remote calls are far below; video over a WebSocket is not
/// worth more.
pub const MESSAGE_BYTES: usize = 64 * 1024;

/// Messages of one exchange: an hour of one each few seconds; the oldest leave first.
pub const MESSAGES: usize = 1000;

/// Bytes of all messages of one exchange, so that one busy WebSocket leaves the others their place.
pub const MESSAGES_BYTES: usize = 4 * 1024 * 1024;

/// Bytes shown of a body once it is decompressed. A small body can be made to unfold to gigabytes.
pub const SHOWN_BYTES: usize = 1024 * 1024;

/// Bytes that one compressed WebSocket message may unfold to while it passes. One that is longer ends
/// the unfolding for its direction, since each builds on the one before.
pub(crate) const INFLATED_BYTES: usize = 4 * 1024 * 1024;

/// The largest head, of either version of HTTP. As large as `http1` can read, twice what the edge
/// lets a visitor send.
pub(crate) const HEAD_BYTES: usize = 64 * 1024 - 1;

/// Requests of one connection that wait for their answers: the engine sends one after another,
/// and 100 at a time with HTTP/2 unless the service allows more.
pub(crate) const WAITING: usize = 1024;

//! Extractors for bodies, queries, paths and addresses, with strict parsing.
//!
//! A handler lists its [`Caller`](crate::caller::Caller) before these, so that a refused credential
//! is reported before a malformed body.

mod body;
mod client_ip;
mod path;
mod query;
mod segment;

pub use self::body::{Body, OptionalBody, read as read_json};
pub(crate) use self::body::{read_body, read_within as read_json_within};
pub use self::client_ip::ClientIp;
pub use self::path::Path;
pub use self::query::{Page, Query};
pub use self::segment::Segment;

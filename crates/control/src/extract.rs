//! What a request brings beside its credential: bodies, queries and addresses, read strictly.
//!
//! A handler takes its [`Caller`](crate::caller::Caller) first and these after it, so that a
//! refused credential is told before a malformed body is.

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

//! Strict HTTP/1.1 message heads and bodies, without IO.
//!
//! The engine parses requests of visitors and responses of upstreams with this crate. Both may be
//! hostile, and another parser reads the same bytes afterwards: input that two parsers could
//! understand differently is refused here (RFC 9112 §11.2, "request smuggling"). The tokenizer is
//! `httparse`; input that it accepts beyond the grammar (bare line feeds, any byte in a target,
//! repeated framing fields) is refused by additional checks.
//!
//! Parsing copies nothing and allocates nothing: a head borrows from the caller's buffer, and
//! [`Slots`] has its index, which is created once and used for every message.
//!
//! * [`parse_request`], [`parse_response`]: a head from the start of a buffer. [`may_complete`]
//!   shows if another call after more bytes arrived is worthwhile.
//! * [`BodyReader`]: the positions of payload and end in the bytes that follow the head.
//! * [`write_request_line`], [`write_status_line`], [`write_field`], [`write_chunk_head`]:
//!   serialization. They only accept [`Method`], [`RequestTarget`], [`FieldName`] and [`FieldValue`],
//!   which cannot contain a line ending.
//! * [`RequestTarget::parse`], [`Authority::parse`]: the same rules for the pseudo-header fields of
//!   HTTP/2.
//!
//! This crate has no sockets, tunnels, credentials or problem documents.

mod authority;
mod body;
mod fields;
mod framing_fields;
mod head;
mod kind;
mod method;
mod protocol;
mod request;
mod response;
mod target;
mod token;
mod value;
mod write;

pub use authority::Authority;
pub use body::chunk::ChunkScanner;
pub use body::trailers::{TRAILER_BYTES, may_be_trailer, parse_trailers};
pub use body::{Advance, BodyError, BodyReader, BodyState, VerbatimBytes};
pub use fields::{Field, Fields, MAX_FIELDS, Slots};
pub use head::{Limits, MAX_METHOD_BYTES, Progress, Version, may_complete};
pub use kind::{FieldKind, is_same_for_gateways};
pub use method::{Method, MethodError, OtherMethod};
pub use protocol::{Protocol, Protocols};
pub use request::{BodyLength, Refusal, RequestHead, parse_request};
pub use response::{
    ANSWERS_TLS, MalformedResponseError, ResponseBody, ResponseHead, parse_response,
};
pub use target::{EncodedLine, RequestTarget, encode_request_line, encode_target};
pub use value::{FieldName, FieldValue, FieldValueBuf};
pub use write::{
    CHUNK_END, HEAD_END, LAST_CHUNK, write_chunk_head, write_field, write_request_line,
    write_status_line,
};

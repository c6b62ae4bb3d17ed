//! Serialization of first lines, fields and chunk heads into the caller's buffer.
//!
//! A head consists of a first line, fields and [`HEAD_END`]. Every written value has a type that
//! cannot contain a line ending, in every build: a value from the network has one of these types,
//! or it cannot be written.

use crate::method::Method;
use crate::target::RequestTarget;
use crate::value::{FieldName, FieldValue};
use std::num::NonZeroUsize;

/// Ends a head or a trailer section.
pub const HEAD_END: &[u8] = b"\r\n";

/// Follows the data of a chunk.
pub const CHUNK_END: &[u8] = b"\r\n";

/// The last chunk and an empty trailer section. With trailers: `0`, CR LF, fields, [`HEAD_END`].
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// Writes `method target HTTP/1.1`.
pub fn write_request_line(out: &mut Vec<u8>, method: Method<'_>, target: RequestTarget<'_>) {
    out.extend_from_slice(method.as_str().as_bytes());
    out.push(b' ');
    out.extend_from_slice(target.path().as_bytes());
    if let Some(query) = target.query() {
        out.push(b'?');
        out.extend_from_slice(query.as_bytes());
    }
    out.extend_from_slice(b" HTTP/1.1\r\n");
}

/// Writes `HTTP/1.1 status reason`.
pub fn write_status_line(out: &mut Vec<u8>, status: u16, reason: FieldValue<'_>) {
    out.extend_from_slice(b"HTTP/1.1 ");
    for unit in [100, 10, 1] {
        out.push(decimal_digit(status / unit % 10));
    }
    // The space stays if there is no reason (RFC 9112 §4).
    out.push(b' ');
    out.extend_from_slice(&reason);
    out.extend_from_slice(b"\r\n");
}

/// Writes `name: value`.
pub fn write_field(out: &mut Vec<u8>, name: FieldName<'_>, value: FieldValue<'_>) {
    out.reserve(name.len() + value.len() + 4);
    out.extend_from_slice(&name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(&value);
    out.extend_from_slice(b"\r\n");
}

/// Writes the head of a chunk of `len` bytes. A chunk of no bytes would be the last one.
pub fn write_chunk_head(out: &mut Vec<u8>, len: NonZeroUsize) {
    let len = len.get();
    let digits = (usize::BITS - len.leading_zeros()).div_ceil(4);
    for place in (0..digits).rev() {
        out.push(HEX.get(len >> (4 * place) & 0xf).copied().unwrap_or(b'0'));
    }
    out.extend_from_slice(b"\r\n");
}

fn decimal_digit(digit: u16) -> u8 {
    HEX.get(usize::from(digit)).copied().unwrap_or(b'0')
}

const HEX: &[u8; 16] = b"0123456789abcdef";

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use super::{
        RequestTarget, write_chunk_head, write_field, write_request_line, write_status_line,
    };
    use crate::{FieldValue, Method, field_name, field_value};

    #[test]
    fn heads_are_written() {
        let mut out = Vec::new();
        write_request_line(
            &mut out,
            Method::Get,
            RequestTarget::parse(Method::Get, b"/a?b=c").unwrap(),
        );
        write_request_line(
            &mut out,
            Method::Options,
            RequestTarget::parse(Method::Options, b"*").unwrap(),
        );
        write_status_line(&mut out, 200, field_value!("OK"));
        write_status_line(&mut out, 599, FieldValue::default());
        write_field(&mut out, field_name!("Host"), field_value!("a"));
        assert_eq!(
            out.escape_ascii().to_string(),
            r"GET /a?b=c HTTP/1.1\r\nOPTIONS * HTTP/1.1\r\nHTTP/1.1 200 OK\r\nHTTP/1.1 599 \r\nHost: a\r\n"
        );
    }

    #[test]
    fn chunk_sizes_are_hexadecimal() {
        for len in [1, 9, 10, 15, 16, 255, 256, 0x1234_5678, usize::MAX] {
            let mut out = Vec::new();
            write_chunk_head(&mut out, NonZeroUsize::new(len).unwrap());
            assert_eq!(out, format!("{len:x}\r\n").into_bytes());
        }
    }
}

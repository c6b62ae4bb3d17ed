//! The way out: first lines, fields and chunk heads, written into the caller's buffer.
//!
//! A head is a first line, fields and [`HEAD_END`]. What is written is not checked again: names
//! and values come from a parsed [`Field`](crate::Field), from a type that cannot hold a line
//! ending (`http::HeaderValue`), or from the program itself.

use crate::target::Target;

/// Ends a head or a trailer section.
pub const HEAD_END: &[u8] = b"\r\n";

/// Follows the data of a chunk.
pub const CHUNK_END: &[u8] = b"\r\n";

/// The last chunk and an empty trailer section. With trailers: `0`, CR LF, fields, [`HEAD_END`].
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// Writes `method target HTTP/1.1`.
pub fn write_request_line(out: &mut Vec<u8>, method: &str, target: Target<'_>) {
    out.extend_from_slice(method.as_bytes());
    out.push(b' ');
    out.extend_from_slice(target.path.as_bytes());
    if let Some(query) = target.query {
        out.push(b'?');
        out.extend_from_slice(query.as_bytes());
    }
    out.extend_from_slice(b" HTTP/1.1\r\n");
}

/// Writes `HTTP/1.1 status reason`.
pub fn write_status_line(out: &mut Vec<u8>, status: u16, reason: &str) {
    out.extend_from_slice(b"HTTP/1.1 ");
    for unit in [100, 10, 1] {
        out.push(decimal_digit(status / unit % 10));
    }
    // The space stays where there is no reason (RFC 9112 §4).
    out.push(b' ');
    out.extend_from_slice(reason.as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Writes `name: value`.
pub fn write_field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    debug_assert!(
        !name
            .iter()
            .chain(value)
            .any(|byte| matches!(byte, b'\r' | b'\n' | 0))
    );
    out.reserve(name.len() + value.len() + 4);
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Writes the head of a chunk of `len` bytes. Write none for no bytes: it would be the last chunk.
pub fn write_chunk_head(out: &mut Vec<u8>, len: usize) {
    debug_assert_ne!(len, 0);
    let digits = (usize::BITS - len.leading_zeros()).div_ceil(4).max(1);
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
    use super::{Target, write_chunk_head, write_field, write_request_line, write_status_line};

    #[test]
    fn heads_are_written() {
        let mut out = Vec::new();
        write_request_line(
            &mut out,
            "GET",
            Target {
                path: "/a",
                query: Some("b=c"),
            },
        );
        write_request_line(
            &mut out,
            "OPTIONS",
            Target {
                path: "*",
                query: None,
            },
        );
        write_status_line(&mut out, 200, "OK");
        write_status_line(&mut out, 599, "");
        write_field(&mut out, b"Host", b"a");
        assert_eq!(
            out.escape_ascii().to_string(),
            r"GET /a?b=c HTTP/1.1\r\nOPTIONS * HTTP/1.1\r\nHTTP/1.1 200 OK\r\nHTTP/1.1 599 \r\nHost: a\r\n"
        );
    }

    #[test]
    fn chunk_sizes_are_hexadecimal() {
        for len in [1, 9, 10, 15, 16, 255, 256, 0x1234_5678, usize::MAX] {
            let mut out = Vec::new();
            write_chunk_head(&mut out, len);
            assert_eq!(out, format!("{len:x}\r\n").into_bytes());
        }
    }
}

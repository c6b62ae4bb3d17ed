//! HTTP/2 frames as raw bytes (RFC 9113), so that a client can send frames that no library sends.

use std::io::{ErrorKind, Read, Write};

use anyhow::{Result, bail};

/// The bytes that start a connection (RFC 9113 section 3.4).
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const END_STREAM: u8 = 0x1;
pub(crate) const ACK: u8 = 0x1;
pub(crate) const END_HEADERS: u8 = 0x4;

/// `SETTINGS_INITIAL_WINDOW_SIZE` (RFC 9113 section 6.5.2).
const INITIAL_WINDOW_SIZE: u16 = 4;

/// One received frame.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

/// Appends a frame; its payload is at most 16 MiB.
pub(crate) fn write_frame(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(length.to_be_bytes().get(1..).unwrap_or_default());
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}

/// Appends the preface and SETTINGS with an initial window for the responses of each stream.
pub(crate) fn write_preface(out: &mut Vec<u8>, window: u32) {
    out.extend_from_slice(PREFACE);
    let mut settings = INITIAL_WINDOW_SIZE.to_be_bytes().to_vec();
    settings.extend_from_slice(&window.to_be_bytes());
    write_frame(out, SETTINGS, 0, 0, &settings);
}

/// Encodes a field section with literals that are not indexed and not compressed (RFC 7541 section
/// 6.2.2): names and values are carried byte for byte, valid or not.
pub(crate) fn encode_fields(fields: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        write_string(&mut block, name);
        write_string(&mut block, value);
    }
    block
}

fn write_string(block: &mut Vec<u8>, text: &[u8]) {
    // An integer with a prefix of 7 bits (RFC 7541 section 5.1).
    let mut rest = text.len();
    if let Some(short) = u8::try_from(rest).ok().filter(|short| *short < 127) {
        block.push(short);
    } else {
        block.push(127);
        rest -= 127;
        while rest >= 128 {
            block.push(u8::try_from(rest % 128).unwrap_or_default() | 128);
            rest /= 128;
        }
        block.push(u8::try_from(rest).unwrap_or_default());
    }
    block.extend_from_slice(text);
}

/// Writes the fields of a request: `HEADERS`, and `CONTINUATION` beyond the frame size that every
/// peer accepts.
pub(crate) fn write_headers(out: &mut Vec<u8>, stream: u32, flags: u8, block: &[u8]) {
    let mut parts = block.chunks(MAX_FRAME_SIZE).peekable();
    let mut kind = HEADERS;
    let mut flags = flags;
    loop {
        let part = parts.next().unwrap_or_default();
        let last = parts.peek().is_none();
        let end = if last { END_HEADERS } else { 0 };
        write_frame(out, kind, flags | end, stream, part);
        if last {
            return;
        }
        (kind, flags) = (CONTINUATION, 0);
    }
}

/// Reads frames until one is wanted, acknowledging SETTINGS and PING; `None` when the peer closed
/// the connection or nothing arrived in time.
///
/// # Errors
/// A frame is longer than any that this client allows.
pub(crate) fn read_until(
    connection: &mut (impl Read + Write),
    mut wanted: impl FnMut(&Frame) -> bool,
) -> Result<Option<Frame>> {
    loop {
        let Some(frame) = read_frame(connection)? else {
            return Ok(None);
        };
        if matches!(frame.kind, SETTINGS | PING) && frame.flags & ACK == 0 {
            let mut reply = Vec::new();
            let payload = if frame.kind == PING {
                &*frame.payload
            } else {
                &[]
            };
            write_frame(&mut reply, frame.kind, ACK, 0, payload);
            if connection.write_all(&reply).is_err() {
                return Ok(None);
            }
        }
        if wanted(&frame) {
            return Ok(Some(frame));
        }
    }
}

fn read_frame(connection: &mut impl Read) -> Result<Option<Frame>> {
    let mut head = [0; 9];
    if !read_exact(connection, &mut head) {
        return Ok(None);
    }
    let [a, b, c, kind, flags, s0, s1, s2, s3] = head;
    let length = usize::try_from(u32::from_be_bytes([0, a, b, c]))?;
    if length > MAX_FRAME_SIZE {
        bail!("a frame of {length} bytes, beyond SETTINGS_MAX_FRAME_SIZE");
    }
    let mut payload = vec![0; length];
    if !read_exact(connection, &mut payload) {
        return Ok(None);
    }
    Ok(Some(Frame {
        kind,
        flags,
        stream: u32::from_be_bytes([s0 & 0x7f, s1, s2, s3]),
        payload,
    }))
}

fn read_exact(connection: &mut impl Read, mut buffer: &mut [u8]) -> bool {
    while !buffer.is_empty() {
        match connection.read(buffer) {
            Ok(0) => return false,
            Ok(length) => buffer = buffer.get_mut(length..).unwrap_or_default(),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return false,
        }
    }
    true
}

/// `SETTINGS_MAX_FRAME_SIZE` at the start of every connection (RFC 9113 section 6.5.2).
const MAX_FRAME_SIZE: usize = 16 * 1024;

//! HTTP/2 without TLS (RFC 9113), as far as needed to assign bytes to exchanges.
//!
//! Frames have a header of nine bytes: length, type, flags, stream. Header blocks are assembled and
//! decoded with the HPACK state of their direction. Data is passed on, and all other frames are
//! skipped.

use std::collections::BTreeMap;

use jiff::Timestamp;
use loona_hpack::Decoder as Hpack;

use super::{DecodeError, flow::Flow};
use crate::{
    exchange::{Fields, MessageSender, Request, Response, Version, text},
    limits::{HEAD_BYTES, PENDING_REQUESTS},
    store::{Origin, Store},
};

/// The connection preface of a client.
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Error of an exchange without a response when its connection has ended.
pub(super) const CONNECTION_ENDED: &str = "the connection ended before the response was complete";

/// Both directions of a connection.
#[derive(Default)]
pub(super) struct Http2 {
    visitor: Side,
    service: Side,
    streams: BTreeMap<u32, Stream>,
}

struct Stream {
    flow: Flow,
    request_ended: bool,
    has_response: bool,
    /// The response is complete, but the request may continue.
    response_ended: bool,
}

/// One direction.
struct Side {
    /// The header of a frame, or a complete small frame, as far as received.
    buffered: Vec<u8>,
    data: Option<Data>,
    block: Option<Block>,
    hpack: Hpack<'static>,
    table: usize,
}

/// A data frame in progress.
struct Data {
    stream: u32,
    left: usize,
    padding: usize,
    last: bool,
}

/// A header block that continues in the next frame.
struct Block {
    stream: u32,
    bytes: Vec<u8>,
    last: bool,
}

impl Default for Side {
    fn default() -> Self {
        let mut hpack = Hpack::new();
        hpack.set_max_allowed_table_size(DEFAULT_TABLE_SIZE);
        Self {
            buffered: Vec::new(),
            data: None,
            block: None,
            hpack,
            table: DEFAULT_TABLE_SIZE,
        }
    }
}

/// A frame header.
#[derive(Clone, Copy)]
struct Frame {
    length: usize,
    kind: u8,
    flags: u8,
    stream: u32,
}

/// Destination of decoded events: the store, and the origin of new exchanges.
struct ExchangeSink<'s> {
    origin: Option<&'s Origin>,
    store: &'s mut Store,
    now: Timestamp,
}

impl Http2 {
    pub(super) fn visitor_sent(
        &mut self,
        bytes: &[u8],
        origin: &Origin,
        store: &mut Store,
        now: Timestamp,
    ) -> Result<(), DecodeError> {
        let origin = Some(origin);
        self.feed(
            MessageSender::Visitor,
            bytes,
            &mut ExchangeSink { origin, store, now },
        )
    }

    pub(super) fn service_sent(
        &mut self,
        bytes: &[u8],
        store: &mut Store,
        now: Timestamp,
    ) -> Result<(), DecodeError> {
        let origin = None;
        self.feed(
            MessageSender::Service,
            bytes,
            &mut ExchangeSink { origin, store, now },
        )
    }

    /// True if a request waits for its response.
    pub(super) fn has_request(&self) -> bool {
        !self.streams.is_empty()
    }

    pub(super) fn ended(&mut self, error: &str, store: &mut Store, now: Timestamp) {
        for (_, mut stream) in std::mem::take(&mut self.streams) {
            stream
                .flow
                .finished(Fields::default(), Some(error), store, now);
        }
    }

    fn side(&mut self, from: MessageSender) -> &mut Side {
        match from {
            MessageSender::Visitor => &mut self.visitor,
            MessageSender::Service => &mut self.service,
        }
    }

    fn feed(
        &mut self,
        from: MessageSender,
        mut bytes: &[u8],
        sink: &mut ExchangeSink<'_>,
    ) -> Result<(), DecodeError> {
        loop {
            if let Some(data) = self.side(from).data.take() {
                let (here, rest) = bytes.split_at(data.left.min(bytes.len()));
                bytes = rest;
                if !self.data(from, data, here, sink) {
                    return Ok(());
                }
            }
            let side = self.side(from);
            // Wait for the frame header, then for the whole frame unless it is data.
            let needed = match Frame::read(&side.buffered) {
                Some(frame) if frame.kind == DATA => FRAME_HEAD + frame.pad_length(),
                Some(frame) if frame.length > HEAD_BYTES => {
                    return Err("an HTTP/2 frame that is too large");
                }
                Some(frame) => FRAME_HEAD + frame.length,
                None => FRAME_HEAD,
            };
            let (here, rest) = bytes.split_at((needed - side.buffered.len()).min(bytes.len()));
            side.buffered.extend_from_slice(here);
            bytes = rest;
            if side.buffered.len() < needed {
                return Ok(());
            }
            let Some(frame) = Frame::read(&side.buffered) else {
                continue;
            };
            if side.buffered.len() < FRAME_HEAD + frame.buffered_length() {
                continue;
            }
            let held = std::mem::take(&mut side.buffered);
            let payload = held.get(FRAME_HEAD..).unwrap_or_default();
            self.frame(from, frame, payload, sink)?;
        }
    }

    fn frame(
        &mut self,
        from: MessageSender,
        frame: Frame,
        payload: &[u8],
        sink: &mut ExchangeSink<'_>,
    ) -> Result<(), DecodeError> {
        if self.side(from).block.is_some() && frame.kind != CONTINUATION {
            return Err("an incomplete HTTP/2 head");
        }
        match frame.kind {
            DATA => {
                let padding = payload.first().map_or(0, |padding| usize::from(*padding));
                let left = frame.length.checked_sub(payload.len());
                let left = left.filter(|left| padding <= *left);
                let data = Data {
                    stream: frame.stream,
                    left: left.ok_or("an HTTP/2 frame of padding alone")?,
                    padding,
                    last: frame.has(END_STREAM),
                };
                self.side(from).data = Some(data);
                Ok(())
            }
            HEADERS => {
                let block = Block {
                    stream: frame.stream,
                    bytes: unpadded(frame, payload)?.to_vec(),
                    last: frame.has(END_STREAM),
                };
                self.block(from, frame, block, sink)
            }
            CONTINUATION => {
                let mut block = self.side(from).block.take();
                let block = block.take().filter(|block| block.stream == frame.stream);
                let mut block =
                    block.ok_or("an HTTP/2 CONTINUATION frame without a HEADERS frame")?;
                block.bytes.extend_from_slice(payload);
                self.block(from, frame, block, sink)
            }
            RST_STREAM => {
                let code = payload.first_chunk().map(|code| u32::from_be_bytes(*code));
                self.reset(from, frame.stream, code.unwrap_or_default(), sink);
                Ok(())
            }
            SETTINGS if !frame.has(ACK) => {
                self.settings(from, payload);
                Ok(())
            }
            PUSH_PROMISE => Err("a pushed response"),
            _ => Ok(()),
        }
    }

    /// The receiver sets the size of a table, so it applies to the other direction.
    fn settings(&mut self, from: MessageSender, payload: &[u8]) {
        let other = self.side(match from {
            MessageSender::Visitor => MessageSender::Service,
            MessageSender::Service => MessageSender::Visitor,
        });
        for setting in payload.chunks_exact(6) {
            let &[0, HEADER_TABLE_SIZE, a, b, c, d] = setting else {
                continue;
            };
            let size = u32::from_be_bytes([a, b, c, d]);
            let size = usize::try_from(size).map_or(MAX_TABLE, |size| size.min(MAX_TABLE));
            // Never smaller than before, because the sender announces a reduction itself.
            other.table = other.table.max(size);
            other.hpack.set_max_allowed_table_size(other.table);
        }
    }

    /// Passes on the received part of a data frame; true if the frame is complete.
    fn data(
        &mut self,
        from: MessageSender,
        mut data: Data,
        here: &[u8],
        sink: &mut ExchangeSink<'_>,
    ) -> bool {
        let payload = data.left - data.padding;
        let payload_bytes = here.get(..payload).unwrap_or(here);
        data.left -= here.len();
        data.padding = data.padding.min(data.left);
        let over = data.left == 0;
        let (store, now) = (&mut *sink.store, sink.now);
        if let Some(stream) = self.streams.get_mut(&data.stream) {
            match from {
                MessageSender::Visitor => stream.flow.request_body(payload_bytes, store, now),
                MessageSender::Service => stream.flow.response_body(payload_bytes, store, now),
            }
        }
        if over && data.last {
            self.end_direction(from, data.stream, Fields::default(), sink);
        } else if !over {
            self.side(from).data = Some(data);
        }
        over
    }

    fn block(
        &mut self,
        from: MessageSender,
        frame: Frame,
        block: Block,
        sink: &mut ExchangeSink<'_>,
    ) -> Result<(), DecodeError> {
        if block.bytes.len() > HEAD_BYTES {
            return Err("an HTTP/2 head that is too large");
        }
        let side = self.side(from);
        if !frame.has(END_HEADERS) {
            side.block = Some(block);
            return Ok(());
        }
        let mut read = DecodedHeaders::default();
        // An index of one byte may expand to kilobytes.
        let mut capacity = MAX_DECODED_BYTES;
        side.hpack
            .decode_with_cb(&block.bytes, |name, value| {
                let size = name.len() + value.len();
                if capacity >= size {
                    capacity -= size;
                    read.push(&name, &value);
                }
            })
            .map_err(|_| "an HTTP/2 head that cannot be decompressed")?;
        match from {
            MessageSender::Visitor => self.request(&block, read, sink),
            MessageSender::Service => self.response(&block, read, sink),
        }
    }

    fn request(
        &mut self,
        block: &Block,
        read: DecodedHeaders,
        sink: &mut ExchangeSink<'_>,
    ) -> Result<(), DecodeError> {
        if self.streams.contains_key(&block.stream) {
            if block.last {
                self.end_direction(MessageSender::Visitor, block.stream, read.fields, sink);
            }
            return Ok(());
        }
        let Some(origin) = sink.origin else {
            return Ok(());
        };
        if self.streams.len() >= PENDING_REQUESTS {
            return Err("too many requests are waiting for responses");
        }
        let host = match read.authority {
            Some(authority) => authority,
            None => read.fields.get("host").unwrap_or_default().to_owned(),
        };
        let request = Request {
            method: read.method,
            path: read.path,
            host,
            version: Version::Http2,
            fields: read.fields,
        };
        let flow = Flow::begin(origin, request, sink.store, sink.now);
        let stream = Stream {
            flow,
            request_ended: false,
            has_response: false,
            response_ended: false,
        };
        self.streams.insert(block.stream, stream);
        if block.last {
            self.end_direction(
                MessageSender::Visitor,
                block.stream,
                Fields::default(),
                sink,
            );
        }
        Ok(())
    }

    fn response(
        &mut self,
        block: &Block,
        read: DecodedHeaders,
        sink: &mut ExchangeSink<'_>,
    ) -> Result<(), DecodeError> {
        let Some(stream) = self.streams.get_mut(&block.stream) else {
            return Ok(());
        };
        if stream.has_response {
            if block.last {
                self.end_direction(MessageSender::Service, block.stream, read.fields, sink);
            }
            return Ok(());
        }
        let status = read.status.ok_or("an HTTP/2 response without a status")?;
        if status < 200 {
            return Ok(());
        }
        stream.has_response = true;
        let mut trailers = Fields::default();
        if block.last {
            // gRPC responses without messages have their status here.
            let known = |name: &str| name.eq_ignore_ascii_case("grpc-status");
            if read.fields.0.iter().any(|(name, _)| known(name)) {
                trailers.0.clone_from(&read.fields.0);
                trailers.0.retain(|(name, _)| name.starts_with("grpc-"));
            }
        }
        let response = Response {
            status,
            reason: String::new(),
            version: Version::Http2,
            fields: read.fields,
        };
        stream.flow.response_started(response, sink.store, sink.now);
        if block.last {
            self.end_direction(MessageSender::Service, block.stream, trailers, sink);
        }
        Ok(())
    }

    fn end_direction(
        &mut self,
        from: MessageSender,
        id: u32,
        trailers: Fields,
        sink: &mut ExchangeSink<'_>,
    ) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        let (store, now) = (&mut *sink.store, sink.now);
        match from {
            MessageSender::Visitor => {
                stream.request_ended = true;
                stream.flow.request_finished(trailers, store, now);
            }
            MessageSender::Service => {
                stream.response_ended = true;
                stream.flow.finished(trailers, None, store, now);
            }
        }
        if stream.request_ended && stream.response_ended {
            self.streams.remove(&id);
        }
    }

    fn reset(&mut self, from: MessageSender, id: u32, code: u32, sink: &mut ExchangeSink<'_>) {
        let Some(mut stream) = self.streams.remove(&id) else {
            return;
        };
        let who = match from {
            MessageSender::Visitor => "the visitor's side",
            MessageSender::Service => "the service",
        };
        let message = format!("{who} reset the stream ({})", error_name(code));
        let (store, now) = (&mut *sink.store, sink.now);
        // After a complete response, the reset only cancels the rest of the request, which is not
        // an error.
        stream
            .flow
            .finished(Fields::default(), Some(&message), store, now);
    }
}

impl Frame {
    fn read(held: &[u8]) -> Option<Self> {
        let (length, rest) = held.split_first_chunk::<3>()?;
        let (&[kind, flags], rest) = rest.split_first_chunk()?;
        let stream = u32::from_be_bytes(*rest.first_chunk()?);
        let length = length
            .iter()
            .fold(0, |sum, byte| sum << 8 | usize::from(*byte));
        Some(Self {
            length,
            kind,
            flags,
            stream: stream & 0x7FFF_FFFF,
        })
    }

    fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    fn pad_length(self) -> usize {
        usize::from(self.has(PADDED))
    }

    /// Number of payload bytes that are buffered before the frame is handled.
    fn buffered_length(self) -> usize {
        if self.kind == DATA {
            self.pad_length()
        } else {
            self.length
        }
    }
}

/// Removes padding and priority from the payload of a HEADERS frame.
fn unpadded(frame: Frame, payload: &[u8]) -> Result<&[u8], DecodeError> {
    const ONLY_PADDING: DecodeError = "an HTTP/2 frame of padding alone";
    let (padding, rest) = if frame.has(PADDED) {
        let (padding, rest) = payload.split_first().ok_or(ONLY_PADDING)?;
        (usize::from(*padding), rest)
    } else {
        (0, payload)
    };
    let start = if frame.has(PRIORITY) { 5 } else { 0 };
    let end = rest.len().checked_sub(padding).ok_or(ONLY_PADDING)?;
    rest.get(start..end).ok_or(ONLY_PADDING)
}

/// A decoded header block.
#[derive(Default)]
struct DecodedHeaders {
    method: String,
    path: String,
    authority: Option<String>,
    status: Option<u16>,
    fields: Fields,
}

impl DecodedHeaders {
    fn push(&mut self, name: &[u8], value: &[u8]) {
        let words = || text(value).into_owned();
        match name {
            b":method" => self.method = words(),
            b":path" => self.path = words(),
            b":authority" => self.authority = Some(words()),
            b":status" => self.status = words().parse().ok(),
            [b':', ..] => {}
            _ => self.fields.push(name, value),
        }
    }
}

/// RFC 9113 §7.
fn error_name(code: u32) -> String {
    const NAMES: [&str; 14] = [
        "no error",
        "protocol error",
        "internal error",
        "flow control error",
        "settings timeout",
        "stream closed",
        "frame size error",
        "refused",
        "cancelled",
        "compression error",
        "connect error",
        "enhance your calm",
        "inadequate security",
        "HTTP/1.1 required",
    ];
    let name = usize::try_from(code).ok().and_then(|code| NAMES.get(code));
    name.map_or_else(|| format!("code {code}"), ToString::to_string)
}

const FRAME_HEAD: usize = 9;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PUSH_PROMISE: u8 = 5;
const CONTINUATION: u8 = 9;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;
const PRIORITY: u8 = 0x20;
const HEADER_TABLE_SIZE: u8 = 1;

/// Default of `SETTINGS_HEADER_TABLE_SIZE` (RFC 9113 §6.5.2).
const DEFAULT_TABLE_SIZE: usize = 4096;
/// Maximum table size. Common servers allow no more, and each connection has two tables.
const MAX_TABLE: usize = 64 * 1024;
/// Maximum number of recorded bytes of one header block.
const MAX_DECODED_BYTES: usize = 2 * HEAD_BYTES;

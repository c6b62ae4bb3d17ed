//! Messages of a WebSocket (RFC 6455), with per-message compression (RFC 7692).

use flate2::{Decompress, FlushDecompress, Status};
use jiff::Timestamp;

use super::DecodeError;
use crate::{
    exchange::{Fields, MessageKind, MessageSender},
    limits::{INFLATED_BYTES, MESSAGE_BYTES},
    store::{self, Store},
};

/// Both directions after an upgrade.
pub(super) struct WebSocket {
    id: Option<u64>,
    visitor: Messages,
    service: Messages,
}

impl WebSocket {
    /// `response_fields` are the header fields of the 101 response.
    pub(super) fn new(id: Option<u64>, response_fields: &Fields) -> Self {
        let extension = response_fields
            .get("sec-websocket-extensions")
            .unwrap_or_default();
        let deflates = extension
            .split(',')
            .any(|one| one.split(';').next().map(str::trim) == Some("permessage-deflate"));
        let has = |parameter: &str| {
            let mut all = extension.split([',', ';']);
            all.any(|one| one.trim() == parameter)
        };
        let direction = |forgets: bool| Messages {
            inflate: deflates.then(|| Inflater::new(forgets)),
            ..Messages::default()
        };
        Self {
            id,
            visitor: direction(has("client_no_context_takeover")),
            service: direction(has("server_no_context_takeover")),
        }
    }

    pub(super) fn visitor_sent(
        &mut self,
        bytes: &[u8],
        store: &mut Store,
        now: Timestamp,
    ) -> Result<(), DecodeError> {
        let mut sink = Sink {
            store,
            id: self.id,
            from: MessageSender::Visitor,
            now,
        };
        self.visitor.feed(bytes, &mut sink)
    }

    pub(super) fn service_sent(
        &mut self,
        bytes: &[u8],
        store: &mut Store,
        now: Timestamp,
    ) -> Result<(), DecodeError> {
        let mut sink = Sink {
            store,
            id: self.id,
            from: MessageSender::Service,
            now,
        };
        self.service.feed(bytes, &mut sink)
    }
}

struct Sink<'s> {
    store: &'s mut Store,
    id: Option<u64>,
    from: MessageSender,
    now: Timestamp,
}

impl Sink<'_> {
    fn message(&mut self, what: MessageKind, kept: Vec<u8>, size: u64, compressed: bool) {
        if let Some(id) = self.id {
            let message = store::message(self.now, self.from, what, kept, size, compressed);
            self.store.message(id, message);
        }
    }
}

/// One direction.
#[derive(Default)]
struct Messages {
    /// The received part of a frame header.
    head: Vec<u8>,
    frame: Option<Frame>,
    /// A data message, between whose frames control frames may appear.
    data: Option<Data>,
    control: Vec<u8>,
    inflate: Option<Inflater>,
}

struct Frame {
    opcode: u8,
    last: bool,
    left: u64,
    mask: Option<[u8; 4]>,
    /// Position of the next byte in the mask.
    at: usize,
}

struct Data {
    text: bool,
    kept: Vec<u8>,
    /// Size as transferred.
    size: u64,
    inflated: Option<u64>,
    /// True if the bytes cannot be decompressed and stay compressed.
    compressed: bool,
}

impl Messages {
    fn feed(&mut self, mut bytes: &[u8], sink: &mut Sink<'_>) -> Result<(), DecodeError> {
        loop {
            if self.frame.is_none() {
                let Some((&byte, rest)) = bytes.split_first() else {
                    return Ok(());
                };
                self.head.push(byte);
                bytes = rest;
                self.begin_frame()?;
            }
            // An empty frame ends without further bytes.
            let Some(frame) = &mut self.frame else {
                continue;
            };
            let here =
                usize::try_from(frame.left).map_or(bytes.len(), |left| left.min(bytes.len()));
            let (payload, rest) = bytes.split_at(here);
            bytes = rest;
            frame.left -= here as u64;
            let plain = frame.unmask(payload);
            let over = frame.left == 0;
            let (opcode, last) = (frame.opcode, frame.last);
            if opcode >= CLOSE {
                self.control.extend_from_slice(&plain);
            } else {
                self.append_payload(&plain);
            }
            if !over {
                return Ok(());
            }
            self.frame = None;
            if opcode >= CLOSE {
                self.end_control(opcode, sink);
            } else if last {
                self.end_data(sink);
            }
        }
    }

    /// Parses the header of a frame, if it is complete.
    fn begin_frame(&mut self) -> Result<(), DecodeError> {
        let &[first, second, ref rest @ ..] = self.head.as_slice() else {
            return Ok(());
        };
        let masked = second & 0x80 != 0;
        let length_bytes = match second & 0x7F {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        let mask_bytes = if masked { 4 } else { 0 };
        if rest.len() < length_bytes + mask_bytes {
            return Ok(());
        }
        let (length, mask) = rest.split_at(length_bytes);
        let left = if length.is_empty() {
            u64::from(second & 0x7F)
        } else {
            length
                .iter()
                .fold(0, |sum, byte| sum << 8 | u64::from(*byte))
        };
        let opcode = first & 0x0F;
        let last = first & 0x80 != 0;
        let compressed = first & 0x40 != 0;
        if !matches!(opcode, 0..=2 | CLOSE..=PONG) || first & 0x30 != 0 {
            return Err("a WebSocket frame of an unknown kind");
        }
        if opcode >= CLOSE && (!last || left > CONTROL_BYTES || compressed) {
            return Err("a WebSocket control frame that is too long or fragmented");
        }
        match (opcode, &self.data) {
            (0, None) => return Err("a WebSocket continuation frame without a message"),
            (1 | 2, Some(_)) => return Err("a WebSocket message that starts within another"),
            (1 | 2, None) => {
                let inflates = compressed && self.inflate.is_some();
                self.data = Some(Data {
                    text: opcode == 1,
                    kept: Vec::new(),
                    size: 0,
                    inflated: inflates.then_some(0),
                    compressed: compressed && !inflates,
                });
            }
            _ => {}
        }
        self.frame = Some(Frame {
            opcode,
            last,
            left,
            mask: mask.try_into().ok(),
            at: 0,
        });
        self.head.clear();
        Ok(())
    }

    fn append_payload(&mut self, plain: &[u8]) {
        let Some(data) = &mut self.data else {
            return;
        };
        data.size += plain.len() as u64;
        match (&mut data.inflated, &mut self.inflate) {
            (Some(inflated), Some(inflate)) => {
                let unfolded = inflate.run(plain, &mut data.kept, inflated);
                if unfolded.is_err() {
                    // Later messages depend on the missing bytes.
                    self.inflate = None;
                    data.compressed = data.kept.is_empty();
                    data.inflated = None;
                }
            }
            // Inflating was aborted within this message.
            (Some(_), None) => {}
            (None, _) => {
                let capacity = MESSAGE_BYTES.saturating_sub(data.kept.len());
                data.kept
                    .extend_from_slice(plain.get(..capacity).unwrap_or(plain));
            }
        }
    }

    fn end_data(&mut self, sink: &mut Sink<'_>) {
        let Some(mut data) = self.data.take() else {
            return;
        };
        if let (Some(inflated), Some(inflate)) = (&mut data.inflated, &mut self.inflate) {
            if inflate.run(INFLATE_TAIL, &mut data.kept, inflated).is_err() {
                self.inflate = None;
            } else if inflate.no_context_takeover {
                inflate.state.reset(false);
            }
        }
        let what = if data.text {
            MessageKind::Text
        } else {
            MessageKind::Binary
        };
        let size = data.inflated.unwrap_or(data.size);
        sink.message(what, data.kept, size, data.compressed);
    }

    fn end_control(&mut self, opcode: u8, sink: &mut Sink<'_>) {
        let mut payload = std::mem::take(&mut self.control);
        let what = match opcode {
            CLOSE => {
                let code = payload.first_chunk().map(|code| u16::from_be_bytes(*code));
                payload.drain(..if code.is_some() { 2 } else { payload.len() });
                MessageKind::Close { code }
            }
            PING => MessageKind::Ping,
            _ => MessageKind::Pong,
        };
        let size = payload.len() as u64;
        sink.message(what, payload, size, false);
    }
}

impl Frame {
    fn unmask(&mut self, payload: &[u8]) -> Vec<u8> {
        let Some(mask) = self.mask else {
            return payload.to_vec();
        };
        let cycle = mask.iter().cycle().skip(self.at);
        let plain = payload.iter().zip(cycle).map(|(byte, mask)| byte ^ mask);
        let plain = plain.collect();
        self.at = (self.at + payload.len()) % mask.len();
        plain
    }
}

/// Decompression of one direction.
struct Inflater {
    state: Decompress,
    /// Each message is compressed independently.
    no_context_takeover: bool,
}

impl Inflater {
    fn new(forgets: bool) -> Self {
        Self {
            state: Decompress::new(false),
            no_context_takeover: forgets,
        }
    }

    /// Inflates more bytes; appends up to the limit, and counts all.
    fn run(&mut self, mut bytes: &[u8], kept: &mut Vec<u8>, size: &mut u64) -> Result<(), ()> {
        let mut buffer = [0; 4096];
        loop {
            let (taken, made) = (self.state.total_in(), self.state.total_out());
            let status = self
                .state
                .decompress(bytes, &mut buffer, FlushDecompress::Sync)
                .map_err(drop)?;
            let taken = usize::try_from(self.state.total_in() - taken).map_err(drop)?;
            let made = usize::try_from(self.state.total_out() - made).map_err(drop)?;
            bytes = bytes.get(taken..).unwrap_or_default();
            *size += made as u64;
            if *size > INFLATED_BYTES as u64 {
                return Err(());
            }
            let fresh = buffer.get(..made).unwrap_or_default();
            let free = MESSAGE_BYTES.saturating_sub(kept.len());
            kept.extend_from_slice(fresh.get(..free).unwrap_or(fresh));
            match status {
                Status::StreamEnd => {
                    // A final block within a message; the next block starts a new stream.
                    self.state.reset(false);
                    if bytes.is_empty() {
                        return Ok(());
                    }
                }
                _ if bytes.is_empty() && made < buffer.len() => return Ok(()),
                _ if taken == 0 && made == 0 => return Err(()),
                _ => {}
            }
        }
    }
}

const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

/// RFC 6455 §5.5.
const CONTROL_BYTES: u64 = 125;

/// The tail that a sender removes from each message (RFC 7692 §7.2.1).
const INFLATE_TAIL: &[u8] = &[0, 0, 0xFF, 0xFF];

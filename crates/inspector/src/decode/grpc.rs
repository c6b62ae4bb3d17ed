//! Messages of gRPC: one byte of flags, four bytes of length, and the message.

use jiff::Timestamp;

use crate::{
    exchange::{Message, MessageKind, MessageSender},
    limits::MESSAGE_BYTES,
    store,
};

/// Splits a body into messages, independent of its segmentation.
#[derive(Debug, Default)]
pub(super) struct Frames {
    head: Vec<u8>,
    frame: Option<Frame>,
    left: u64,
}

/// A message.
#[derive(Debug, Default)]
pub(super) struct Frame {
    flags: u8,
    size: u64,
    kept: Vec<u8>,
}

impl Frames {
    pub(super) fn feed(&mut self, mut bytes: &[u8], mut each: impl FnMut(Frame)) {
        loop {
            let Some(frame) = &mut self.frame else {
                let missing = HEAD - self.head.len();
                let (head, rest) = bytes.split_at(missing.min(bytes.len()));
                self.head.extend_from_slice(head);
                bytes = rest;
                let &[flags, a, b, c, d] = self.head.as_slice() else {
                    return;
                };
                self.head.clear();
                self.left = u32::from_be_bytes([a, b, c, d]).into();
                self.frame = Some(Frame {
                    flags,
                    size: self.left,
                    kept: Vec::new(),
                });
                continue;
            };
            let here = usize::try_from(self.left).map_or(bytes.len(), |left| left.min(bytes.len()));
            let (data, rest) = bytes.split_at(here);
            self.left -= here as u64;
            bytes = rest;
            let capacity = MESSAGE_BYTES.saturating_sub(frame.kept.len());
            frame
                .kept
                .extend_from_slice(data.get(..capacity).unwrap_or(data));
            if self.left > 0 {
                return;
            }
            if let Some(frame) = self.frame.take() {
                each(frame);
            }
        }
    }
}

impl Frame {
    pub(super) fn into_message(self, from: MessageSender, at: Timestamp) -> Message {
        let what = if self.flags & TRAILERS == 0 {
            MessageKind::Grpc
        } else {
            MessageKind::Trailers
        };
        let compressed = self.flags & COMPRESSED != 0;
        store::message(at, from, what, self.kept, self.size, compressed)
    }
}

const HEAD: usize = 5;
const COMPRESSED: u8 = 1;
/// gRPC-Web sends trailers as a last message.
const TRAILERS: u8 = 0x80;

//! Positions in a stream of WebSocket frames, from the lengths in their headers (RFC 6455, 5.2).

use bytes::Bytes;

/// Opcode of a Close frame (RFC 6455, 11.8).
const CLOSE: u8 = 0x8;

/// First byte of a Close frame: it is the final fragment.
const FINAL_CLOSE: u8 = 0x80 | CLOSE;

/// Status code of an endpoint that goes away (RFC 6455, 7.4.1).
const GOING_AWAY: u16 = 1001;

/// Length of a masking key.
const KEY_LENGTH: u64 = 4;

/// Follows the frames of one direction. Payloads are skipped, not read. Any bytes are accepted: a
/// header that the protocol forbids only leads to other boundaries.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FrameTracker {
    position: Position,
    /// Opcode of the current frame.
    opcode: u8,
    has_closed: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Position {
    /// Between two frames.
    #[default]
    Boundary,
    /// After the first byte of a header.
    Opcode,
    /// In an extended length, of which `missing` bytes follow.
    Length {
        missing: u8,
        length: u64,
        is_masked: bool,
    },
    /// In the masking key or the payload.
    Payload { rest: u64 },
}

impl Position {
    /// After a header.
    fn after_header(length: u64, is_masked: bool) -> Self {
        Self::before(length.saturating_add(if is_masked { KEY_LENGTH } else { 0 }))
    }

    /// Before the last `rest` bytes of a frame.
    fn before(rest: u64) -> Self {
        if rest == 0 {
            Self::Boundary
        } else {
            Self::Payload { rest }
        }
    }
}

impl FrameTracker {
    /// The position after `bytes`, from the start of the stream.
    pub(super) fn after(bytes: &[u8]) -> Self {
        let mut tracker = Self::default();
        tracker.advance(bytes);
        tracker
    }

    /// True between two frames.
    pub(super) fn is_at_boundary(&self) -> bool {
        self.position == Position::Boundary
    }

    /// True after a complete Close frame.
    pub(super) fn has_closed(&self) -> bool {
        self.has_closed
    }

    /// Passes `bytes`.
    pub(super) fn advance(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let used = self.advance_frame(rest);
            rest = rest.get(used..).unwrap_or_default();
        }
    }

    /// Passes `bytes` up to the end of the current frame, or of the next one at a boundary. Returns
    /// the number of bytes passed.
    pub(super) fn advance_frame(&mut self, bytes: &[u8]) -> usize {
        let mut used = 0;
        while let Some(&byte) = bytes.get(used) {
            let mut count = 1;
            self.position = match self.position {
                Position::Boundary => {
                    self.opcode = byte & 0x0f;
                    Position::Opcode
                }
                Position::Opcode => {
                    let is_masked = byte & 0x80 != 0;
                    match byte & 0x7f {
                        126 => Position::Length {
                            missing: 2,
                            length: 0,
                            is_masked,
                        },
                        127 => Position::Length {
                            missing: 8,
                            length: 0,
                            is_masked,
                        },
                        length => Position::after_header(u64::from(length), is_masked),
                    }
                }
                Position::Length {
                    missing,
                    length,
                    is_masked,
                } => {
                    let length = (length << 8) | u64::from(byte);
                    if missing > 1 {
                        Position::Length {
                            missing: missing - 1,
                            length,
                            is_masked,
                        }
                    } else {
                        Position::after_header(length, is_masked)
                    }
                }
                Position::Payload { rest } => {
                    count = usize::try_from(rest)
                        .unwrap_or(usize::MAX)
                        .min(bytes.len() - used);
                    Position::before(rest - count as u64)
                }
            };
            used += count;
            if self.is_at_boundary() {
                self.has_closed |= self.opcode == CLOSE;
                break;
            }
        }
        used
    }
}

/// A Close frame of a server that goes away.
pub(super) fn close_of_server() -> Bytes {
    let [high, low] = GOING_AWAY.to_be_bytes();
    Bytes::copy_from_slice(&[FINAL_CLOSE, 2, high, low])
}

/// The same of a client, whose payload is masked (RFC 6455, 5.3).
pub(super) fn close_of_client(key: [u8; 4]) -> Bytes {
    let [high, low] = GOING_AWAY.to_be_bytes();
    let [first, second, third, fourth] = key;
    Bytes::copy_from_slice(&[
        FINAL_CLOSE,
        0x80 | 2,
        first,
        second,
        third,
        fourth,
        high ^ first,
        low ^ second,
    ])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio_tungstenite::tungstenite::protocol::CloseFrame;
    use tokio_tungstenite::tungstenite::protocol::frame::Frame;
    use tokio_tungstenite::tungstenite::protocol::frame::coding::{CloseCode, Data, OpCode};

    use super::*;

    const KEY: [u8; 4] = [0x11, 0x22, 0x33, 0x44];

    /// The bytes of a data frame, from another implementation.
    fn data(length: usize, key: Option<[u8; 4]>) -> Vec<u8> {
        let payload = vec![0x81; length];
        encoded(
            Frame::message(payload, OpCode::Data(Data::Binary), true),
            key,
        )
    }

    /// The bytes of the Close frame that the engine sends, from another implementation.
    fn close(key: Option<[u8; 4]>) -> Vec<u8> {
        let code = CloseCode::Away;
        let reason = "".into();
        encoded(Frame::close(Some(CloseFrame { code, reason })), key)
    }

    fn encoded(mut frame: Frame, key: Option<[u8; 4]>) -> Vec<u8> {
        frame.header_mut().mask = key;
        let mut bytes = Vec::new();
        frame.format(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn a_boundary_follows_each_length_of_a_payload() {
        for key in [None, Some(KEY)] {
            for length in [0, 1, 125, 126, 127, 65_535, 65_536, 70_000] {
                let bytes = data(length, key);
                let (last, before) = bytes.split_last().unwrap();
                let mut tracker = FrameTracker::after(before);
                assert!(!tracker.is_at_boundary(), "{length}");
                tracker.advance(&[*last]);
                assert!(tracker.is_at_boundary(), "{length}");
                assert!(!tracker.has_closed());
            }
        }
    }

    #[test]
    fn a_frame_ends_before_the_next_one() {
        let mut bytes = data(3, None);
        let end = bytes.len();
        bytes.extend(data(200, None));
        let mut tracker = FrameTracker::default();
        assert_eq!(tracker.advance_frame(&bytes), end);
        assert!(tracker.is_at_boundary());
        assert_eq!(tracker.advance_frame(&bytes[end..]), bytes.len() - end);
        assert_eq!(tracker.advance_frame(&[]), 0);
    }

    #[test]
    fn a_close_frame_is_recognised_when_it_is_complete() {
        let bytes = close(Some(KEY));
        let (last, before) = bytes.split_last().unwrap();
        let mut tracker = FrameTracker::after(&data(5, None));
        tracker.advance(before);
        assert!(!tracker.has_closed());
        tracker.advance(&[*last]);
        assert!(tracker.has_closed() && tracker.is_at_boundary());
    }

    #[test]
    fn a_length_beyond_any_stream_has_no_boundary() {
        let mut header = vec![0x82_u8, 0xff];
        header.extend([0xff; 8]);
        let mut tracker = FrameTracker::after(&header);
        tracker.advance(&[0; 1000]);
        assert!(!tracker.is_at_boundary());
    }

    #[test]
    fn close_frames_are_those_of_the_protocol() {
        assert_eq!(close_of_server()[..], close(None)[..]);
        assert_eq!(close_of_client(KEY)[..], close(Some(KEY))[..]);
        assert!(FrameTracker::after(&close_of_server()).has_closed());
    }

    proptest! {
        /// Boundaries do not depend on the pieces in which a stream arrives.
        #[test]
        fn boundaries_are_found_in_any_split(
            lengths in prop::collection::vec((0_usize..300, any::<Option<[u8; 4]>>()), 1..20),
            pieces in prop::collection::vec(1_usize..200, 1..50),
        ) {
            let mut stream = Vec::new();
            let mut boundaries = vec![0];
            for (length, key) in lengths {
                stream.extend(data(length, key));
                boundaries.push(stream.len());
            }
            let mut tracker = FrameTracker::default();
            let mut at = 0;
            for piece in pieces.iter().cycle() {
                prop_assert_eq!(tracker.is_at_boundary(), boundaries.contains(&at));
                if at == stream.len() {
                    break;
                }
                let end = stream.len().min(at + piece);
                tracker.advance(&stream[at..end]);
                at = end;
            }
            prop_assert!(!tracker.has_closed());
        }

        /// Any bytes are accepted, and a step never passes more than it gets.
        #[test]
        fn arbitrary_bytes_are_passed_once(bytes in prop::collection::vec(any::<u8>(), 0..500)) {
            let mut tracker = FrameTracker::default();
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let used = tracker.advance_frame(rest);
                prop_assert!((1..=rest.len()).contains(&used));
                prop_assert!(used == rest.len() || tracker.is_at_boundary());
                rest = &rest[used..];
            }
            let whole = FrameTracker::after(&bytes);
            prop_assert_eq!(whole.is_at_boundary(), tracker.is_at_boundary());
            prop_assert_eq!(whole.has_closed(), tracker.has_closed());
        }
    }
}

//! Framing of messages on a stream (RFC 8656 section 12.5, RFC 8489 section 6.2.2).

/// Bytes of a STUN header.
pub const HEADER_BYTES: usize = 20;

/// Maximum size of a frame: a peer's largest datagram, in a Send indication with its attributes.
pub const MAX_FRAME_BYTES: usize = 65_535 + 64;

/// State of the bytes at the start of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame {
    /// One message of `bytes`, then `padding` to ignore.
    Complete {
        /// Bytes of the message.
        bytes: usize,
        /// Number of padding bytes.
        padding: usize,
    },
    /// More bytes are needed.
    Partial,
    /// Neither a STUN message nor channel data: the start of the next message is unknown.
    Invalid,
}

/// Examines the start of a stream's buffer.
pub fn frame(bytes: &[u8]) -> Frame {
    let Some((&[kind, _, high, low], rest)) = bytes.split_first_chunk() else {
        return match bytes.first() {
            Some(0x80..) => Frame::Invalid,
            _ => Frame::Partial,
        };
    };
    let length = usize::from(u16::from_be_bytes([high, low]));
    let (whole, padding) = match kind {
        // STUN: its first two bits are zero, and its length is a multiple of four.
        0x00..=0x3f => {
            let cookie = rest.get(..4);
            if !length.is_multiple_of(4) || cookie.is_some_and(|cookie| cookie != MAGIC_COOKIE) {
                return Frame::Invalid;
            }
            (HEADER_BYTES + length, 0)
        }
        // Channel data, padded to a multiple of four on streams.
        0x40..=0x7f => (4 + length, length.next_multiple_of(4) - length),
        0x80.. => return Frame::Invalid,
    };
    if whole > MAX_FRAME_BYTES {
        Frame::Invalid
    } else if bytes.len() < whole + padding {
        Frame::Partial
    } else {
        Frame::Complete {
            bytes: whole,
            padding,
        }
    }
}

/// Second word of every STUN message (RFC 8489 section 5).
pub const MAGIC_COOKIE: [u8; 4] = [0x21, 0x12, 0xa4, 0x42];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_found() {
        let stun = [
            &[0, 1, 0, 4][..],
            &MAGIC_COOKIE,
            &[0; 12],
            &[0x80, 0x22, 0, 0],
        ]
        .concat();
        assert_eq!(
            frame(&stun),
            Frame::Complete {
                bytes: 24,
                padding: 0
            }
        );
        for end in 0..stun.len() {
            assert_eq!(frame(&stun[..end]), Frame::Partial, "{end}");
        }
        let data = [0x40, 0, 0, 5, 1, 2, 3, 4, 5, 0, 0, 0, 9];
        assert_eq!(
            frame(&data),
            Frame::Complete {
                bytes: 9,
                padding: 3
            }
        );
        for end in 0..12 {
            assert_eq!(frame(&data[..end]), Frame::Partial, "{end}");
        }
        assert_eq!(
            frame(&[0x4f, 0xff, 0, 0]),
            Frame::Complete {
                bytes: 4,
                padding: 0
            }
        );
    }

    #[test]
    fn other_data_is_broken() {
        for broken in [
            &[0x80][..],
            &[0xff, 0, 0, 0],
            // TLS on the plain port, HTTP.
            &[22, 3, 1, 2, 0, 1, 0, 1],
            b"GET / HTTP/1.1",
            &[0, 1, 0, 3, 0x21, 0x12, 0xa4, 0x42],
            &[0, 1, 0, 4, 0x21, 0x12, 0xa4, 0x43],
        ] {
            let found = frame(broken);
            // A request that begins with `G` looks like incomplete channel data.
            assert!(
                matches!(found, Frame::Invalid | Frame::Partial),
                "{broken:?}"
            );
            assert_eq!(found == Frame::Invalid, broken[0] != b'G', "{broken:?}");
        }
    }
}

//! Where a message ends on a stream (RFC 8656 section 12.5, RFC 8489 section 6.2.2).

/// Bytes of a STUN header.
pub const HEADER_BYTES: usize = 20;

/// Largest frame: what a peer's datagram can hold, in a Send indication with its attributes.
pub const MAX_FRAME_BYTES: usize = 65_535 + 64;

/// What stands at the beginning of the bytes that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame {
    /// One message of `bytes`, then `padding` that belongs to nobody.
    Whole {
        /// Bytes of the message.
        bytes: usize,
        /// Bytes behind it.
        padding: usize,
    },
    /// More has to come.
    Partial,
    /// Neither a STUN message nor channel data: where the next one begins cannot be known.
    Broken,
}

/// Looks at the beginning of what came on a stream.
pub fn frame(bytes: &[u8]) -> Frame {
    let Some((&[kind, _, high, low], rest)) = bytes.split_first_chunk() else {
        return match bytes.first() {
            Some(0x80..) => Frame::Broken,
            _ => Frame::Partial,
        };
    };
    let length = usize::from(u16::from_be_bytes([high, low]));
    let (whole, padding) = match kind {
        // STUN: its first two bits are zero, its length is of whole words.
        0x00..=0x3f => {
            let cookie = rest.get(..4);
            if !length.is_multiple_of(4) || cookie.is_some_and(|cookie| cookie != MAGIC_COOKIE) {
                return Frame::Broken;
            }
            (HEADER_BYTES + length, 0)
        }
        // Channel data, padded to whole words on streams.
        0x40..=0x7f => (4 + length, length.next_multiple_of(4) - length),
        0x80.. => return Frame::Broken,
    };
    if whole > MAX_FRAME_BYTES {
        Frame::Broken
    } else if bytes.len() < whole + padding {
        Frame::Partial
    } else {
        Frame::Whole {
            bytes: whole,
            padding,
        }
    }
}

/// Third and fourth word of every STUN message begin after this (RFC 8489 section 5).
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
            Frame::Whole {
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
            Frame::Whole {
                bytes: 9,
                padding: 3
            }
        );
        for end in 0..12 {
            assert_eq!(frame(&data[..end]), Frame::Partial, "{end}");
        }
        assert_eq!(
            frame(&[0x4f, 0xff, 0, 0]),
            Frame::Whole {
                bytes: 4,
                padding: 0
            }
        );
    }

    #[test]
    fn what_is_neither_is_broken() {
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
            // What begins with G is channel data that does not come.
            assert!(
                matches!(found, Frame::Broken | Frame::Partial),
                "{broken:?}"
            );
            assert_eq!(found == Frame::Broken, broken[0] != b'G', "{broken:?}");
        }
    }
}

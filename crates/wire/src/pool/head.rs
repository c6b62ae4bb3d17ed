/// Bytes of a frame's head.
pub const HEAD_LEN: usize = 4;

/// Largest payload of `DATA`, 256 KiB: larger chunks do not save CPU time, and a reader may have to
/// buffer one.
pub const MAX_CHUNK: usize = 256 * 1024;

/// Largest payload of `OPEN`: two ids and an address, with space for future fields.
pub const MAX_OPEN: usize = 1024;

/// Largest payload of `RESET`: a number, a code and a sentence.
pub const MAX_RESET: usize = 1024;

/// The head of a frame: its type and the length of its payload.
///
/// A value of this type is within the limits of its frame type: [`new`](Self::new) and
/// [`decode`](Self::decode) check them before anything is allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    kind: FrameType,
    len: u32,
}

impl Head {
    /// A head for a payload of `len` bytes.
    ///
    /// # Errors
    /// [`HeadError::Length`] if this type has no payload of that length.
    pub fn new(kind: FrameType, len: usize) -> Result<Self, HeadError> {
        let (least, most) = kind.limits();
        match u32::try_from(len) {
            Ok(short) if (least..=most).contains(&len) => Ok(Self { kind, len: short }),
            _ => Err(HeadError::Length { kind, len }),
        }
    }

    /// Encodes the four bytes.
    pub fn encode(self) -> [u8; HEAD_LEN] {
        let [_, high, middle, low] = self.len.to_be_bytes();
        [self.kind as u8, high, middle, low]
    }

    /// Decodes the four bytes.
    ///
    /// # Errors
    /// An unknown type, or a length that the type does not have.
    pub fn decode(bytes: [u8; HEAD_LEN]) -> Result<Self, HeadError> {
        let [kind, high, middle, low] = bytes;
        let kind = FrameType::from_byte(kind).ok_or(HeadError::Type(kind))?;
        let len = u32::from_be_bytes([0, high, middle, low]);
        Self::new(kind, usize::try_from(len).unwrap_or(usize::MAX))
    }

    /// Type of the frame.
    pub fn kind(self) -> FrameType {
        self.kind
    }

    /// Bytes of the payload that follows, within the limits of the type.
    pub fn payload_len(self) -> usize {
        // At most `MAX_CHUNK`, which fits on all platforms.
        self.len as usize
    }
}

/// The six types of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FrameType {
    /// The engine opens a stream.
    Open = 1,
    /// Bytes of the stream.
    Data = 2,
    /// The sender's direction is complete.
    End = 3,
    /// The sender aborts the stream.
    Reset = 4,
    /// The sender accepts no further stream on this connection.
    Retire = 5,
    /// The engine turns the connection into a [`lane`](crate::lane).
    Lane = 6,
}

impl FrameType {
    /// The type of this byte, if it is one.
    pub fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Open),
            2 => Some(Self::Data),
            3 => Some(Self::End),
            4 => Some(Self::Reset),
            5 => Some(Self::Retire),
            6 => Some(Self::Lane),
            _ => None,
        }
    }

    /// Shortest and longest payload.
    fn limits(self) -> (usize, usize) {
        match self {
            Self::Open => (1, MAX_OPEN),
            Self::Data => (1, MAX_CHUNK),
            Self::Reset => (1, MAX_RESET),
            Self::End | Self::Retire | Self::Lane => (0, 0),
        }
    }
}

/// Reasons why four bytes are not a valid head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeadError {
    /// An unknown type.
    #[error("frame type {0} is unknown")]
    Type(u8),
    /// A length that frames of this type cannot have.
    #[error("a {kind:?} frame cannot have {len} bytes")]
    Length {
        /// Type of the frame.
        kind: FrameType,
        /// Its length.
        len: usize,
    },
}

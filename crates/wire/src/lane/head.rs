/// Bytes of a frame's head.
pub const HEAD_LEN: usize = 8;

/// Largest payload of `DATA`: with its head one TLS record, so that frames behind it do not wait
/// long.
pub const MAX_DATA: usize = 16 * 1024 - HEAD_LEN;

/// Largest payload of `OPEN`, as on a standing connection.
pub const MAX_OPEN: usize = crate::pool::MAX_OPEN;

/// Largest payload of `RESET`: a code and a sentence.
pub const MAX_RESET: usize = 1024;

/// The head of a frame: its type, the length of its payload, and its stream.
///
/// A value of this type is within the limits of its frame type: [`new`](Self::new) and
/// [`decode`](Self::decode) check them before anything is allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    kind: FrameType,
    len: u32,
    stream: u32,
}

impl Head {
    /// A head for a payload of `len` bytes.
    ///
    /// # Errors
    /// If this type has no payload of that length, or for stream 0, which does not exist.
    pub fn new(kind: FrameType, stream: u32, len: usize) -> Result<Self, HeadError> {
        if stream == 0 {
            return Err(HeadError::Stream);
        }
        let (least, most) = kind.limits();
        match u32::try_from(len) {
            Ok(short) if (least..=most).contains(&len) => Ok(Self {
                kind,
                len: short,
                stream,
            }),
            _ => Err(HeadError::Length { kind, len }),
        }
    }

    /// Encodes the eight bytes.
    pub fn encode(self) -> [u8; HEAD_LEN] {
        let [_, high, middle, low] = self.len.to_be_bytes();
        let [a, b, c, d] = self.stream.to_be_bytes();
        [self.kind as u8, high, middle, low, a, b, c, d]
    }

    /// Decodes the eight bytes.
    ///
    /// # Errors
    /// An unknown type, a length that the type does not have, or stream 0.
    pub fn decode(bytes: [u8; HEAD_LEN]) -> Result<Self, HeadError> {
        let [kind, high, middle, low, a, b, c, d] = bytes;
        let kind = FrameType::from_byte(kind).ok_or(HeadError::Type(kind))?;
        let len = u32::from_be_bytes([0, high, middle, low]);
        let stream = u32::from_be_bytes([a, b, c, d]);
        Self::new(kind, stream, usize::try_from(len).unwrap_or(usize::MAX))
    }

    /// Type of the frame.
    pub fn kind(self) -> FrameType {
        self.kind
    }

    /// Number of its stream, at least 1.
    pub fn stream(self) -> u32 {
        self.stream
    }

    /// Bytes of the payload that follows, within the limits of the type.
    pub fn payload_len(self) -> usize {
        // At most `MAX_DATA`, which fits on all platforms.
        self.len as usize
    }
}

/// The six types of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FrameType {
    /// The engine opens a stream.
    Open = 1,
    /// Bytes of a stream.
    Data = 2,
    /// The sender's direction is complete.
    End = 3,
    /// The sender aborts the stream.
    Reset = 4,
    /// The sender's direction continues on a standing connection.
    Move = 5,
    /// The sender has read a further unit of the stream.
    Taken = 6,
}

impl FrameType {
    /// The type of this byte, if it is one.
    pub fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Open),
            2 => Some(Self::Data),
            3 => Some(Self::End),
            4 => Some(Self::Reset),
            5 => Some(Self::Move),
            6 => Some(Self::Taken),
            _ => None,
        }
    }

    /// Shortest and longest payload.
    fn limits(self) -> (usize, usize) {
        match self {
            Self::Open => (1, MAX_OPEN),
            Self::Data => (1, MAX_DATA),
            Self::Reset => (0, MAX_RESET),
            Self::End | Self::Move | Self::Taken => (0, 0),
        }
    }
}

/// Reasons why eight bytes are not a valid head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeadError {
    /// An unknown type.
    #[error("frame type {0} is unknown on a lane")]
    Type(u8),
    /// A length that frames of this type cannot have.
    #[error("a {kind:?} frame cannot have {len} bytes")]
    Length {
        /// Type of the frame.
        kind: FrameType,
        /// Its length.
        len: usize,
    },
    /// Streams are numbered from 1.
    #[error("stream 0 does not exist")]
    Stream,
}

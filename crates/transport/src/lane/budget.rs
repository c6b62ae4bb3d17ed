//! Limit of the bytes of a stream on a lane, above which its own connection is cheaper.

/// The bytes that a stream may send on its lane in addition to those that the peer's responses
/// allow.
///
/// On a lane a byte is copied once more than on a connection, and other streams wait behind it;
/// many small streams save system calls. So a stream stays while it alternates with its peer and
/// sends little in each turn. It leaves when it sends much: a download, an upload, and also one
/// that is requested piece by piece.
///
/// Each end decides this for the bytes that it sends. It is not a rule of the protocol.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Maximum number of bytes.
    most: usize,
    /// Bytes that a response of the peer gives back.
    a_turn: usize,
    /// True if the peer's bytes are counted as well.
    both: bool,
    spent: usize,
    /// Bytes were sent since the last bytes of the peer.
    spoke: bool,
}

impl Budget {
    /// For alternating requests and responses, ours of at most `most` bytes each.
    pub fn exchanges(most: usize) -> Self {
        Self {
            most,
            a_turn: most,
            both: false,
            spent: 0,
            spoke: false,
        }
    }

    /// For a stream of an unknown protocol. Most protocols of databases, shells and messages send
    /// less than [`BYTES_PER_TURN`] in a turn, and bulk data that is requested in pieces sends
    /// more.
    pub fn bytes() -> Self {
        Self {
            most: MAX_BYTES,
            a_turn: BYTES_PER_TURN,
            both: true,
            spent: 0,
            spoke: false,
        }
    }

    pub(super) fn left(&self) -> usize {
        self.most - self.spent
    }

    /// Records that so many bytes were sent, of those that are [`left`](Self::left).
    pub(super) fn spend(&mut self, bytes: usize) {
        self.spent = (self.spent + bytes).min(self.most);
        self.spoke = true;
    }

    /// Records that so many bytes of the peer were received.
    pub(super) fn hear(&mut self, bytes: usize) {
        if std::mem::take(&mut self.spoke) {
            self.spent = self.spent.saturating_sub(self.a_turn);
        }
        if self.both {
            self.spent = (self.spent + bytes).min(self.most);
        }
    }
}

/// Bytes of a stream of an unknown protocol: a large record of most protocols, or some hundred
/// small ones.
const MAX_BYTES: usize = 64 * 1024;

/// Bytes per turn above which a connection is as cheap as a lane.
const BYTES_PER_TURN: usize = 8 * 1024;

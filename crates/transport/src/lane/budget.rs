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
    limit: usize,
    /// Bytes that a response of the peer subtracts from `spent`.
    refund_per_turn: usize,
    /// True if the peer's bytes are counted as well.
    counts_received: bool,
    spent: usize,
    /// Bytes were sent since bytes of the peer were last received.
    has_sent: bool,
}

impl Budget {
    /// For alternating requests and responses. The argument is the maximum size of each message of
    /// this side.
    pub fn exchanges(limit: usize) -> Self {
        Self {
            limit,
            refund_per_turn: limit,
            counts_received: false,
            spent: 0,
            has_sent: false,
        }
    }

    /// For a stream of an unknown protocol. Most protocols of databases, shells and messages send
    /// less than [`BYTES_PER_TURN`] in a turn, and bulk data that is requested in pieces sends
    /// more.
    pub fn bytes() -> Self {
        Self {
            limit: MAX_BYTES,
            refund_per_turn: BYTES_PER_TURN,
            counts_received: true,
            spent: 0,
            has_sent: false,
        }
    }

    pub(super) fn remaining(&self) -> usize {
        self.limit - self.spent
    }

    /// Records that so many of the remaining bytes were sent.
    pub(super) fn on_send(&mut self, bytes: usize) {
        self.spent = (self.spent + bytes).min(self.limit);
        self.has_sent = true;
    }

    /// Records that so many bytes were received from the peer.
    pub(super) fn on_receive(&mut self, bytes: usize) {
        if std::mem::take(&mut self.has_sent) {
            self.spent = self.spent.saturating_sub(self.refund_per_turn);
        }
        if self.counts_received {
            self.spent = (self.spent + bytes).min(self.limit);
        }
    }
}

/// Bytes of a stream of an unknown protocol: a large record of most protocols, or some hundred
/// small ones.
const MAX_BYTES: usize = 64 * 1024;

/// Bytes per turn above which a connection is as cheap as a lane.
const BYTES_PER_TURN: usize = 8 * 1024;

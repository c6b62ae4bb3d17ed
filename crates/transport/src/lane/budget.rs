//! How much a stream may say before a connection of its own costs less.

/// What a stream may have on its lane beyond what its peer answers.
///
/// On a lane a byte is copied once more than on a connection, and others wait behind it; what many
/// small streams save is system calls. So a stream stays as long as it takes turns with its peer
/// and says little in each, and leaves when it says much: a download, an upload, and also one that
/// is asked for piece by piece.
///
/// That is a judgement of each end about what it sends, not a rule of the protocol.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Bytes, at most.
    most: usize,
    /// Bytes that an answer of the peer gives back.
    a_turn: usize,
    /// Whether what the peer says is counted too.
    both: bool,
    spent: usize,
    /// Something was said since the peer was heard.
    spoke: bool,
}

impl Budget {
    /// For requests and answers in turns, ours of at most so many bytes each.
    pub fn exchanges(most: usize) -> Self {
        Self {
            most,
            a_turn: most,
            both: false,
            spent: 0,
            spoke: false,
        }
    }

    /// For a stream of which nothing is known. Most of what protocols of databases, shells and
    /// messages say in a turn is below [`BYTES_PER_TURN`], and bulk that is asked for in pieces is above.
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

    /// Says so many bytes, of those that are [`left`](Self::left).
    pub(super) fn spend(&mut self, bytes: usize) {
        self.spent = (self.spent + bytes).min(self.most);
        self.spoke = true;
    }

    /// So many bytes of the peer were heard.
    pub(super) fn hear(&mut self, bytes: usize) {
        if std::mem::take(&mut self.spoke) {
            self.spent = self.spent.saturating_sub(self.a_turn);
        }
        if self.both {
            self.spent = (self.spent + bytes).min(self.most);
        }
    }
}

/// Bytes of a stream of which nothing is known: a large record of most protocols, or some hundred
/// small ones.
const MAX_BYTES: usize = 64 * 1024;

/// Bytes in a turn from which on a connection is as cheap as a lane.
const BYTES_PER_TURN: usize = 8 * 1024;

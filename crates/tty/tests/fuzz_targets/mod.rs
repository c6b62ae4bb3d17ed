//! What must hold for any bytes of a peer. `fuzz/` feeds these functions with what it invents, the
//! tests with what is kept in `tests/corpus`.

use bytes::Bytes;
use tty::frame::{self, Decoder};
use tty::message::{BadMessage, Kind, decode};

/// Frames of the plain transport; the first byte is the size of the pieces. The decoder answers the
/// same in any cut, and what it accepts survives being written and read again.
pub(crate) fn webtty_message(data: &[u8]) {
    let Some((size, bytes)) = data.split_first() else {
        return;
    };
    // The same bytes as one message of a WebSocket.
    if let Ok(kind) = decode(Bytes::copy_from_slice(bytes)) {
        again(&kind);
    }
    let whole = read(bytes, bytes.len().max(1));
    assert_eq!(whole, read(bytes, usize::from(*size) + 1));
    for kind in whole.0 {
        again(&kind);
    }
}

fn again(kind: &Kind) {
    // A message may be longer when written than it was when read: varints have one spelling here
    // and many on the wire.
    if let Ok(frame) = frame::encode(kind) {
        assert_eq!(read(&frame, frame.len()), (vec![kind.clone()], None));
    }
}

fn read(bytes: &[u8], piece: usize) -> (Vec<Kind>, Option<BadMessage>) {
    let mut decoder = Decoder::new();
    let mut kinds = Vec::new();
    for piece in bytes.chunks(piece) {
        decoder.push(piece);
        loop {
            match decoder.next() {
                Ok(Some(kind)) => kinds.push(kind),
                Ok(None) => break,
                Err(error) => return (kinds, Some(error)),
            }
        }
    }
    (kinds, None)
}

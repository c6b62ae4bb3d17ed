//! Any bytes as a chunked body: no panic, and the payload does not depend on how the bytes are
//! split. The first byte is the size of the pieces.
#![no_main]

use http1::{BadBody, BodyReader, BodyState, ChunkScanner};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((size, bytes)) = bytes.split_first() else { return };
    let whole = read(bytes, bytes.len().max(1));
    let split = read(bytes, usize::from(*size).max(1));
    assert_eq!(whole, split);
});

/// Payload, and the bytes behind the body.
fn read(bytes: &[u8], piece_size: usize) -> Option<(Vec<u8>, Vec<u8>)> {
    let mut reader = BodyReader::Chunked(ChunkScanner::new());
    let mut payload = Vec::new();
    let mut held = Vec::new();
    for piece in bytes.chunks(piece_size) {
        held.extend_from_slice(piece);
        while !reader.is_done() {
            let advance = reader.advance(&held).ok()?;
            payload.extend_from_slice(&held[advance.data.clone()]);
            assert!(advance.data.end <= advance.consumed);
            assert_eq!(reader.is_done(), advance.state != BodyState::More);
            held.drain(..advance.consumed);
            if advance.consumed == 0 || held.is_empty() {
                break;
            }
        }
    }
    match reader.finish() {
        Ok(()) => Some((payload, held)),
        Err(BadBody::BrokeOff | BadBody::Malformed(_)) => None,
    }
}

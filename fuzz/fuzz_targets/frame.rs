//! Any bytes in any cut: the decoder answers the same, never panics, and what it accepts survives
//! being written and read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::{Decoder, FrameError, Message, encode};

fuzz_target!(|input: (Vec<u8>, u8)| {
    let (bytes, cut) = input;
    let whole = read(&bytes, bytes.len().max(1));
    assert_eq!(whole, read(&bytes, usize::from(cut) + 1));
    for message in whole.0 {
        if message.kind.is_none() {
            continue;
        }
        let mut again = Vec::new();
        // A message may be longer when written than it was when read: varints have one spelling
        // here and many on the wire.
        if encode(&message, &mut again).is_ok() {
            assert_eq!(read(&again, again.len()), (vec![message], None));
        }
    }
});

fn read(bytes: &[u8], piece: usize) -> (Vec<Message>, Option<FrameError>) {
    let mut decoder = Decoder::new();
    let mut messages = Vec::new();
    for piece in bytes.chunks(piece) {
        decoder.push(piece);
        loop {
            match decoder.next() {
                Ok(Some(message)) => messages.push(message),
                Ok(None) => break,
                Err(error) => return (messages, Some(error)),
            }
        }
    }
    (messages, None)
}

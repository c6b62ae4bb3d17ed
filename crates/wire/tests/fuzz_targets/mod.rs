//! Properties that apply to any bytes of a peer. `fuzz/` calls these functions with generated
//! input, the tests with the files in `tests/corpus`.

mod cluster;
mod lanes;

use wire::pool::{
    FrameType, HEAD_LEN, Head, MAX_CHUNK, PoolFrame, Side, StreamOpen, StreamReset, StreamState,
};
use wire::{Decoder, FrameError, Message, encode};

/// Frames of the control channel; the first byte is the size of the pieces. The decoder's result is
/// the same for any split, and an accepted message can be written and read again.
pub(crate) fn frame(data: &[u8]) {
    let Some((size, bytes)) = data.split_first() else {
        return;
    };
    let whole = read(bytes, bytes.len().max(1));
    assert_eq!(whole, read(bytes, usize::from(*size) + 1));
    for message in whole.0 {
        if message.kind.is_none() {
            continue;
        }
        let mut again = Vec::new();
        // A message may be longer when it is written than when it was read: here varints have one
        // encoding, on the wire many.
        if encode(&message, &mut again).is_ok() {
            assert_eq!(read(&again, again.len()), (vec![message], None));
        }
    }
}

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

/// Frames of a standing connection, as input of the state machine of the side that the first byte
/// chooses: no payload exceeds its limit, and stream numbers never decrease.
pub(crate) fn pool(data: &[u8]) {
    let Some((side, mut bytes)) = data.split_first() else {
        return;
    };
    let mut state = StreamState::new(if side % 2 == 1 {
        Side::Engine
    } else {
        Side::Agent
    });
    while let Some((head, rest)) = bytes.split_first_chunk::<HEAD_LEN>() {
        let Ok(head) = Head::decode(*head) else {
            return;
        };
        assert!(head.payload_len() <= MAX_CHUNK);
        let Some((payload, rest)) = rest.split_at_checked(head.payload_len()) else {
            return;
        };
        bytes = rest;
        let Some(step) = step(head, payload) else {
            return;
        };
        let before = state.stream();
        if state.on_receive(step).is_err() {
            return;
        }
        assert!(state.stream() >= before);
        // Our side responds, so that streams end and others start.
        for answer in [PoolFrame::Open, PoolFrame::End] {
            if state.on_send(answer).is_ok() {
                break;
            }
        }
    }
}

fn step(head: Head, payload: &[u8]) -> Option<PoolFrame> {
    Some(match head.kind() {
        FrameType::Open => StreamOpen::decode_payload(payload)
            .map(|_| PoolFrame::Open)
            .ok()?,
        FrameType::Data => PoolFrame::Data,
        FrameType::End => PoolFrame::End,
        FrameType::Reset => {
            let stream = StreamReset::decode_payload(payload).ok()?.stream;
            PoolFrame::Reset { stream }
        }
        FrameType::Retire => PoolFrame::Retire,
        FrameType::Lane => PoolFrame::Lane,
    })
}

/// Frames of a lane.
pub(crate) fn lane(data: &[u8]) {
    lanes::check(data);
}

/// Frames between the engines of a cluster.
pub(crate) fn peer_frame(data: &[u8]) {
    cluster::check_frames(data);
}

/// Openings of forwarded streams.
pub(crate) fn forward_header(data: &[u8]) {
    cluster::check_header(data);
}

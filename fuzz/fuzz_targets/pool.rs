//! Any bytes as the frames of a standing connection, into each side's state machine: no panic, no
//! payload beyond its limit, and no stream number that goes back.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::pool::{
    FrameType, HEAD_LEN, Head, MAX_CHUNK, Side, Step, StreamOpen, StreamReset, StreamState,
};

fuzz_target!(|input: (bool, &[u8])| {
    let (engine, mut bytes) = input;
    let mut state = StreamState::new(if engine { Side::Engine } else { Side::Agent });
    while let Some((head, rest)) = bytes.split_first_chunk::<HEAD_LEN>() {
        let Ok(head) = Head::decode(*head) else {
            return;
        };
        assert!(head.payload_len() <= MAX_CHUNK);
        let Some((payload, rest)) = rest.split_at_checked(head.payload_len()) else {
            return;
        };
        bytes = rest;
        let step = match head.kind() {
            FrameType::Open => match StreamOpen::decode_payload(payload) {
                Ok(_) => Step::Open,
                Err(_) => return,
            },
            FrameType::Data => Step::Data,
            FrameType::End => Step::End,
            FrameType::Reset => match StreamReset::decode_payload(payload) {
                Ok(reset) => Step::Reset {
                    stream: reset.stream,
                },
                Err(_) => return,
            },
            FrameType::Retire => Step::Retire,
        };
        let before = state.stream();
        if state.on_receive(step).is_err() {
            return;
        }
        assert!(state.stream() >= before);
        // Our side answers in turn, so that streams end and others begin.
        for answer in [Step::Open, Step::End] {
            if state.on_send(answer).is_ok() {
                break;
            }
        }
    }
});

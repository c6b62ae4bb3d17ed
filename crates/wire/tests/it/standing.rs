//! Standing connections: heads and limits, and two ends that always stay in step.

use std::collections::VecDeque;

use proptest::prelude::*;
use wire::pool::{
    FrameType, Head, HeadError, MAX_CHUNK, MAX_OPEN, MAX_RESET, PayloadError, PoolFrame,
    ReceivedFrame, Side, StreamOpen, StreamReset, StreamState,
};
use wire::{Error, ErrorCode};

proptest! {
    #[test]
    fn any_head_is_read_back_or_refused(bytes in any::<[u8; 4]>()) {
        if let Ok(head) = Head::decode(bytes) {
            prop_assert!(head.payload_len() <= MAX_CHUNK);
            prop_assert_eq!(head.encode(), bytes);
        }
    }

    #[test]
    fn any_payload_is_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        if let Ok(open) = StreamOpen::decode_payload(&bytes) {
            let mut frame = Vec::new();
            if open.encode_frame(&mut frame).is_ok() {
                prop_assert_eq!(StreamOpen::decode_payload(&frame[4..]), Ok(open));
            }
        }
        if let Ok(reset) = StreamReset::decode_payload(&bytes) {
            let mut frame = Vec::new();
            if reset.encode_frame(&mut frame).is_ok() {
                prop_assert_eq!(StreamReset::decode_payload(&frame[4..]), Ok(reset));
            }
        }
    }

    /// Two ends act at random, and each frame takes some time. The peer accepts every frame that an
    /// end may send, and both count the same streams. An engine that considers a stream over never
    /// confuses its frames in flight with those of the next one.
    #[test]
    fn allowed_frames_are_always_accepted(moves in prop::collection::vec((any::<bool>(), 0..6_u8), 1..200)) {
        let mut engine = End::new(Side::Engine);
        let mut agent = End::new(Side::Agent);
        for (engine_acts, action) in moves {
            let (actor, peer) = if engine_acts { (&mut engine, &mut agent) } else { (&mut agent, &mut engine) };
            let stream = actor.state.stream();
            let step = match action {
                0 => PoolFrame::Open,
                1 => PoolFrame::Data,
                2 => PoolFrame::End,
                3 => PoolFrame::Reset { stream },
                // Rare: no stream would follow.
                4 if stream > 3 => PoolFrame::Retire,
                _ => {
                    actor.arrive();
                    continue;
                }
            };
            if actor.state.on_send(step).is_ok() {
                peer.incoming.push_back((step, stream + u32::from(step == PoolFrame::Open)));
            }
        }
        while !engine.incoming.is_empty() || !agent.incoming.is_empty() {
            engine.arrive();
            agent.arrive();
        }
        prop_assert_eq!(engine.state.stream(), agent.state.stream());
        prop_assert_eq!(engine.state.is_over(), agent.state.is_over());
    }
}

struct End {
    state: StreamState,
    /// Frames in flight, each with the number of the sender's stream at that time.
    incoming: VecDeque<(PoolFrame, u32)>,
}

impl End {
    fn new(side: Side) -> Self {
        Self {
            state: StreamState::new(side),
            incoming: VecDeque::new(),
        }
    }

    fn arrive(&mut self) {
        let Some((step, sent_at)) = self.incoming.pop_front() else {
            return;
        };
        let received = self
            .state
            .on_receive(step)
            .expect("an allowed frame is accepted");
        if matches!(
            received,
            ReceivedFrame::Data | ReceivedFrame::End | ReceivedFrame::Reset
        ) {
            assert_eq!(
                sent_at,
                self.state.stream(),
                "{received:?} of another stream"
            );
        }
    }
}

#[test]
fn each_type_has_its_limits() {
    let cases = [
        (FrameType::Open, 1, MAX_OPEN),
        (FrameType::Data, 1, MAX_CHUNK),
        (FrameType::End, 0, 0),
        (FrameType::Reset, 1, MAX_RESET),
        (FrameType::Retire, 0, 0),
        (FrameType::Lane, 0, 0),
    ];
    for (kind, least, most) in cases {
        assert!(Head::new(kind, least).is_ok());
        assert!(Head::new(kind, most).is_ok());
        assert_eq!(
            Head::new(kind, most + 1),
            Err(HeadError::Length {
                kind,
                len: most + 1
            })
        );
        if least == 1 {
            assert_eq!(Head::new(kind, 0), Err(HeadError::Length { kind, len: 0 }));
        }
    }
    assert_eq!(Head::decode([0, 0, 0, 0]), Err(HeadError::Type(0)));
    assert_eq!(Head::decode([7, 0, 0, 0]), Err(HeadError::Type(7)));
}

#[test]
fn a_head_has_the_known_bytes() {
    assert_eq!(
        Head::new(FrameType::Data, MAX_CHUNK).unwrap().encode(),
        [2, 4, 0, 0]
    );
    assert_eq!(Head::new(FrameType::End, 0).unwrap().encode(), [3, 0, 0, 0]);
}

#[test]
fn an_open_frame_is_read_back() {
    let open = StreamOpen {
        tunnel_id: "tun_1".to_owned(),
        stream_id: "0123456789abcdef01234567".to_owned(),
        source_ip: None,
        moved: false,
        exchanges: false,
        forward: Vec::new(),
    };
    let mut bytes = Vec::new();
    open.encode_frame(&mut bytes).unwrap();
    let head = Head::decode(*bytes.first_chunk().unwrap()).unwrap();
    assert_eq!(
        (head.kind(), head.payload_len()),
        (FrameType::Open, bytes.len() - 4)
    );
    assert_eq!(StreamOpen::decode_payload(&bytes[4..]), Ok(open));
}

#[test]
fn an_opening_that_names_no_tunnel_is_refused() {
    let nameless = StreamOpen {
        stream_id: "0123456789abcdef01234567".to_owned(),
        ..StreamOpen::default()
    };
    let mut bytes = Vec::new();
    nameless.encode_frame(&mut bytes).unwrap();
    assert_eq!(
        StreamOpen::decode_payload(&bytes[4..]),
        Err(PayloadError::NoTunnel)
    );
    // Only a field of a later version: it is skipped, and nothing is left.
    let unknown = [0x78, 1];
    assert_eq!(
        StreamOpen::decode_payload(&unknown),
        Err(PayloadError::NoTunnel)
    );
}

#[test]
fn an_open_frame_that_is_too_long_writes_nothing() {
    let open = StreamOpen {
        tunnel_id: "x".repeat(MAX_OPEN),
        ..StreamOpen::default()
    };
    let mut bytes = Vec::new();
    assert!(open.encode_frame(&mut bytes).is_err());
    assert!(bytes.is_empty());
}

#[test]
fn a_reset_omits_a_long_sentence_and_keeps_its_code() {
    let error = Error::service_unavailable("x".repeat(MAX_RESET));
    let mut bytes = Vec::new();
    StreamReset {
        stream: 3,
        error: Some(error),
    }
    .encode_frame(&mut bytes)
    .unwrap();
    let read = StreamReset::decode_payload(&bytes[4..]).unwrap();
    assert_eq!(read.stream, 3);
    assert_eq!(read.error.unwrap().kind(), ErrorCode::ServiceUnavailable);
}

#[test]
fn a_reset_names_a_stream() {
    let mut bytes = Vec::new();
    assert!(StreamReset::default().encode_frame(&mut bytes).is_err());
    assert!(bytes.is_empty());
}

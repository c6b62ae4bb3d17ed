//! The frames of lanes: written frames are read back, in pieces of any size.

use proptest::prelude::*;
use wire::Error;
use wire::lane::{
    Decoder, Event, FrameStep, FrameType, HEAD_LEN, Head, LaneError, MAX_DATA, MAX_OPEN, MAX_RESET,
    StreamOpen, encode_data, encode_empty, encode_open, encode_reset,
};

/// A frame that is sent.
#[derive(Clone, Debug, PartialEq)]
enum Frame {
    Open(u32, StreamOpen),
    Data(u32, Vec<u8>),
    Reset(u32, Option<Error>),
    Empty(u32, FrameType),
}

impl Frame {
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Open(stream, open) => encode_open(*stream, open, out).unwrap(),
            Self::Data(stream, bytes) => {
                assert_eq!(encode_data(*stream, bytes, out), bytes.len());
            }
            Self::Reset(stream, error) => encode_reset(*stream, error.as_ref(), out),
            Self::Empty(stream, kind) => encode_empty(*kind, *stream, out),
        }
    }
}

fn frame() -> impl Strategy<Value = Frame> {
    let stream = 1..=u32::MAX;
    let open =
        (stream.clone(), "[a-z0-9_]{1,40}", any::<bool>()).prop_map(|(stream, id, moved)| {
            let open = StreamOpen {
                tunnel_id: id.clone(),
                stream_id: id,
                source_ip: None,
                moved,
                exchanges: !moved,
                forward: if moved { vec![7; 100] } else { Vec::new() },
            };
            Frame::Open(stream, open)
        });
    let bytes = prop_oneof![
        proptest::collection::vec(any::<u8>(), 1..300),
        Just(vec![7; MAX_DATA]),
    ];
    let data = (stream.clone(), bytes).prop_map(|(stream, bytes)| Frame::Data(stream, bytes));
    let reset = (stream.clone(), proptest::option::of("[ -~]{1,200}"))
        .prop_map(|(stream, text)| Frame::Reset(stream, text.map(Error::service_unavailable)));
    let kinds = proptest::sample::select(vec![FrameType::End, FrameType::Move, FrameType::Taken]);
    let empty = (stream, kinds).prop_map(|(stream, kind)| Frame::Empty(stream, kind));
    prop_oneof![open, data, reset, empty]
}

/// Reads the bytes in pieces of these lengths, repeated. Pieces of one `DATA` frame are joined
/// again.
fn read(bytes: &[u8], cuts: &[usize]) -> Result<Vec<Frame>, LaneError> {
    let mut decoder = Decoder::new();
    let mut frames = Vec::new();
    let mut missing = 0;
    let mut rest = bytes;
    let mut cuts = cuts.iter().cycle();
    while !rest.is_empty() {
        let (mut piece, left) = rest.split_at((*cuts.next().unwrap()).min(rest.len()));
        rest = left;
        while let Some(event) = decoder.next(&mut piece)? {
            match event {
                Event::Open { stream, open } => frames.push(Frame::Open(stream, open)),
                Event::Step {
                    stream,
                    step,
                    bytes,
                    error,
                } => match (step, frames.last_mut()) {
                    (FrameStep::Data, Some(Frame::Data(last, all))) if missing > 0 => {
                        assert_eq!(*last, stream);
                        all.extend_from_slice(bytes);
                        missing -= bytes.len();
                    }
                    (FrameStep::Data, _) => {
                        frames.push(Frame::Data(stream, bytes.to_vec()));
                        missing = usize::from(!decoder.is_between_frames()) * MAX_DATA;
                    }
                    (FrameStep::Reset, _) => frames.push(Frame::Reset(stream, error)),
                    (FrameStep::End, _) => frames.push(Frame::Empty(stream, FrameType::End)),
                    (FrameStep::Move, _) => frames.push(Frame::Empty(stream, FrameType::Move)),
                    (FrameStep::Taken, _) => frames.push(Frame::Empty(stream, FrameType::Taken)),
                },
            }
            if decoder.is_between_frames() {
                missing = 0;
            }
        }
        assert!(piece.is_empty(), "all bytes are consumed");
    }
    Ok(frames)
}

proptest! {
    #[test]
    fn frames_are_read_back_in_any_pieces(
        frames in proptest::collection::vec(frame(), 0..12),
        cuts in proptest::collection::vec(1_usize..40_000, 1..6),
        small in proptest::collection::vec(1_usize..30, 1..6),
    ) {
        let mut bytes = Vec::new();
        for frame in &frames {
            frame.write(&mut bytes);
        }
        for cuts in [cuts, small, vec![bytes.len().max(1)]] {
            prop_assert_eq!(read(&bytes, &cuts), Ok(frames.clone()));
        }
    }

    #[test]
    fn the_result_does_not_depend_on_the_pieces(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        kind in 0_u8..8,
        cut in 1_usize..20,
    ) {
        let mut bytes = bytes;
        // Usually an existing type and a valid length.
        if let Some(head) = bytes.first_chunk_mut::<3>() {
            *head = [kind, 0, 0];
        }
        let whole = read(&bytes, &[bytes.len().max(1)]);
        match read(&bytes, &[cut]) {
            Ok(frames) => prop_assert_eq!(Ok(frames), whole),
            Err(error) => prop_assert_eq!(Err(error), whole),
        }
    }
}

#[test]
fn invalid_lengths_are_refused_before_their_payload() {
    for (kind, most) in [
        (FrameType::Open, MAX_OPEN),
        (FrameType::Data, MAX_DATA),
        (FrameType::Reset, MAX_RESET),
        (FrameType::End, 0),
        (FrameType::Move, 0),
        (FrameType::Taken, 0),
    ] {
        assert!(Head::new(kind, 1, most).is_ok(), "{kind:?}");
        assert!(Head::new(kind, 1, most + 1).is_err(), "{kind:?}");
        let mut bytes = [kind as u8, 0, 0, 0, 0, 0, 0, 1];
        bytes[1..4].copy_from_slice(&u32::try_from(most + 1).unwrap().to_be_bytes()[1..]);
        let refused = Decoder::new().next(&mut &bytes[..]);
        assert!(matches!(refused, Err(LaneError::Head(_))), "{kind:?}");
    }
    for kind in [FrameType::Open, FrameType::Data] {
        assert!(Head::new(kind, 1, 0).is_err());
    }
    assert!(Head::new(FrameType::End, 0, 0).is_err());
}

#[test]
fn the_bytes_match_the_documentation() {
    let mut bytes = Vec::new();
    encode_data(0x0102_0304, b"ab", &mut bytes);
    encode_empty(FrameType::Move, 7, &mut bytes);
    encode_reset(8, None, &mut bytes);
    let expected = [
        &[2, 0, 0, 2, 1, 2, 3, 4, b'a', b'b'][..],
        &[5, 0, 0, 0, 0, 0, 0, 7],
        &[4, 0, 0, 0, 0, 0, 0, 8],
    ];
    assert_eq!(bytes, expected.concat());
    assert_eq!(HEAD_LEN, 8);
}

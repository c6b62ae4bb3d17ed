//! Frames of the plain transport, split at any byte.

use proptest::prelude::*;
use tty::frame::{Decoder, encode, wrap};
use tty::message::limits::MAX_MESSAGE;
use tty::message::{
    Ack, Close, Config, Heartbeat, Kind, MessageError, OpenCommand, Options, Signal, Stream,
    TerminalSize,
};

#[test]
fn a_frame_is_a_length_and_a_message() {
    let frame = encode(&Kind::data(Stream::Stdin, "hi")).unwrap();
    assert_eq!(&frame[..], b"\x00\x00\x00\x06\x2a\x04\x12\x02hi");
}

#[test]
fn a_length_is_checked_before_its_content_is_awaited() {
    for (head, error) in [
        ([0, 0, 0, 0], MessageError::Malformed),
        ([0, 0x10, 0, 1], MessageError::TooLarge("message")),
        ([0xff; 4], MessageError::TooLarge("message")),
    ] {
        let mut decoder = Decoder::new();
        decoder.push(&head);
        assert_eq!(decoder.next(), Err(error));
    }
    let mut decoder = Decoder::new();
    decoder.push(&u32::try_from(MAX_MESSAGE).unwrap().to_be_bytes());
    assert_eq!(decoder.next(), Ok(None));
    assert!(decoder.is_partial());
}

#[test]
fn a_frame_with_nonsense_is_an_error() {
    let mut decoder = Decoder::new();
    decoder.push(&wrap(b"nonsense"));
    assert!(decoder.next().is_err());
}

proptest! {
    #[test]
    fn messages_survive_any_split(
        kinds in prop::collection::vec(kind(), 0..8),
        cuts in prop::collection::vec(1..40_usize, 1..20),
    ) {
        let bytes: Vec<u8> = kinds.iter().flat_map(|kind| encode(kind).unwrap()).collect();
        let mut decoder = Decoder::new();
        let mut read = Vec::new();
        let mut rest = &bytes[..];
        for cut in cuts.iter().cycle() {
            let (piece, after) = rest.split_at((*cut).min(rest.len()));
            decoder.push(piece);
            while let Some(kind) = decoder.next().unwrap() {
                read.push(kind);
            }
            rest = after;
            if rest.is_empty() {
                break;
            }
        }
        prop_assert_eq!(read, kinds);
        prop_assert!(!decoder.is_partial());
    }

    #[test]
    fn decoding_is_independent_of_splits(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        crate::targets::webtty_message(&bytes);
    }
}

fn kind() -> impl Strategy<Value = Kind> {
    let stream = prop_oneof![
        Just(Stream::Stdin),
        Just(Stream::Stdout),
        Just(Stream::Stderr)
    ];
    let bytes = prop::collection::vec(any::<u8>(), 0..100);
    let words = prop::collection::vec("[a-z ]{0,9}", 0..4);
    prop_oneof![
        (stream.clone(), bytes).prop_map(|(stream, bytes)| Kind::data(stream, bytes)),
        stream.prop_map(Kind::end),
        Just(Kind::Ack(Ack::default())),
        any::<i32>().prop_map(|return_code| Kind::Close(Close {
            return_code,
            termination: None
        })),
        "\\PC{0,40}".prop_map(|text| Kind::error(&text)),
        (0..=65_535_u32, 0..=65_535_u32).prop_map(|(row, col)| Kind::Parameter(
            TerminalSize {
                row,
                col,
                xpixel: 0,
                ypixel: 0
            }
            .into()
        )),
        (any::<Option<u64>>(), any::<bool>()).prop_map(|(received, kill)| {
            Kind::Heartbeat(Heartbeat {
                signal: kill.then_some(Signal::Kill.into()),
                received,
                ..Heartbeat::default()
            })
        }),
        (words, any::<bool>()).prop_map(|(cmd_args, allocate_tty)| Kind::Open(Box::new(
            OpenCommand {
                config: Some(Config {
                    options: Some(Options {
                        allocate_tty,
                        ..Options::default()
                    }),
                    cmd_args,
                    ..Config::default()
                }),
                ..OpenCommand::default()
            }
        ))),
    ]
}

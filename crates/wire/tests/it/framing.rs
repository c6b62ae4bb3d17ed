//! Frames: messages are read back for any split, and nothing panics.

use std::net::IpAddr;

use proptest::prelude::*;
use wire::frame::{Decoder, FrameError, HEADER_LEN, MAX_PAYLOAD, encode};
use wire::message::{
    Address, ClientDetails, ControlChannelLiveness, Heartbeat, IpAddress, OpenControlChannelReq,
    OpenTunnelReq, ProxyConnReq, Secret, ServerMessage, TunnelProperties,
};
use wire::{Kind, Message};

proptest! {
    #[test]
    fn messages_survive_any_split(messages in prop::collection::vec(message(), 1..6), cuts in any::<u64>()) {
        let mut bytes = Vec::new();
        for message in &messages {
            encode(message, &mut bytes).unwrap();
        }
        let mut decoder = Decoder::new();
        let mut seen = Vec::new();
        for piece in pieces(&bytes, cuts) {
            decoder.push(piece);
            while let Some(message) = decoder.next().unwrap() {
                seen.push(message);
            }
        }
        prop_assert_eq!(seen, messages);
        prop_assert_eq!(decoder.into_rest(), Vec::<u8>::new());
    }

    #[test]
    fn the_result_does_not_depend_on_the_split(bytes in prop::collection::vec(any::<u8>(), 0..200), cuts in any::<u64>()) {
        let whole = drain(&[&bytes]);
        let cut = drain(&pieces(&bytes, cuts));
        prop_assert_eq!(whole, cut);
    }

    #[test]
    fn any_payload_is_a_message_or_an_error(payload in prop::collection::vec(any::<u8>(), 1..300)) {
        let mut bytes = u32::try_from(payload.len()).unwrap().to_be_bytes().to_vec();
        bytes.extend_from_slice(&payload);
        let (messages, error) = drain(&[&bytes]);
        prop_assert_eq!(messages.len() + usize::from(error.is_some()), 1);
    }

    #[test]
    fn addresses_survive(address in any::<IpAddr>()) {
        prop_assert_eq!(IpAddress::from(address).to_ip(), Some(address.to_canonical()));
    }
}

#[test]
fn a_heartbeat_has_the_known_bytes() {
    let mut bytes = Vec::new();
    encode(
        &Kind::Heartbeat(Heartbeat {
            sequence: 1,
            acknowledgement: 0,
        })
        .into(),
        &mut bytes,
    )
    .unwrap();
    assert_eq!(bytes, [0, 0, 0, 4, 0x7a, 2, 8, 1]);
}

#[test]
fn an_address_is_a_big_endian_number() {
    let address = IpAddress::from("192.0.2.1".parse::<IpAddr>().unwrap());
    assert_eq!(address.address, Some(Address::V4(0xC000_0201)));
}

#[test]
fn an_address_of_a_wrong_length_is_none() {
    assert_eq!(
        IpAddress {
            address: Some(Address::V6(vec![1; 15]))
        }
        .to_ip(),
        None
    );
    assert_eq!(IpAddress { address: None }.to_ip(), None);
}

#[test]
fn the_length_is_checked_before_the_payload_arrives() {
    let mut decoder = Decoder::new();
    decoder.push(&65_536_u32.to_be_bytes());
    assert_eq!(decoder.next(), Err(FrameError::TooLong(65_536)));
    assert_eq!(decoder.missing(), Err(FrameError::TooLong(65_536)));

    let mut decoder = Decoder::new();
    decoder.push(&65_535_u32.to_be_bytes());
    assert_eq!(decoder.next(), Ok(None));
    assert_eq!(decoder.missing(), Ok(65_535));
}

#[test]
fn an_empty_frame_is_an_error_in_both_directions() {
    let mut decoder = Decoder::new();
    decoder.push(&[0; 4]);
    assert_eq!(decoder.next(), Err(FrameError::Empty));
    let mut bytes = vec![7];
    assert_eq!(
        encode(&Message { kind: None }, &mut bytes),
        Err(FrameError::Empty)
    );
    assert_eq!(bytes, [7]);
}

#[test]
fn a_frame_longer_than_the_limit_is_an_error() {
    let line = |len| {
        Message::from(Kind::ServerMessage(ServerMessage {
            message: "x".repeat(len),
        }))
    };
    let mut bytes = Vec::new();
    // The tags and lengths of the kind (2 and 3 bytes) and of the text (1 and 3) surround the text.
    let longest = line(MAX_PAYLOAD - 9);
    encode(&longest, &mut bytes).unwrap();
    assert_eq!(bytes.len(), HEADER_LEN + MAX_PAYLOAD);
    let mut decoder = Decoder::new();
    decoder.push(&bytes);
    assert_eq!(decoder.next(), Ok(Some(longest)));
    bytes.clear();
    assert_eq!(
        encode(&line(MAX_PAYLOAD - 8), &mut bytes),
        Err(FrameError::TooLong(MAX_PAYLOAD + 1))
    );
    assert!(bytes.is_empty());
}

#[test]
fn an_unknown_kind_is_skipped() {
    let mut decoder = Decoder::new();
    // Field 2000 with three bytes, then a heartbeat in a separate frame.
    decoder.push(&[0, 0, 0, 6, 0x82, 0x7d, 3, 1, 2, 3]);
    decoder.push(&[0, 0, 0, 4, 0x7a, 2, 8, 1]);
    assert_eq!(decoder.next(), Ok(Some(Message { kind: None })));
    assert!(matches!(
        decoder.next(),
        Ok(Some(Message {
            kind: Some(Kind::Heartbeat(_))
        }))
    ));
}

#[test]
fn an_unknown_field_is_skipped() {
    let mut decoder = Decoder::new();
    // A heartbeat with a field 50 before its sequence.
    decoder.push(&[0, 0, 0, 7, 0x7a, 5, 0x90, 3, 9, 8, 1]);
    let expected = Kind::Heartbeat(Heartbeat {
        sequence: 1,
        acknowledgement: 0,
    });
    assert_eq!(decoder.next(), Ok(Some(expected.into())));
}

#[test]
fn bytes_after_the_hello_are_kept() {
    let mut bytes = Vec::new();
    encode(&Kind::Heartbeat(Heartbeat::default()).into(), &mut bytes).unwrap();
    bytes.extend_from_slice(b"GET / HTTP/1.1");
    let mut decoder = Decoder::new();
    decoder.push(&bytes);
    assert!(decoder.next().unwrap().is_some());
    assert_eq!(decoder.into_rest(), b"GET / HTTP/1.1");
}

#[test]
fn secrets_are_not_printed() {
    let details = ClientDetails {
        token: Some(Secret::from("hunter2")),
        ..ClientDetails::default()
    };
    let hello = Kind::OpenControlChannelReq(OpenControlChannelReq {
        client_details: Some(details),
        liveness: None,
    });
    let visitor = ProxyConnReq {
        secret: Some(Secret::from("hunter2")),
        ..ProxyConnReq::default()
    };
    let pool = wire::message::PoolReq {
        secret: "hunter2".to_owned(),
        count: 1,
        idle_timeout_ms: 1,
    };
    assert!(!format!("{hello:?} {visitor:?} {pool:?}").contains("hunter2"));
}

fn drain(pieces: &[&[u8]]) -> (Vec<Message>, Option<FrameError>) {
    let mut decoder = Decoder::new();
    let mut messages = Vec::new();
    for piece in pieces {
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

/// Splits `bytes` into pieces of one to eight bytes, according to the bits of `cuts`.
fn pieces(bytes: &[u8], mut cuts: u64) -> Vec<&[u8]> {
    let mut rest = bytes;
    let mut pieces = Vec::new();
    while !rest.is_empty() {
        let len = usize::try_from(cuts & 7).unwrap() + 1;
        cuts = cuts.rotate_right(3);
        let (piece, after) = rest.split_at(len.min(rest.len()));
        pieces.push(piece);
        rest = after;
    }
    pieces
}

fn message() -> impl Strategy<Value = Message> {
    prop_oneof![
        (any::<u64>(), any::<u64>()).prop_map(|(sequence, acknowledgement)| {
            Kind::Heartbeat(Heartbeat {
                sequence,
                acknowledgement,
            })
        }),
        (
            any::<Option<String>>(),
            any::<u32>(),
            prop::collection::vec(any::<String>(), 0..3)
        )
            .prop_map(|(token, interval, extensions)| {
                Kind::OpenControlChannelReq(OpenControlChannelReq {
                    client_details: Some(ClientDetails {
                        token: token.map(Secret::from),
                        extensions,
                        ..ClientDetails::default()
                    }),
                    liveness: Some(ControlChannelLiveness {
                        heartbeat_interval_ms: interval,
                        heartbeat_timeout_ms: 0,
                    }),
                })
            }),
        (
            any::<String>(),
            prop::collection::btree_map(any::<String>(), any::<String>(), 0..4),
            any::<Option<u32>>()
        )
            .prop_map(|(request_id, labels, port)| {
                Kind::OpenTunnelReq(OpenTunnelReq {
                    request_id,
                    tunnel_properties: Some(TunnelProperties {
                        labels,
                        port: port.map(Into::into),
                        ..TunnelProperties::default()
                    }),
                })
            }),
        any::<IpAddr>().prop_map(|address| {
            Kind::ProxyConnReq(ProxyConnReq {
                source_ip: Some(address.into()),
                ..ProxyConnReq::default()
            })
        }),
        any::<String>().prop_map(|message| Kind::ServerMessage(ServerMessage { message })),
    ]
    .prop_map(Message::from)
}

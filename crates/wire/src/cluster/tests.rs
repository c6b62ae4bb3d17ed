use std::net::SocketAddr;

use proptest::prelude::*;

use super::*;
use crate::pool::{MAX_OPEN, StreamOpen};

const INSTANCE: &str = "0123456789abcdef0123456789abcdef";

fn identity() -> PeerIdentity {
    PeerIdentity {
        cluster: "prod".to_owned(),
        engine: "engine-1".to_owned(),
        instance: INSTANCE.to_owned(),
        purpose: ConnectionPurpose::Data,
    }
}

fn payload(change: impl FnOnce(&mut PeerHello)) -> Vec<u8> {
    let mut hello = identity().hello();
    change(&mut hello);
    prost::Message::encode_to_vec(&hello)
}

#[test]
fn a_hello_with_another_version_or_an_invalid_id_is_refused() {
    assert_eq!(PeerIdentity::decode(&payload(|_| {})), Ok(identity()));
    assert_eq!(
        PeerIdentity::decode(&payload(|hello| hello.version = 2)),
        Err(HelloError::Version(2))
    );
    for id in ["", "-a", "a-", "A", "a.b", "a b", &"a".repeat(64)] {
        let cluster = payload(|hello| hello.cluster = id.to_owned());
        let engine = payload(|hello| hello.engine = id.to_owned());
        assert_eq!(
            PeerIdentity::decode(&cluster),
            Err(HelloError::Field("cluster"))
        );
        assert_eq!(
            PeerIdentity::decode(&engine),
            Err(HelloError::Field("engine"))
        );
    }
    let short = payload(|hello| hello.instance = "0123".to_owned());
    assert_eq!(
        PeerIdentity::decode(&short),
        Err(HelloError::Field("instance"))
    );
    let unused = payload(|hello| hello.purpose = 0);
    assert_eq!(
        PeerIdentity::decode(&unused),
        Err(HelloError::Field("purpose"))
    );
}

#[test]
fn a_frame_has_a_limit_before_its_payload_arrives() {
    for head in [[1, 0, 4, 1], [2, 0, 0, 1], [4, 0, 16, 1], [4, 0, 0, 0]] {
        let mut decoder = PeerDecoder::default();
        decoder.push(&head);
        let refused = decoder.next_frame();
        assert!(
            matches!(refused, Err(PeerFrameError::Length { .. })),
            "{head:?} {refused:?}"
        );
    }
    let mut decoder = PeerDecoder::default();
    decoder.push(&[9, 0, 0, 0]);
    assert_eq!(decoder.next_frame(), Err(PeerFrameError::Type(9)));
}

#[test]
fn a_list_of_tunnels_is_limited() {
    let ended = |count: usize| PeerFrame::Ended(vec!["tun_1".to_owned(); count]);
    for (count, is_accepted) in [(1, true), (MAX_ENDED, true), (MAX_ENDED + 1, false)] {
        let mut bytes = Vec::new();
        encode_frame(&ended(count), &mut bytes).unwrap();
        let mut decoder = PeerDecoder::default();
        decoder.push(&bytes);
        assert_eq!(decoder.next_frame().is_ok(), is_accepted, "{count}");
    }
}

/// The largest header fits into an opening.
#[test]
fn the_largest_header_fits_into_an_opening() {
    let forwarding = ForwardedVisitor {
        name: "n".repeat(MAX_NAME),
        project: "p".repeat(MAX_NAME),
        generation: Some(u64::MAX),
        source: SocketAddr::from(([u16::MAX; 8], u16::MAX)),
        reference: Some("r".repeat(MAX_NAME)),
        is_terminated: true,
        protocol: StreamProtocol::Shared,
    };
    let open = opening(&forwarding);
    assert!(prost::Message::encoded_len(&open) <= MAX_OPEN);
    assert_eq!(ForwardedVisitor::decode(&open), Ok(forwarding));
}

#[test]
fn an_opening_for_an_agent_is_not_forwarded() {
    let open = StreamOpen {
        tunnel_id: "tun_1".to_owned(),
        ..StreamOpen::default()
    };
    assert_eq!(
        ForwardedVisitor::decode(&open),
        Err(ForwardingError::Missing)
    );
}

#[test]
fn a_header_contains_no_control_characters() {
    let valid = ForwardedVisitor {
        name: "app.t.engine.test".to_owned(),
        project: "default".to_owned(),
        generation: None,
        source: SocketAddr::from(([192, 0, 2, 1], 5000)),
        reference: None,
        is_terminated: false,
        protocol: StreamProtocol::Bytes,
    };
    for name in ["", "a b", "a\nb", "é"] {
        let header = ForwardedVisitor {
            name: name.to_owned(),
            ..valid.clone()
        };
        assert_eq!(
            ForwardedVisitor::decode(&opening(&header)),
            Err(ForwardingError::Field("name")),
            "{name:?}"
        );
    }
}

fn opening(forwarding: &ForwardedVisitor) -> StreamOpen {
    StreamOpen {
        tunnel_id: "tun_01h455vb4pex5vsknk084sn02q".to_owned(),
        stream_id: "0123456789abcdef01234567".to_owned(),
        source_ip: Some(forwarding.source.ip().into()),
        forward: forwarding.encode(),
        ..StreamOpen::default()
    }
}

fn forwarding() -> impl Strategy<Value = ForwardedVisitor> {
    let protocol = prop_oneof![
        Just(StreamProtocol::Bytes),
        Just(StreamProtocol::Exchanges),
        Just(StreamProtocol::TlsExchanges),
        Just(StreamProtocol::Shared),
    ];
    let names = ("[a-z0-9.:-]{1,253}", "[a-z0-9_]{1,60}");
    let reference = proptest::option::of("[0-9a-f]{24}");
    let source = (any::<[u8; 4]>(), any::<u16>());
    let flags = (any::<bool>(), any::<Option<u64>>());
    (names, reference, source, flags, protocol).prop_map(
        |((name, project), reference, source, (is_terminated, generation), protocol)| {
            ForwardedVisitor {
                name,
                project,
                generation,
                source: SocketAddr::from(source),
                reference,
                is_terminated,
                protocol,
            }
        },
    )
}

fn frame() -> impl Strategy<Value = PeerFrame> {
    let label = "[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?";
    let purpose = prop_oneof![
        Just(ConnectionPurpose::Control),
        Just(ConnectionPurpose::Data)
    ];
    let hello =
        (label, label, "[0-9a-f]{32}", purpose).prop_map(|(cluster, engine, instance, purpose)| {
            PeerFrame::Hello(PeerIdentity {
                cluster,
                engine,
                instance,
                purpose,
            })
        });
    let ended = proptest::collection::vec("[a-z0-9_]{1,40}", 1..MAX_ENDED);
    prop_oneof![
        hello,
        Just(PeerFrame::Ping),
        Just(PeerFrame::Drain),
        Just(PeerFrame::Closing),
        ended.prop_map(PeerFrame::Ended),
        "[ -~]{1,200}".prop_map(|text| PeerFrame::Refusal(crate::Error::unauthorized(text))),
    ]
}

proptest! {
    #[test]
    fn a_header_is_read_back(forwarding in forwarding()) {
        prop_assert_eq!(ForwardedVisitor::decode(&opening(&forwarding)), Ok(forwarding));
    }

    #[test]
    fn frames_are_read_back_in_any_pieces(
        frames in proptest::collection::vec(frame(), 1..8),
        piece in 1_usize..64,
    ) {
        let mut bytes = Vec::new();
        for frame in &frames {
            encode_frame(frame, &mut bytes).unwrap();
        }
        let mut decoder = PeerDecoder::default();
        let mut read = Vec::new();
        for piece in bytes.chunks(piece) {
            decoder.push(piece);
            while let Some(frame) = decoder.next_frame().unwrap() {
                read.push(frame);
            }
        }
        prop_assert_eq!(read, frames);
    }
}

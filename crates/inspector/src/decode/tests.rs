mod limits;
mod records;

use std::{io::Write as _, sync::Arc};

use flate2::{Compression, write::DeflateEncoder};
use proptest::prelude::*;

use super::*;
use crate::{
    Hint, Kind,
    exchange::{MessageKind, MessageSender},
    limits::{BODY_BYTES, MAX_BYTES, MAX_EXCHANGES, MESSAGES},
};

use MessageSender::{Service, Visitor};

/// Bytes in causal order.
type Traffic = Vec<(MessageSender, Vec<u8>)>;

fn origin() -> Origin {
    Origin {
        tls: None,
        to: Arc::new("localhost:3000".parse().unwrap()),
        source_ip: None,
        replay: None,
    }
}

/// Decodes a stream in pieces of this size until its normal end.
fn follow_in(pieces: usize, passing: &Traffic) -> Store {
    let mut store = Store::default();
    let mut decoder = Decoder::new(origin());
    for (from, bytes) in passing {
        for piece in bytes.chunks(pieces) {
            match from {
                Visitor => decoder.visitor_sent(piece, &mut store, Timestamp::UNIX_EPOCH),
                Service => decoder.service_sent(piece, &mut store, Timestamp::UNIX_EPOCH),
            }
        }
    }
    decoder.ended(None, &mut store, Timestamp::UNIX_EPOCH);
    store
}

fn follow(passing: &Traffic) -> Store {
    follow_in(usize::MAX, passing)
}

fn passing(parts: &[(MessageSender, &str)]) -> Traffic {
    let parts = parts.iter();
    parts
        .map(|(from, text)| (*from, text.as_bytes().to_vec()))
        .collect()
}

/// Everything that was recorded, for comparisons.
fn seen(store: &Store) -> String {
    let all: Vec<_> = store.iter().collect();
    format!("{all:#?}")
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: web.test\r\nX-Forwarded-For: 192.0.2.1\r\n\r\n")
}

/// Consecutive requests: with a length, chunks with trailers, HEAD, no body, and interim responses.
fn one_after_another() -> Traffic {
    passing(&[
        (Visitor, &get("/a?token=secret")),
        (Service, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"),
        (
            Visitor,
            "POST /b HTTP/1.1\r\nHost: web.test\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\nX-Sum: 5\r\n\r\n",
        ),
        (
            Service,
            "HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n",
        ),
        (
            Service,
            "HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        ),
        (Visitor, "HEAD /c HTTP/1.1\r\nHost: web.test\r\n\r\n"),
        (Service, "HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n"),
        (Visitor, &get("/d")),
        (Service, "HTTP/1.1 304 Not Modified\r\nETag: \"1\"\r\n\r\n"),
        (Visitor, &get("/e")),
        (Service, "HTTP/1.1 200 OK\r\n\r\nuntil the end"),
    ])
}

#[test]
fn consecutive_exchanges_on_a_connection_are_separate() {
    let store = follow(&one_after_another());
    let exchanges: Vec<_> = store
        .iter()
        .map(|exchange| {
            let summary = &exchange.summary;
            assert_eq!((summary.duration.is_some(), &summary.error), (true, &None));
            (
                summary.method.to_string(),
                summary.path.to_string(),
                summary.status.unwrap(),
                String::from_utf8(exchange.request_body.kept.clone()).unwrap(),
                String::from_utf8(exchange.response_body.kept.clone()).unwrap(),
            )
        })
        .collect();
    let expected = [
        ("GET", "/a?token=[masked]", 200, "", "hello"),
        ("POST", "/b", 201, "abcde", "ok"),
        ("HEAD", "/c", 200, "", ""),
        ("GET", "/d", 304, "", ""),
        ("GET", "/e", 200, "", "until the end"),
    ];
    let expected: Vec<_> = expected
        .iter()
        .map(|(method, path, status, requested, exchanges)| {
            let own = |text: &&str| (*text).to_owned();
            (
                own(method),
                own(path),
                *status,
                own(requested),
                own(exchanges),
            )
        })
        .collect();
    assert_eq!(exchanges, expected);
    let first = store.get(1).unwrap();
    assert_eq!(first.request.path, "/a?token=secret");
    assert_eq!(first.summary.source_ip, Some([192, 0, 2, 1].into()));
    let second = store.get(2).unwrap();
    assert_eq!(second.request_body.trailers.get("x-sum"), Some("5"));
}

#[test]
fn a_response_may_precede_the_end_of_the_request() {
    let store = follow(&passing(&[
        (
            Visitor,
            "PUT /a HTTP/1.1\r\nHost: h\r\nContent-Length: 8\r\n\r\nabcd",
        ),
        (
            Service,
            "HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno",
        ),
        (Visitor, "efgh"),
        (Visitor, &get("/b")),
        (Service, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
    ]));
    let statuses: Vec<_> = store.iter().map(|one| one.summary.status).collect();
    assert_eq!(statuses, [Some(413), Some(200)]);
    assert_eq!(store.get(1).unwrap().request_body.kept, b"abcdefgh");
}

#[test]
fn truncated_exchanges_have_an_error() {
    for (told, error) in [
        ("", "the connection ended without a response"),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhal",
            "the connection ended before the response was complete",
        ),
    ] {
        let store = follow(&passing(&[(Visitor, &get("/")), (Service, told)]));
        let summary = &store.get(1).unwrap().summary;
        assert_eq!(summary.error.as_deref(), Some(error));
        assert!(summary.duration.is_some());
    }
}

#[test]
fn a_decoding_error_is_reported_once() {
    let store = follow(&passing(&[
        (Visitor, &get("/")),
        (Service, "SMTP ready\r\n"),
        (Visitor, &get("/never")),
    ]));
    assert_eq!(store.iter().len(), 1);
    let error = store.get(1).unwrap().summary.error.clone().unwrap();
    assert!(
        error.starts_with("the rest of this connection cannot be parsed"),
        "{error}"
    );
    // Without a request there is no exchange to report an error for.
    let store = follow(&passing(&[
        (Visitor, "\x16\x03\x01 not http"),
        (Service, "x"),
    ]));
    assert_eq!(store.iter().len(), 0);
}

fn frame(first: u8, mask: Option<[u8; 4]>, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![first];
    let masked = if mask.is_some() { 0x80 } else { 0 };
    match payload.len() {
        length @ 0..126 => frame.push(masked | u8::try_from(length).unwrap()),
        length => {
            frame.push(masked | 0x7E);
            frame.extend(u16::try_from(length).unwrap().to_be_bytes());
        }
    }
    match mask {
        Some(mask) => {
            frame.extend(mask);
            let mask = mask.iter().cycle();
            frame.extend(payload.iter().zip(mask).map(|(byte, mask)| byte ^ mask));
        }
        None => frame.extend(payload),
    }
    frame
}

fn upgrade(extensions: &str) -> Traffic {
    passing(&[
        (
            Visitor,
            "GET /ws HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        ),
        (
            Service,
            &format!(
                "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n{extensions}\r\n"
            ),
        ),
    ])
}

fn websocket() -> Traffic {
    let mask = Some([1, 2, 3, 4]);
    let mut passing = upgrade("");
    passing.extend([
        (Visitor, frame(0x81, mask, b"hello")),
        (
            Service,
            [
                frame(0x01, None, b"in "),
                frame(0x89, None, b"?"),
                frame(0x80, None, b"parts"),
            ]
            .concat(),
        ),
        (Visitor, frame(0x8A, mask, b"?")),
        (Service, frame(0x82, None, &[0; 300])),
        (Visitor, frame(0x81, mask, b"")),
        (Visitor, frame(0x88, mask, b"\x03\xE8bye")),
        (Service, frame(0x88, None, b"\x03\xE8")),
    ]);
    passing
}

#[test]
fn websocket_messages_are_assembled() {
    let store = follow(&websocket());
    let exchange = store.get(1).unwrap();
    assert_eq!(exchange.summary.kind, Kind::WebSocket);
    assert_eq!(exchange.summary.error, None);
    let messages: Vec<_> = exchange
        .messages
        .iter()
        .map(|one| (one.from, one.what.clone(), one.kept.len(), one.size))
        .collect();
    let close = || MessageKind::Close { code: Some(1000) };
    assert_eq!(
        messages,
        [
            (Visitor, MessageKind::Text, 5, 5),
            (Service, MessageKind::Ping, 1, 1),
            (Service, MessageKind::Text, 8, 8),
            (Visitor, MessageKind::Pong, 1, 1),
            (Service, MessageKind::Binary, 300, 300),
            (Visitor, MessageKind::Text, 0, 0),
            (Visitor, close(), 3, 3),
            (Service, close(), 0, 0),
        ]
    );
    assert_eq!(exchange.messages[2].kept, b"in parts");
}

/// Consecutive deflated messages, without the part that each sender removes (RFC 7692 §7.2.1).
fn deflated(messages: &[&[u8]], fresh: bool) -> Vec<Vec<u8>> {
    let new = || DeflateEncoder::new(Vec::new(), Compression::best());
    let mut encoder = new();
    let mut written = 0;
    let deflate = |message: &&[u8]| {
        if fresh {
            encoder = new();
            written = 0;
        }
        encoder.write_all(message).unwrap();
        encoder.flush().unwrap();
        let all = encoder.get_ref();
        let one = all[written..]
            .strip_suffix(&[0, 0, 0xFF, 0xFF])
            .unwrap()
            .to_vec();
        written = all.len();
        one
    };
    messages.iter().map(deflate).collect()
}

fn compressed(fresh: bool) -> Traffic {
    let takeover = if fresh {
        "; server_no_context_takeover"
    } else {
        ""
    };
    let mut passing = upgrade(&format!(
        "Sec-WebSocket-Extensions: permessage-deflate{takeover}\r\n"
    ));
    let messages: [&[u8]; 3] = [b"a message", b"a message", b"a message again"];
    for message in deflated(&messages, fresh) {
        passing.push((Service, frame(0xC1, None, &message)));
    }
    passing.push((Service, frame(0x81, None, b"plain")));
    passing
}

#[test]
fn compressed_messages_are_inflated_with_and_without_context() {
    for fresh in [false, true] {
        let store = follow(&compressed(fresh));
        let messages = &store.get(1).unwrap().messages;
        let texts: Vec<_> = messages
            .iter()
            .map(|one| (std::str::from_utf8(&one.kept).unwrap(), one.compressed))
            .collect();
        let expected = ["a message", "a message", "a message again", "plain"];
        assert_eq!(texts, expected.map(|text| (text, false)), "{fresh}");
    }
}

#[test]
fn a_decompression_bomb_is_not_recorded_and_traffic_continues() {
    let bomb = vec![0; 20 * 1024 * 1024];
    let mut passing = upgrade("Sec-WebSocket-Extensions: permessage-deflate\r\n");
    for message in deflated(&[&bomb, b"after"], false) {
        for part in message.chunks(60_000) {
            passing.push((
                Service,
                frame(
                    if part.as_ptr() == message.as_ptr() {
                        0x42
                    } else {
                        0
                    },
                    None,
                    part,
                ),
            ));
        }
        passing.push((Service, frame(0x80, None, b"")));
    }
    let store = follow(&passing);
    let exchange = store.get(1).unwrap();
    assert_eq!(
        (exchange.summary.messages, &exchange.summary.error),
        (2, &None)
    );
    assert!(exchange.messages[1].compressed);
}

fn event_stream() -> Traffic {
    passing(&[
        (Visitor, &get("/events")),
        (
            Service,
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n\r\n\u{feff}data: one\n\n: alive\r\n\r\nevent: tick\rid: 7\rdata: a\rdata: b\r\rdata\n\nretry: 5\n\ndata: unfinished\n",
        ),
    ])
}

#[test]
fn events_are_parsed_as_in_browsers() {
    let store = follow(&event_stream());
    let exchange = store.get(1).unwrap();
    assert_eq!(exchange.summary.kind, Kind::Sse);
    let events: Vec<_> = exchange
        .messages
        .iter()
        .map(|one| {
            let MessageKind::Event { name, event_id } = one.what.clone() else {
                panic!("{one:?}");
            };
            (
                name,
                event_id,
                String::from_utf8(one.kept.clone()).unwrap(),
                one.size,
            )
        })
        .collect();
    let event = |name: &str, id: Option<&str>, data: &str| {
        let size = data.len() as u64;
        (
            name.to_owned(),
            id.map(ToOwned::to_owned),
            data.to_owned(),
            size,
        )
    };
    assert_eq!(
        events,
        [
            event("message", None, "one"),
            event("tick", Some("7"), "a\nb"),
            event("message", None, ""),
        ]
    );
}

fn h2_frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Two calls over one connection, the second with references to the tables of the first; with split
/// header blocks, padding, settings and a reset.
fn grpc() -> Traffic {
    let mut asking = loona_hpack::Encoder::new();
    let mut telling = loona_hpack::Encoder::new();
    let mut ask = |path: &'static str| {
        asking.encode([
            (&b":method"[..], &b"POST"[..]),
            (b":scheme", b"http"),
            (b":path", path.as_bytes()),
            (b":authority", b"web.test"),
            (b"content-type", b"application/grpc"),
            (b"te", b"trailers"),
        ])
    };
    let mut tell = |fields: &[(&'static str, &'static str)]| {
        let fields = fields
            .iter()
            .map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        telling.encode(fields.collect::<Vec<_>>())
    };
    let (first, second) = (ask("/svc.Echo/Say"), ask("/svc.Echo/Stay"));
    let (start, end) = first.split_at(5);
    let head = tell(&[(":status", "200"), ("content-type", "application/grpc")]);
    let trailers = tell(&[("grpc-status", "0")]);
    let message = [0, 0, 0, 0, 4, 0x0a, 2, b'h', b'i'];
    vec![
        (
            Visitor,
            [http2::PREFACE, &h2_frame(4, 0, 0, &[0, 1, 0, 0, 0x10, 0])].concat(),
        ),
        (Service, h2_frame(4, 0, 0, &[])),
        (Service, h2_frame(4, 1, 0, &[])),
        (Visitor, h2_frame(1, 0, 1, start)),
        (Visitor, h2_frame(9, 4, 1, end)),
        (
            Visitor,
            h2_frame(0, 8, 1, &[&[3][..], &message[..6], &[0; 3]].concat()),
        ),
        (Visitor, h2_frame(0, 1, 1, &message[6..])),
        (
            Visitor,
            h2_frame(1, 4 | 0x20, 3, &[&[0, 0, 0, 0, 1][..], &second].concat()),
        ),
        (Service, h2_frame(8, 0, 0, &[0, 0, 1, 0])),
        (Service, h2_frame(1, 4, 1, &head)),
        (
            Service,
            h2_frame(0, 0, 1, &[0, 0, 0, 0, 2, 0x08, 1, 0, 0, 0, 0, 0]),
        ),
        (Service, h2_frame(1, 4 | 1, 1, &trailers)),
        (Visitor, h2_frame(3, 0, 3, &8_u32.to_be_bytes())),
    ]
}

#[test]
fn grpc_calls_have_messages_and_trailers() {
    let store = follow(&grpc());
    let first = store.get(1).unwrap();
    assert_eq!(first.summary.kind, Kind::Grpc);
    assert_eq!(
        (&*first.summary.path, &*first.summary.host),
        ("/svc.Echo/Say", "web.test")
    );
    assert_eq!(
        (first.summary.status, &first.summary.error),
        (Some(200), &None)
    );
    assert_eq!(first.response_body.trailers.get("grpc-status"), Some("0"));
    let messages: Vec<_> = first
        .messages
        .iter()
        .map(|one| (one.from, one.kept.clone()))
        .collect();
    assert_eq!(
        messages,
        [
            (Visitor, vec![0x0a, 2, b'h', b'i']),
            (Service, vec![0x08, 1]),
            (Service, vec![]),
        ]
    );
    let second = &store.get(2).unwrap().summary;
    assert_eq!(&*second.path, "/svc.Echo/Stay");
    assert_eq!(
        second.error.as_deref(),
        Some("the visitor's side reset the stream (cancelled)")
    );
}

#[test]
fn an_http2_service_may_send_first() {
    let mut passing = grpc();
    passing.swap(0, 1);
    assert_eq!(seen(&follow(&passing)), seen(&follow(&grpc())));
}

fn streams() -> [Traffic; 6] {
    [
        one_after_another(),
        websocket(),
        compressed(false),
        compressed(true),
        event_stream(),
        grpc(),
    ]
}

#[test]
fn single_bytes_give_the_same_exchanges() {
    for passing in streams() {
        assert_eq!(seen(&follow_in(1, &passing)), seen(&follow(&passing)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// The result does not depend on the segmentation.
    #[test]
    fn any_segmentation_gives_the_same_exchanges(
        which in 0..6_usize,
        cuts in proptest::collection::vec(1..40_usize, 1..60),
    ) {
        let passing = streams().into_iter().nth(which).unwrap();
        let mut cuts = cuts.into_iter().cycle();
        let mut split = Vec::new();
        for (from, bytes) in &passing {
            let mut rest = bytes.as_slice();
            while !rest.is_empty() {
                let (piece, after) = rest.split_at(cuts.next().unwrap().min(rest.len()));
                split.push((*from, piece.to_vec()));
                rest = after;
            }
        }
        prop_assert_eq!(seen(&follow(&split)), seen(&follow(&passing)));
    }

    /// No input causes a panic, and limits are observed.
    #[test]
    fn no_input_causes_a_panic(
        which in 0..6_usize,
        damage in proptest::collection::vec((any::<u16>(), any::<u8>()), 0..8),
    ) {
        let mut passing = streams().into_iter().nth(which).unwrap();
        for (at, byte) in damage {
            let count = passing.len();
            let (_, bytes) = &mut passing[usize::from(at) % count];
            let length = bytes.len().max(1);
            if let Some(place) = bytes.get_mut(usize::from(at) / 7 % length) {
                *place = byte;
            }
        }
        let store = follow(&passing);
        prop_assert!(store.bytes() <= MAX_BYTES);
        prop_assert!(store.iter().all(|one| one.summary.duration.is_some()));
    }
}

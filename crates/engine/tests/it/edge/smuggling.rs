//! Whatever bytes a visitor puts into any part of an HTTP/2 request, a service receives either one
//! well-formed request with the edge's own fields, or nothing.

use http1::{
    BodyReader, BodyState, FieldKind, Limits, MAX_FIELDS, Progress, Slots, may_be_trailer,
    parse_request, parse_trailers,
};
use hyper::ext::Protocol;
use hyper::{Method, Request, Version};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use testing::{H2Visitor, TestEngine, Upstream, within};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

#[tokio::test]
async fn an_invalid_protocol_token_is_refused_before_upstream() {
    let engine = TestEngine::start().await;
    let upstream = Upstream::http1().await;
    let tunnel = engine.publish(upstream.addr()).await;
    let host = tunnel.hostname();
    let mut visitor = engine.visitor().h2(host).await;
    visitor.get("/", host).await;
    let accepted = upstream.accepted();
    for protocol in [
        "websocket\r\nsvc-user-id: usr_admin",
        "websocket\r\n\r\nPOST /admin HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nx: y",
        "websocket\nx: y",
        "websocket\0",
        "web socket",
        "websocket, h2c",
        "websocket/",
        "",
        "\u{e4}",
    ] {
        let request = Request::builder()
            .method(Method::CONNECT)
            .uri(format!("https://{host}/"))
            .version(Version::HTTP_2)
            .extension(Protocol::from(protocol))
            .body(H2Visitor::empty())
            .unwrap();
        let response = visitor.send(request).await.unwrap();
        assert_eq!(response.status(), 400, "{protocol:?}");
    }
    // The idle connection has carried one request, and there is no other connection.
    let next = visitor.get("/", host).await.json();
    assert_eq!(
        (&next["connection"], &next["request"]),
        (&1.into(), &2.into())
    );
    assert_eq!(upstream.accepted(), accepted);
}

#[tokio::test]
async fn another_scheme_than_that_of_the_connection_is_refused() {
    let engine = TestEngine::start().await;
    let upstream = Upstream::http1().await;
    let tunnel = engine.publish(upstream.addr()).await;
    let host = tunnel.hostname();
    let mut visitor = engine.visitor().h2(host).await;
    for (scheme, status) in [("https", 200), ("http", 400), ("ftp", 400)] {
        let request = Request::get(format!("{scheme}://{host}/"));
        let request = request.body(H2Visitor::empty()).unwrap();
        let response = visitor.send(request).await.unwrap();
        assert_eq!(response.status(), status, "{scheme}");
    }
    assert_eq!(upstream.accepted(), 1);
}

#[tokio::test]
async fn no_byte_of_an_http2_request_forges_one_of_http1() {
    let engine = TestEngine::start().await;
    let (sender, mut received) = mpsc::unbounded_channel();
    let upstream = Upstream::start(move |stream, _number| {
        let sender = sender.clone();
        async move {
            let bytes = receive(stream).await;
            sender.send(bytes).ok();
        }
    })
    .await;
    let tunnel = engine.publish(upstream.addr()).await;
    let host = tunnel.hostname().to_owned();
    let mut served = 0;
    for request in requests(&host, 300) {
        send(&engine, &host, &request).await;
        while let Ok(bytes) = received.try_recv() {
            served += 1;
            assert_one_request(&bytes, &host);
        }
    }
    engine.stop().await;
    drop(tunnel);
    drop(upstream);
    while let Some(bytes) = received.recv().await {
        served += 1;
        assert_one_request(&bytes, &host);
    }
    assert!(served > 20, "only {served} requests were valid");
}

#[tokio::test]
async fn no_byte_of_an_http2_request_forges_a_field_for_http2() {
    let engine = TestEngine::start().await;
    let upstream = Upstream::h2c().await;
    let tunnel = engine.publish_h2c(upstream.addr()).await;
    let host = tunnel.hostname().to_owned();
    let mut served = 0;
    for request in requests(&host, 300) {
        let seen = send(&engine, &host, &request).await;
        let Ok(seen) = serde_json::from_slice::<serde_json::Value>(&seen) else {
            continue;
        };
        let Some(headers) = seen["headers"].as_array() else {
            continue;
        };
        served += 1;
        let pairs = |pairs: &[serde_json::Value]| -> Vec<(String, String)> {
            let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
            pairs
                .iter()
                .map(|pair| (text(&pair[0]), text(&pair[1])))
                .collect()
        };
        let headers = pairs(headers);
        let headers = headers
            .iter()
            .map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        assert_fields_of_the_edge(&headers.collect::<Vec<_>>());
        for (name, _) in pairs(seen["trailers"].as_array().map_or(&[], Vec::as_slice)) {
            assert!(may_be_trailer(name.as_bytes()), "{name} is a trailer");
        }
    }
    assert!(served > 20, "only {served} requests were valid");
}

/// Reads one request, answers it, and reads to the end. Returns all received bytes.
async fn receive(mut stream: TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut answered = false;
    loop {
        match stream.read_buf(&mut bytes).await {
            Ok(count) if count > 0 => {}
            _ => return bytes,
        }
        if !answered && !matches!(split(&bytes), Ok((_, false))) {
            answered = true;
            let answer = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
            if stream.write_all(answer.as_bytes()).await.is_err() {
                return bytes;
            }
        }
    }
}

/// The end of the first request, and true if it is complete.
fn split(bytes: &[u8]) -> Result<(usize, bool), String> {
    let limits = Limits {
        head_bytes: usize::MAX,
        headers: MAX_FIELDS,
        ..Limits::default()
    };
    let mut slots = Slots::new();
    let head = parse_request(bytes, &limits, &mut slots).map_err(|refusal| refusal.to_string())?;
    let Progress::Complete { head, head_len } = head else {
        return Ok((bytes.len(), false));
    };
    let mut reader = BodyReader::from(head.body);
    let mut at = head_len;
    while !reader.is_done() {
        let rest = &bytes[at..];
        let step = reader.advance(rest).map_err(|error| error.to_string())?;
        if let BodyState::Trailers(section) = &step.state {
            let mut slots = Slots::new();
            let section = &rest[section.clone()];
            let passed = parse_trailers(section, &mut slots).map_err(|error| error.to_string())?;
            let all = section.split(|byte| *byte == b'\n').count() - 2;
            if passed.len() != all {
                return Err("a trailer that may not be one".to_owned());
            }
        }
        at += step.consumed;
        if step.consumed == 0 {
            return Ok((bytes.len(), false));
        }
    }
    Ok((at, true))
}

/// A connection that ended within a request has nothing else on it.
fn assert_one_request(bytes: &[u8], host: &str) {
    let shown = bytes.escape_ascii();
    let (end, _) = split(bytes).unwrap_or_else(|error| panic!("{error}: {shown}"));
    assert_eq!(end, bytes.len(), "bytes follow: {shown}");
    let limits = Limits {
        head_bytes: usize::MAX,
        headers: MAX_FIELDS,
        ..Limits::default()
    };
    let mut slots = Slots::new();
    let Ok(Progress::Complete { head, .. }) = parse_request(bytes, &limits, &mut slots) else {
        return;
    };
    assert_eq!(head.authority.host(), host, "{shown}");
    let fields = head.fields.iter();
    let fields = fields.map(|field| (field.name.as_bytes(), field.value.as_bytes()));
    assert_fields_of_the_edge(&fields.collect::<Vec<_>>());
}

fn assert_fields_of_the_edge(fields: &[(&[u8], &[u8])]) {
    let values = |wanted: FieldKind| {
        let fields = fields.iter();
        let values = fields.filter(move |(name, _)| FieldKind::of(name) == wanted);
        values.map(|(_, value)| *value).collect::<Vec<_>>()
    };
    assert_eq!(values(FieldKind::XForwardedFor), [b"127.0.0.1"]);
    assert_eq!(values(FieldKind::XForwardedProto), [b"https"]);
    assert_eq!(values(FieldKind::XForwardedHost).len(), 1);
    let forwarded = values(FieldKind::Forwarded);
    assert!(forwarded.len() == 1 && forwarded[0].starts_with(b"for=127.0.0.1;"));
    for none in [FieldKind::XRealIp, FieldKind::SvcReserved] {
        assert!(values(none).is_empty(), "{none:?}");
    }
}

/// An HTTP/2 request as bytes that no library has checked.
#[derive(Debug)]
struct RawRequest {
    fields: Vec<(Vec<u8>, Vec<u8>)>,
    body: Option<Vec<u8>>,
    trailers: Vec<(Vec<u8>, Vec<u8>)>,
}

/// The same requests in each run.
fn requests(host: &str, count: usize) -> Vec<RawRequest> {
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let strategy = raw(host);
    let made = (0..count).map(|_| strategy.new_tree(&mut runner).unwrap().current());
    made.collect()
}

fn raw(host: &str) -> impl Strategy<Value = RawRequest> {
    let pseudo = (
        part(&["GET", "POST", "CONNECT", "M-SEARCH"]),
        part(&["https"]),
        part(&[host]),
        part(&["/", "/a?b=c", "*"]),
        proptest::option::weighted(0.3, part(&["websocket", "h2c", "a/1"])),
    );
    let fields = vec((name(), part(&["1", "usr_admin", "127.0.0.9"])), 0..4);
    let body = proptest::option::weighted(0.4, part(&["hello", ""]));
    let trailers = vec((name(), part(&["1"])), 0..3);
    (pseudo, fields, body, trailers).prop_map(|(pseudo, mut fields, body, trailers)| {
        let (method, scheme, authority, path, protocol) = pseudo;
        let mut all = vec![
            (b":method".to_vec(), method),
            (b":scheme".to_vec(), scheme),
            (b":authority".to_vec(), authority),
            (b":path".to_vec(), path),
        ];
        if let Some(protocol) = protocol {
            all[0].1 = b"CONNECT".to_vec();
            all.push((b":protocol".to_vec(), protocol));
        }
        all.append(&mut fields);
        RawRequest {
            fields: all,
            body,
            trailers,
        }
    })
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    part(&[
        "accept",
        "x-mine",
        "cookie",
        "referer",
        "svc-user-id",
        "svc_user_id",
        "x-forwarded-for",
        "x_forwarded_host",
        "forwarded",
        "x-real-ip",
        "content-length",
        "transfer-encoding",
        "host",
        "te",
        "upgrade",
        "connection",
    ])
}

/// Mostly valid values, otherwise values with line ends or arbitrary bytes.
fn part(good: &[&str]) -> impl Strategy<Value = Vec<u8>> + use<> {
    let good: Vec<Vec<u8>> = good.iter().map(|text| text.as_bytes().to_vec()).collect();
    let injected = proptest::sample::select(vec![
        &b"\r\nsvc-user-id: usr_admin"[..],
        b"\r\n\r\nPOST /admin HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nx: y",
        b"\nx-forwarded-for: 10.0.0.1",
        b"\r",
        b"\0",
        b" ",
        b"\t",
        b"#a",
        b":",
        b"\x7f",
        b"\x80\xff",
        b" HTTP/1.1",
    ]);
    let bad = (proptest::sample::select(good.clone()), injected);
    prop_oneof![
        30 => proptest::sample::select(good),
        2 => bad.prop_map(|(good, bad)| [good.as_slice(), bad].concat()),
        1 => vec(any::<u8>(), 0..24),
    ]
}

/// Sends a request on its own connection and waits for its end. Returns the data of the answer.
async fn send(engine: &TestEngine, host: &str, request: &RawRequest) -> Vec<u8> {
    let config = engine.ca().client(&["h2"]);
    let mut stream = engine.visitor().connect(host, &config).await;
    let mut out = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    frame(&mut out, SETTINGS, 0, 0, &[]);
    let ends = request.body.is_none() && request.trailers.is_empty();
    let flags = END_HEADERS | if ends { END_STREAM } else { 0 };
    frame(&mut out, HEADERS, flags, 1, &literals(&request.fields));
    if let Some(body) = &request.body {
        let flags = if request.trailers.is_empty() {
            END_STREAM
        } else {
            0
        };
        frame(&mut out, DATA, flags, 1, body);
    }
    if !request.trailers.is_empty() {
        let flags = END_HEADERS | END_STREAM;
        frame(&mut out, HEADERS, flags, 1, &literals(&request.trailers));
    }
    let mut data = Vec::new();
    let mut bytes = Vec::new();
    let conversing = async {
        stream.write_all(&out).await?;
        stream.flush().await?;
        loop {
            while let Some((header, rest)) = bytes.split_at_checked(9) {
                let [a, b, c, kind, flags, _, _, _, on] = *header else {
                    unreachable!()
                };
                let len = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
                let Some(payload) = rest.get(..len) else {
                    break;
                };
                if kind == DATA {
                    data.extend_from_slice(payload);
                }
                let ended = matches!(kind, DATA | HEADERS) && flags & END_STREAM != 0;
                if on == 1 && (ended || kind == RST_STREAM) || kind == GOAWAY {
                    return Ok(());
                }
                bytes.drain(..9 + len);
            }
            if stream.read_buf(&mut bytes).await? == 0 {
                return Ok::<(), std::io::Error>(());
            }
        }
    };
    // A request whose connection is closed has been refused as well.
    within("end of the answer", conversing).await.ok();
    data
}

fn frame(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u8, payload: &[u8]) {
    let len = u32::try_from(payload.len()).unwrap();
    out.extend_from_slice(&len.to_be_bytes()[1..]);
    out.extend_from_slice(&[kind, flags, 0, 0, 0, stream]);
    out.extend_from_slice(payload);
}

/// RFC 7541, 6.2.2: literal fields without indexing or Huffman coding.
fn literals(fields: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in fields {
        out.push(0);
        for text in [name, value] {
            // All of them are short: the length is one byte.
            out.push(
                u8::try_from(text.len())
                    .ok()
                    .filter(|len| *len < 127)
                    .unwrap(),
            );
            out.extend_from_slice(text);
        }
    }
    out
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

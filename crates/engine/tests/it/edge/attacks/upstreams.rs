//! Harmful answers of services. None of them reaches another visitor, or looks complete if it is
//! truncated.

use bytes::Bytes;
use client::Properties;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use testing::{H2Visitor, ScriptedUpstream, Step, TestEngine, Upstream, within};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::Table;

const GOOD: &str = "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ngood";

/// A service that answers the first request of its first connection with `bad` and `then`, and all
/// other requests correctly.
async fn turned(bad: String, then: &'static str) -> ScriptedUpstream {
    ScriptedUpstream::start(move |number| match number {
        1 => vec![
            Step::ReadHead,
            Step::write(format!("{bad}{then}")),
            Step::ReadToEnd,
        ],
        _ => vec![Step::ReadHead, Step::write(GOOD), Step::ReadToEnd],
    })
    .await
}

/// Ambiguous heads, followed by a second answer. The visitor gets a 502, and the second answer
/// never reaches the next visitor.
#[tokio::test]
async fn an_ambiguous_answer_is_a_502_and_the_connection_is_not_used_again() {
    const POISON: &str = "HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\npoison";
    let engine = TestEngine::start().await;
    let long = "a".repeat(200_000);
    let mut table = Table::default();
    let ok = |fields: &str| format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n");
    for bad in [
        ok("content-length: 0\r\ntransfer-encoding: chunked"),
        ok("transfer-encoding: chunked\r\ncontent-length: 0"),
        ok("content-length: 0\r\ncontent-length: 50"),
        ok("content-length: 0, 0"),
        ok("content-length: +0"),
        ok("content-length: -1"),
        ok("content-length: 0x0"),
        ok("content-length: "),
        ok("content-length: 99999999999999999999"),
        ok("content-length : 0"),
        ok("transfer-encoding: xchunked"),
        ok("transfer-encoding: chunked, identity"),
        ok("transfer-encoding: gzip, chunked"),
        ok("transfer-encoding: chunked\r\ntransfer-encoding: chunked"),
        ok("transfer-encoding : chunked"),
        ok("transfer-encoding:\r\n chunked"),
        ok("x: a\r\n b"),
        ok("x: a\0"),
        ok("x: a\rb"),
        ok("x: a\nb: c"),
        ok("x"),
        ok(": a"),
        ok("x y: a"),
        ok(&format!("x: {long}")),
        ok(&"x: a\r\n".repeat(300)),
        "HTTP/1.1 200 OK\ncontent-length: 0\n\n".to_owned(),
        "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\n".to_owned(),
        "HTTP/1.1 99 Low\r\ncontent-length: 0\r\n\r\n".to_owned(),
        "HTTP/1.1 1000 High\r\ncontent-length: 0\r\n\r\n".to_owned(),
        "HTTP/1.1 2x0 OK\r\ncontent-length: 0\r\n\r\n".to_owned(),
        "HTTP/1.1 -200 OK\r\ncontent-length: 0\r\n\r\n".to_owned(),
        "HTTP/1.1  200 OK\r\ncontent-length: 0\r\n\r\n".to_owned(),
        "HTTP/1.1\r\ncontent-length: 0\r\n\r\n".to_owned(),
        "HTTP/2 200 OK\r\ncontent-length: 0\r\n\r\n".to_owned(),
        "HTTP/0.9 200 OK\r\ncontent-length: 0\r\n\r\n".to_owned(),
        "http/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".to_owned(),
        "ICY 200 OK\r\ncontent-length: 0\r\n\r\n".to_owned(),
        " HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".to_owned(),
        "\r\n\r\n\r\n".to_owned(),
        "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n"
            .to_owned(),
        "HTTP/1.1 103 Early Hints\r\ncontent-length : 0\r\n\r\n".to_owned(),
        "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(17),
        "\0\u{1}\u{2}\u{3}\r\n\r\n".to_owned(),
    ] {
        let shown = bad.chars().take(60).collect::<String>();
        for h2 in [false, true] {
            let service = turned(bad.clone(), POISON).await;
            let tunnel = engine.publish(service.addr()).await;
            let host = tunnel.hostname();
            let (first, next) = if h2 {
                let mut visitor = engine.visitor().h2(host).await;
                (visitor.get("/", host).await, visitor.get("/", host).await)
            } else {
                let mut visitor = engine.visitor().http1(host).await;
                (visitor.get("/", host).await, visitor.get("/", host).await)
            };
            let version = if h2 { "HTTP/2" } else { "HTTP/1.1" };
            table.row(
                [&shown, version],
                &(first.status, next.text()),
                &(502, "good"),
            );
        }
    }
    table.assert_no_failures();
}

/// Chunks that two parsers would end in different places, after a valid start.
#[tokio::test]
async fn an_ambiguous_chunk_makes_the_answer_incomplete() {
    const POISON: &str = "0\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\npoison";
    let engine = TestEngine::start().await;
    for chunks in [
        "0x3\r\nabc\r\n",
        "+3\r\nabc\r\n",
        " 3\r\nabc\r\n",
        "3;\n0\r\n\r\n",
        "3\nabc\r\n",
        "3\r\nabcd\r\n",
        "3\r\nabc\n",
        "g\r\nabc\r\n",
        "\r\n",
        "ffffffffffffffff\r\nabc\r\n",
        "0\r\nX: a\r\n b\r\n\r\n",
        "0\r\nX\r\n\r\n",
        "0\n\n",
    ] {
        for h2 in [false, true] {
            let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nfirst\r\n";
            let service = turned(format!("{head}{chunks}"), POISON).await;
            let tunnel = engine.publish(service.addr()).await;
            let host = tunnel.hostname();
            let first = if h2 {
                engine
                    .visitor()
                    .h2(host)
                    .await
                    .try_get("/", host)
                    .await
                    .ok()
            } else {
                Some(engine.visitor().http1(host).await.get("/", host).await)
            };
            if let Some(first) = first {
                assert!(!first.is_complete, "{chunks:?}, h2: {h2}: {first:?}");
                let text = String::from_utf8_lossy(&first.body).into_owned();
                assert!(!text.contains("poison"), "{chunks:?}: {text}");
            }
            let next = engine.visitor().http1(host).await.get("/", host).await;
            assert_eq!(next.text(), "good", "{chunks:?}, h2: {h2}");
        }
    }
}

/// A service can set neither the fields of the edge nor those of the connection between visitor and
/// edge.
#[tokio::test]
async fn a_service_cannot_set_the_fields_of_the_edge() {
    let engine = TestEngine::start().await;
    let service = ScriptedUpstream::answering(
        "HTTP/1.1 200 OK\r\ncontent-length: 4\r\nconnection: x-hop, content-length\r\n\
        x-hop: 1\r\nkeep-alive: timeout=1\r\nproxy-authenticate: Basic\r\nupgrade: h2c\r\n\
        trailer: x\r\nx-stay: 1\r\n\r\ngood",
    )
    .await;
    let tunnel = engine.publish(service.addr()).await;
    let host = tunnel.hostname();
    for answer in [
        engine.visitor().http1(host).await.get("/", host).await,
        engine.visitor().h2(host).await.get("/", host).await,
    ] {
        assert_eq!((answer.text(), answer.is_complete), ("good", true));
        assert_eq!(answer.header("x-stay"), Some("1"));
        assert_eq!(answer.header("content-length"), Some("4"));
        for name in [
            "x-hop",
            "keep-alive",
            "proxy-authenticate",
            "upgrade",
            "trailer",
        ] {
            assert_eq!(answer.header(name), None, "{name}");
        }
    }
}

/// A service that hangs, floods and fails in one tunnel does not affect the other tunnel.
#[tokio::test]
async fn a_bad_service_affects_only_its_own_visitors() {
    let site = super::Site::start().await;
    let engine = &site.engine;
    let bad = [
        ScriptedUpstream::never_answers().await,
        ScriptedUpstream::floods_interim_responses().await,
        ScriptedUpstream::answers_garbage().await,
        ScriptedUpstream::start(|_| {
            let head = "HTTP/1.1 200 OK\r\nx: ";
            vec![
                Step::ReadHead,
                Step::write(head),
                Step::WriteForever(vec![b'a'; 1024]),
            ]
        })
        .await,
        ScriptedUpstream::start(|_| vec![Step::ReadHead, Step::Reset]).await,
    ];
    let statuses = [504, 502, 502, 502, 502];
    let mut visits = tokio::task::JoinSet::new();
    for (service, status) in bad.iter().zip(statuses) {
        let mut properties = Properties::http();
        // Only the service that never answers may reach its time limit.
        properties.time_to_first_byte_seconds = (status == 504).then_some(1);
        let tunnel = engine.publish_as(properties, service.addr()).await;
        for _ in 0..4 {
            let visitor = engine.visitor();
            let host = tunnel.hostname().to_owned();
            let mut http1 = visitor.http1(&host).await;
            let mut h2 = visitor.h2(&host).await;
            visits.spawn(async move {
                assert_eq!(http1.get("/", &host).await.status, status);
                assert_eq!(h2.get("/", &host).await.status, status);
            });
        }
        site.check_other_tunnel().await;
        while let Some(visit) = visits.join_next().await {
            visit.unwrap();
        }
        drop(tunnel);
    }
    site.check_untouched().await;
}

/// A visitor that sends its whole request before it reads any of the answer, to a service that
/// answers while it reads.
#[tokio::test]
async fn an_h2_visitor_may_send_everything_before_it_reads() {
    const EACH: usize = 16 * 1024;
    const PIECES: usize = 512;
    let engine = TestEngine::start().await;
    // Sends more than the visitor's window before it has read the rest, and reports when it has
    // read everything.
    let (all_read, mut read) = mpsc::channel(1);
    let service = Upstream::start(move |mut stream, _| {
        let all_read = all_read.clone();
        async move {
            use tokio::io::{AsyncReadExt, AsyncWriteExt};
            let mut request = Vec::new();
            while !request.windows(4).any(|end| end == b"\r\n\r\n") {
                stream.read_buf(&mut request).await.unwrap();
            }
            let length = EACH * PIECES;
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n");
            let (mut reader, mut writer) = stream.into_split();
            tokio::spawn(async move {
                writer.write_all(head.as_bytes()).await.ok();
                writer.write_all(&vec![b'a'; length]).await.ok();
                // Stays open until the visitor has received it.
                writer.writable().await.ok();
                std::future::pending::<()>().await;
            });
            while !request.ends_with(b"\r\n0\r\n\r\n") {
                let keep = request.len().min(16);
                request.drain(..request.len() - keep);
                if reader.read_buf(&mut request).await.unwrap_or(0) == 0 {
                    return;
                }
            }
            all_read.send(()).await.ok();
            std::future::pending::<()>().await;
        }
    })
    .await;
    let tunnel = engine.publish(service.addr()).await;
    let host = tunnel.hostname();
    let (pieces, body) = mpsc::channel(1);
    let body = StreamBody::new(ReceiverStream::new(body)).boxed_unsync();
    let request = hyper::Request::post(format!("https://{host}/")).body(body);
    let mut visitor = engine.visitor().h2(host).await;
    pieces
        .send(Ok(Frame::data(Bytes::from_static(b"first"))))
        .await
        .unwrap();
    let response = visitor.send(request.unwrap()).await.unwrap();
    let sending = async {
        for _ in 0..PIECES {
            let piece = Frame::data(Bytes::from(vec![b'u'; EACH]));
            pieces.send(Ok(piece)).await.expect("the edge reads");
        }
        drop(pieces);
    };
    within("the whole request", sending).await;
    within("the request at the service", read.recv())
        .await
        .unwrap();
    let answer = H2Visitor::collect(response).await;
    assert_eq!(
        (answer.body.len(), answer.is_complete),
        (EACH * PIECES, true)
    );
}

/// Two agents share a name, and the service resets the connection after it has read a request. The
/// request may have had an effect, so it is not sent again through the other agent.
#[tokio::test]
async fn a_request_that_a_service_read_is_not_sent_again() {
    let engine = TestEngine::start().await;
    let service = ScriptedUpstream::start(|_| vec![Step::ReadHead, Step::Reset]).await;
    let shared = || Properties::http().named("web").share(true);
    let first = engine.publish_as(shared(), service.addr()).await;
    let _second = engine.publish_as(shared(), service.addr()).await;
    let host = first.hostname();
    for count in 1..=4 {
        let post = format!("POST / HTTP/1.1\r\nHost: {host}\r\nContent-Length: 2\r\n\r\nhi");
        let mut visitor = engine.visitor().http1(host).await;
        assert_eq!(visitor.exchange(post.as_bytes()).await.status, 502);
        assert_eq!(service.accepted(), count, "it was sent again");
    }
}

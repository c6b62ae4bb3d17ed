//! Truncated messages never look complete. They are sent again only if that is safe.

use std::future::poll_fn;
use std::time::Duration;

use bytes::Bytes;
use client::Properties;
use http_body_util::{BodyExt, StreamBody};
use hyper::Response;
use hyper::body::Frame;
use testing::{
    Gate, H2Visitor, ReceivedResponse, Report, ScriptedUpstream, Step, TestEngine, TestTunnel,
    Upstream, within,
};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_stream::wrappers::UnboundedReceiverStream;

async fn over_both(upstream: &ScriptedUpstream) -> [ReceivedResponse; 2] {
    let engine = TestEngine::start().await;
    let tunnel = engine.publish(upstream.addr()).await;
    let host = tunnel.hostname();
    let over_http1 = engine.visitor().http1(host).await.get("/", host).await;
    let over_h2 = engine.visitor().h2(host).await.get("/", host).await;
    [over_http1, over_h2]
}

/// A truncated message is incomplete over HTTP/1.1 and over HTTP/2, where a reset may even overtake
/// the head.
async fn assert_incomplete(upstream: &ScriptedUpstream) {
    let engine = TestEngine::start().await;
    let tunnel = engine.publish(upstream.addr()).await;
    let host = tunnel.hostname();
    let over_http1 = engine.visitor().http1(host).await.get("/", host).await;
    let over_h2 = engine.visitor().h2(host).await.try_get("/", host).await;
    for answer in [Ok(over_http1), over_h2].into_iter().flatten() {
        assert_eq!(answer.status, 200);
        assert!(!answer.is_complete, "{answer:?}");
        assert!(b"first".starts_with(&answer.body), "{answer:?}");
    }
}

#[tokio::test]
async fn a_truncated_answer_does_not_look_complete() {
    let gate = Gate::new();
    gate.open();
    gate.open();
    for upstream in [
        ScriptedUpstream::cuts_a_length().await,
        ScriptedUpstream::cuts_chunks().await,
        ScriptedUpstream::resets_in_the_body(&gate).await,
    ] {
        assert_incomplete(&upstream).await;
    }
}

#[tokio::test]
async fn an_answer_that_ends_with_its_connection_is_forwarded_in_chunks() {
    let upstream = ScriptedUpstream::answering("HTTP/1.1 200 OK\r\n\r\nuntil the end").await;
    for answer in over_both(&upstream).await {
        assert!(answer.is_complete, "{answer:?}");
        assert_eq!(answer.text(), "until the end");
    }
}

#[tokio::test]
async fn an_answer_that_cannot_be_parsed_is_a_502() {
    let (broken, invalid) = ("upstream_unreachable", "upstream_invalid_response");
    for (upstream, code) in [
        (ScriptedUpstream::cuts_the_head().await, broken),
        (ScriptedUpstream::closes_unanswered().await, broken),
        (ScriptedUpstream::answers_garbage().await, invalid),
        (
            ScriptedUpstream::answering(
                "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
            )
            .await,
            invalid,
        ),
        (
            ScriptedUpstream::answering(
                "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nxx",
            )
            .await,
            invalid,
        ),
        (
            ScriptedUpstream::answering("HTTP/1.1 200 OK\ncontent-length: 1\n\nx").await,
            invalid,
        ),
        (ScriptedUpstream::floods_interim_responses().await, invalid),
    ] {
        for answer in over_both(&upstream).await {
            assert_eq!(answer.status, 502, "{answer:?}");
            assert_eq!(answer.json()["code"], code);
        }
    }
}

/// Common faults with one interpretation: the visitor gets the response, and the connection is not
/// used again.
#[tokio::test]
async fn small_faults_of_services_are_tolerated() {
    for (head, body) in [
        ("200 OK\r\ncontent-length: 2\r\ncontent-length: 2", "ok"),
        (
            "200 OK\r\ntransfer-encoding: identity\r\ncontent-length: 2",
            "ok",
        ),
        ("204 No Content\r\ncontent-length: 2", ""),
    ] {
        let response = format!("HTTP/1.1 {head}\r\n\r\n{body}");
        let upstream = ScriptedUpstream::start(move |_| {
            vec![
                Step::ReadHead,
                Step::write(response.clone()),
                Step::ReadHead,
            ]
        })
        .await;
        for answer in over_both(&upstream).await {
            assert_eq!((answer.text(), answer.is_complete), (body, true), "{head}");
            let lengths = answer
                .headers
                .iter()
                .filter(|(name, _)| name == "content-length");
            assert_eq!(lengths.count(), body.len() / 2, "{head}");
        }
        let engine = TestEngine::start().await;
        let tunnel = engine.publish(upstream.addr()).await;
        let before = upstream.accepted();
        let mut visitor = engine.visitor().http1(tunnel.hostname()).await;
        for _ in 0..2 {
            let answer = visitor.get("/", tunnel.hostname()).await;
            assert!(answer.is_complete, "{answer:?}");
        }
        assert_eq!(upstream.accepted(), before + 2, "{head}");
    }
}

/// Chunk extensions and padded sizes of a service do not reach the visitor.
#[tokio::test]
async fn chunk_extensions_of_services_are_removed() {
    let upstream = ScriptedUpstream::answering(
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n\
         5;a=b\r\nhello\r\n7  \r\n, world\r\n1 ;x=\"; \"\r\n!\r\n0  \r\n\r\n",
    )
    .await;
    for answer in over_both(&upstream).await {
        assert_eq!((answer.text(), answer.is_complete), ("hello, world!", true));
    }
    let engine = TestEngine::start().await;
    let tunnel = engine.publish(upstream.addr()).await;
    let host = tunnel.hostname();
    let mut visitor = engine.visitor().http1(host).await;
    visitor
        .request("GET", "/", host, "Connection: close\r\n")
        .await;
    let raw = visitor.read_to_end().await;
    let raw = String::from_utf8(raw).unwrap();
    assert!(
        raw.ends_with("5\r\nhello\r\n7\r\n, world\r\n1\r\n!\r\n0\r\n\r\n"),
        "{raw}"
    );
}

/// A request with chunk extensions is served without them. One that cannot be served gets a 400.
#[tokio::test]
async fn a_chunked_request_is_served_or_refused() {
    let engine = TestEngine::start().await;
    let http1 = Upstream::http1().await;
    let h2c = Upstream::h2c().await;
    let tunnels = [
        engine.publish(http1.addr()).await,
        engine.publish_h2c(h2c.addr()).await,
    ];
    for tunnel in &tunnels {
        let host = tunnel.hostname();
        let chunked = "Transfer-Encoding: chunked\r\n";
        let mut visitor = engine.visitor().http1(host).await;
        visitor.request("POST", "/mirror", host, chunked).await;
        visitor.send("5;a=b\r\nhello\r\n0;last\r\n\r\n").await;
        assert_eq!(within("answer", visitor.answer()).await.text(), "hello");
        for body in [
            "5  \r\nhello\r\n0\r\n\r\n",
            "x\r\n",
            "5\r\nhello!\r\n",
            "5;a\nb\r\n",
        ] {
            let mut visitor = engine.visitor().http1(host).await;
            visitor.request("POST", "/", host, chunked).await;
            visitor.send(body).await;
            let answer = within("answer", visitor.answer()).await;
            assert_eq!(answer.status, 400, "{body:?}: {answer:?}");
            assert_eq!(answer.json()["code"], "invalid_request");
            assert_eq!(visitor.read_to_end().await, b"");
        }
    }
}

#[tokio::test]
async fn chunk_extensions_of_visitors_are_removed() {
    const WITHOUT: &[u8] = b"5\r\nhello\r\n0\r\n\r\n";
    let engine = TestEngine::start().await;
    let service = ScriptedUpstream::start(|_| {
        let answer = "HTTP/1.1 204 No Content\r\n\r\n";
        vec![
            Step::ReadHead,
            Step::ReadBytes(WITHOUT.len()),
            Step::write(answer),
        ]
    })
    .await;
    let tunnel = engine.publish(service.addr()).await;
    let host = tunnel.hostname();
    let mut visitor = engine.visitor().http1(host).await;
    let chunked = "Transfer-Encoding: chunked\r\n";
    visitor.request("POST", "/", host, chunked).await;
    visitor.send("5;a=b\r\nhello\r\n0;last\r\n\r\n").await;
    assert_eq!(within("answer", visitor.answer()).await.status, 204);
    service.head().await;
    assert_eq!(service.report().await, Report::Bytes(WITHOUT.to_vec()));
}

#[tokio::test]
async fn a_malformed_chunk_ends_the_answer_as_broken() {
    let upstream = ScriptedUpstream::answering(
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nfirst\r\n5x\r\nagain\r\n0\r\n\r\n",
    )
    .await;
    assert_incomplete(&upstream).await;
}

#[tokio::test]
async fn a_truncated_request_does_not_look_complete() {
    let engine = TestEngine::start().await;
    let upstream =
        ScriptedUpstream::start(|_| vec![Step::ReadHead, Step::ReadBytes(5), Step::ReadToEnd])
            .await;
    let tunnel = engine.publish(upstream.addr()).await;
    let host = tunnel.hostname();
    for (field, part) in [
        ("Content-Length: 10", "first"),
        ("Transfer-Encoding: chunked", "5\r\nfirst\r\n"),
    ] {
        let mut visitor = engine.visitor().http1(host).await;
        visitor
            .request("POST", "/", host, &format!("{field}\r\n"))
            .await;
        visitor.send(part).await;
        upstream.head().await;
        assert!(matches!(upstream.report().await, Report::Bytes(bytes) if bytes.len() == 5));
        drop(visitor);
        let mut rest = Vec::new();
        loop {
            match upstream.report().await {
                Report::Bytes(bytes) => rest.extend(bytes),
                Report::Closed => break,
                other @ Report::Head { .. } => panic!("{other:?}"),
            }
        }
        let rest = String::from_utf8(rest).unwrap();
        assert!(!rest.ends_with("0\r\n\r\n"), "{rest:?}");
    }
}

#[tokio::test]
async fn a_request_that_is_reset_over_h2_does_not_look_complete() {
    let engine = TestEngine::start().await;
    let upstream = ScriptedUpstream::start(|_| vec![Step::ReadHead, Step::ReadToEnd]).await;
    let tunnel = engine.publish(upstream.addr()).await;
    let host = tunnel.hostname();
    let (frames, body) = mpsc::unbounded_channel();
    frames.send(Ok(Frame::data(Bytes::from("first")))).unwrap();
    let body = StreamBody::new(UnboundedReceiverStream::new(body)).boxed_unsync();
    let mut visitor = engine.visitor().h2(host).await;
    let request = hyper::Request::post(format!("https://{host}/"))
        .body(body)
        .unwrap();
    let answer = tokio::spawn(async move { visitor.send(request).await });
    upstream.head().await;
    frames.send(Err("the visitor gives up".into())).unwrap();
    let Report::Bytes(bytes) = upstream.report().await else {
        panic!("bytes come first")
    };
    assert!(!bytes.ends_with(b"0\r\n\r\n"), "{}", bytes.escape_ascii());
    assert!(answer.await.unwrap().is_err());
}

#[tokio::test]
async fn a_visitor_that_disconnects_ends_the_request_at_the_service() {
    let engine = TestEngine::start().await;
    let upstream = ScriptedUpstream::never_answers().await;
    let tunnel = engine.publish(upstream.addr()).await;
    let host = tunnel.hostname();
    let mut visitor = engine.visitor().http1(host).await;
    visitor.request("GET", "/", host, "").await;
    upstream.head().await;
    drop(visitor);
    assert_eq!(upstream.report().await, Report::Bytes(Vec::new()));
    assert_eq!(upstream.report().await, Report::Closed);

    let mut visitor = engine.visitor().h2(host).await;
    let request = hyper::Request::get(format!("https://{host}/")).body(H2Visitor::empty());
    let answer = tokio::spawn(async move { visitor.send(request.unwrap()).await });
    upstream.head().await;
    answer.abort();
    assert_eq!(upstream.report().await, Report::Bytes(Vec::new()));
    assert_eq!(upstream.report().await, Report::Closed);
}

/// The same for an HTTP/2 service, before and after the head of its answer.
#[tokio::test]
async fn a_visitor_that_disconnects_ends_the_request_at_an_http_2_service() {
    let engine = TestEngine::start().await;
    let (event_sender, mut events) = mpsc::unbounded_channel();
    let service = Upstream::start(move |stream, _| {
        let event_sender = event_sender.clone();
        async move {
            let mut connection = h2::server::handshake(stream).await.unwrap();
            let mut requests = JoinSet::new();
            while let Some(Ok((request, mut answer))) = connection.accept().await {
                let event_sender = event_sender.clone();
                requests.spawn(async move {
                    event_sender.send("asked").ok();
                    let reset = if request.uri().path() == "/behind" {
                        let mut body = answer.send_response(Response::new(()), false).unwrap();
                        body.send_data(Bytes::from("first"), false).unwrap();
                        poll_fn(|cx| body.poll_reset(cx)).await
                    } else {
                        poll_fn(|cx| answer.poll_reset(cx)).await
                    };
                    assert_eq!(reset.unwrap(), h2::Reason::CANCEL);
                    event_sender.send("reset").ok();
                });
            }
        }
    })
    .await;
    let tunnel = engine.publish_h2c(service.addr()).await;
    let host = tunnel.hostname();
    for path in ["/before", "/behind"] {
        let mut visitor = engine.visitor().http1(host).await;
        visitor.request("GET", path, host, "").await;
        assert_eq!(within("request", events.recv()).await, Some("asked"));
        if path == "/behind" {
            assert_eq!(visitor.head().await.status, 200);
            assert_eq!(visitor.chunk().await.unwrap(), b"first");
        }
        drop(visitor);
        assert_eq!(
            within("reset", events.recv()).await,
            Some("reset"),
            "{path}"
        );
    }
}

#[tokio::test]
async fn a_safe_request_is_sent_again_when_a_kept_connection_was_closed() {
    let engine = TestEngine::start().await;
    let upstream = ScriptedUpstream::closes_when_reused().await;
    let tunnel = engine.publish(upstream.addr()).await;
    let host = tunnel.hostname();
    let mut visitor = engine.visitor().http1(host).await;
    assert_eq!(visitor.get("/1", host).await.text(), "1");
    assert_eq!(visitor.get("/2", host).await.text(), "2");
    assert_eq!(upstream.accepted(), 2);
}

#[tokio::test]
async fn a_request_that_may_have_had_an_effect_is_not_sent_again() {
    let engine = TestEngine::start().await;
    let upstream = ScriptedUpstream::closes_when_reused().await;
    let tunnel = engine.publish(upstream.addr()).await;
    let host = tunnel.hostname();
    let mut visitor = engine.visitor().http1(host).await;
    assert_eq!(visitor.get("/1", host).await.text(), "1");
    visitor
        .request("POST", "/2", host, "Content-Length: 4\r\n")
        .await;
    visitor.send("body").await;
    assert_eq!(visitor.answer().await.status, 502);
    // The service has received it once.
    assert!(upstream.head().await.starts_with("GET /1"));
    assert!(upstream.head().await.starts_with("POST /2"));
    let mut visitor = engine.visitor().http1(host).await;
    assert_eq!(visitor.get("/3", host).await.status, 200);
    let next = upstream.next_head().await;
    assert!(next.starts_with("GET /3"), "{next}");
}

#[tokio::test]
async fn an_early_answer_of_a_service_is_forwarded() {
    let engine = TestEngine::start().await;
    let upstream = ScriptedUpstream::answers_early().await;
    let tunnel = engine.publish(upstream.addr()).await;
    let host = tunnel.hostname();
    let mut visitor = engine.visitor().http1(host).await;
    visitor
        .request("POST", "/", host, "Content-Length: 100000000\r\n")
        .await;
    visitor.send(Upstream::payload(10_000)).await;
    let answer = visitor.answer().await;
    assert_eq!(
        (answer.status, answer.text(), answer.is_complete),
        (413, "early", true)
    );

    let (frames, body) = mpsc::unbounded_channel();
    frames
        .send(Ok(Frame::data(Bytes::from(Upstream::payload(10_000)))))
        .unwrap();
    let body = StreamBody::new(UnboundedReceiverStream::new(body)).boxed_unsync();
    let mut visitor = engine.visitor().h2(host).await;
    let request = hyper::Request::post(format!("https://{host}/"))
        .body(body)
        .unwrap();
    let response = visitor.send(request).await.unwrap();
    assert_eq!(response.status(), 413);
    assert_eq!(
        response.into_body().collect().await.unwrap().to_bytes(),
        "early"
    );
}

/// After the time limit of the engine, or a shorter one of the tunnel: without the section, the
/// engine of a test waits for ten minutes.
#[tokio::test]
async fn a_service_that_never_answers_is_a_504() {
    for (sections, properties) in [
        ("timeouts: {stream_request_seconds: 1}", Properties::http()),
        ("", Properties::http().time_to_first_byte_seconds(1)),
    ] {
        let engine = TestEngine::start_with(sections).await;
        let upstream = ScriptedUpstream::never_answers().await;
        let tunnel = engine.publish_as(properties, upstream.addr()).await;
        let host = tunnel.hostname();
        for answer in [
            engine.visitor().http1(host).await.get("/", host).await,
            engine.visitor().h2(host).await.get("/", host).await,
        ] {
            assert_eq!(answer.status, 504);
            assert_eq!(answer.json()["code"], "upstream_timeout");
        }
    }
}

/// The deadline of the answer starts with the last progress of the request, so that a body of any
/// size may take its time.
#[tokio::test]
async fn a_request_that_makes_progress_is_not_aborted() {
    // The rate does not matter.
    let sections = "timeouts: {stream_request_seconds: 3}\nlimits: {min_body_rate: 0}";
    let engine = TestEngine::start_with(sections).await;
    let (http1, h2c) = (Upstream::http1().await, Upstream::h2c().await);
    let upload = async |tunnel: TestTunnel| {
        let host = tunnel.hostname();
        let body = "slow".repeat(8);
        let mut visitor = engine.visitor().http1(host).await;
        let length = format!("Content-Length: {}\r\n", body.len());
        visitor.request("POST", "/", host, &length).await;
        // The total is longer than the deadline. Each pause is much shorter, also on a busy machine.
        let mut pace = tokio::time::interval(Duration::from_millis(100));
        for byte in body.bytes() {
            pace.tick().await;
            visitor.send([byte]).await;
        }
        let answer = visitor.answer().await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.json()["body"], body);
    };
    tokio::join!(
        upload(engine.publish(http1.addr()).await),
        upload(engine.publish_h2c(h2c.addr()).await),
    );
}

#[tokio::test]
async fn a_slow_reader_applies_back_pressure_to_the_service() {
    let engine = TestEngine::start().await;
    // Far more than all buffers on the way can store.
    let upstream = Upstream::http1().await;
    let (written, mut progress) = tokio::sync::watch::channel(0_usize);
    let flood = Upstream::start(move |mut stream, _| {
        let written = written.clone();
        async move {
            use tokio::io::{AsyncReadExt, AsyncWriteExt};
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                stream.read_buf(&mut request).await.unwrap();
            }
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {FLOOD}\r\n\r\n");
            stream.write_all(head.as_bytes()).await.unwrap();
            let block = Upstream::payload(64 * 1024);
            for _ in 0..FLOOD / block.len() {
                if stream.write_all(&block).await.is_err() {
                    return;
                }
                written.send_modify(|count| *count += block.len());
            }
        }
    })
    .await;
    for h2 in [false, true] {
        let tunnel = engine.publish(flood.addr()).await;
        let host = tunnel.hostname();
        let before = *progress.borrow_and_update();
        let mut http1 = engine.visitor().http1(host).await;
        let mut over_h2 = engine.visitor().h2(host).await;
        let held = if h2 {
            let request = hyper::Request::get(format!("https://{host}/")).body(H2Visitor::empty());
            Some(over_h2.send(request.unwrap()).await.unwrap())
        } else {
            http1.request("GET", "/", host, "").await;
            http1.head().await;
            None
        };
        // The transfer has stalled when nothing was written for a while.
        while tokio::time::timeout(Duration::from_millis(700), progress.changed())
            .await
            .is_ok()
        {}
        let sent = *progress.borrow() - before;
        assert!(sent < FLOOD / 2, "{sent} bytes are in flight, h2: {h2}");
        drop(held);
    }
    drop(upstream);
}

const FLOOD: usize = 64 * 1024 * 1024;

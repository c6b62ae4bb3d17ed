//! Valid requests and answers.

use http_body_util::BodyExt;
use testing::{H2Visitor, TestEngine, Upstream};

#[tokio::test]
async fn a_request_reaches_the_service_and_the_answer_the_visitor() {
    let engine = TestEngine::start().await;
    let upstream = Upstream::http1().await;
    let tunnel = engine.publish(upstream.addr()).await;
    let host = tunnel.hostname();

    let mut visitor = engine.visitor().http1(host).await;
    let answer = visitor.get("/a/b?c=d%20e&&f", host).await;
    assert_eq!((answer.status, answer.is_complete), (200, true));
    assert_eq!(answer.header("content-type"), Some("application/json"));
    let seen = answer.json();
    assert_eq!(seen["method"], "GET");
    assert_eq!(seen["target"], "/a/b?c=d%20e&&f");
    assert_eq!(seen["version"], "HTTP/1.1");

    let mut visitor = engine.visitor().h2(host).await;
    let answer = visitor.get("/a/b?c=d%20e&&f", host).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.json()["target"], "/a/b?c=d%20e&&f");
    assert_eq!(answer.json()["version"], "HTTP/1.1");
}

#[tokio::test]
async fn connections_are_kept_alive_on_both_sides() {
    let engine = TestEngine::start().await;
    let upstream = Upstream::http1().await;
    let tunnel = engine.publish(upstream.addr()).await;
    let host = tunnel.hostname();
    let mut visitor = engine.visitor().http1(host).await;
    for number in 1..=5 {
        let seen = visitor.get("/", host).await.json();
        assert_eq!(seen["request"], number);
    }
    assert_eq!(upstream.accepted(), 1);

    let mut visitor = engine.visitor().h2(host).await;
    visitor.get("/", host).await;
    visitor.get("/", host).await;
    // At most one more, if another worker accepted the visitor's connection.
    assert!(upstream.accepted() <= 2, "{}", upstream.accepted());
}

#[tokio::test]
async fn a_visitor_can_ask_for_the_end_of_its_connection() {
    let engine = TestEngine::start().await;
    let upstream = Upstream::http1().await;
    let tunnel = engine.publish(upstream.addr()).await;
    let host = tunnel.hostname();
    let mut visitor = engine.visitor().http1(host).await;
    visitor
        .request("GET", "/", host, "Connection: close\r\n")
        .await;
    let answer = visitor.answer().await;
    assert!(answer.is_complete);
    assert_eq!(answer.header("connection"), Some("close"));
    assert_eq!(visitor.read_to_end().await, b"");
}

#[tokio::test]
async fn an_http_1_0_visitor_gets_a_compatible_answer() {
    let engine = TestEngine::start().await;
    let upstream = Upstream::http1().await;
    let tunnel = engine.publish(upstream.addr()).await;
    let host = tunnel.hostname();
    let mut visitor = engine.visitor().http1(host).await;
    visitor
        .send(format!(
            "GET /chunked/9000 HTTP/1.0\r\nHost: {host}\r\n\r\n"
        ))
        .await;
    let answer = visitor.answer().await;
    assert_eq!(answer.header("transfer-encoding"), None);
    assert_eq!(answer.body, Upstream::payload(9000));
    assert_eq!(visitor.read_to_end().await, b"");
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_their_order() {
    let engine = TestEngine::start().await;
    let upstream = Upstream::http1().await;
    let tunnel = engine.publish(upstream.addr()).await;
    let host = tunnel.hostname();
    let mut visitor = engine.visitor().http1(host).await;
    let requests: Vec<_> = (0..10)
        .map(|number| {
            format!("POST /{number} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 4\r\n\r\nbody")
        })
        .collect();
    visitor.send(requests.concat()).await;
    for number in 0..10 {
        let seen = visitor.answer().await.json();
        assert_eq!(seen["target"], format!("/{number}"));
        assert_eq!(seen["body"], "body");
    }
}

#[tokio::test]
async fn response_bodies_of_any_size_and_framing_are_forwarded() {
    let engine = TestEngine::start().await;
    let upstream = Upstream::http1().await;
    let tunnel = engine.publish(upstream.addr()).await;
    let host = tunnel.hostname();
    let mut http1 = engine.visitor().http1(host).await;
    let mut h2 = engine.visitor().h2(host).await;
    for len in [0, 1, 5_000, 100_000, 3_000_000] {
        for kind in ["bytes", "chunked"] {
            let target = format!("/{kind}/{len}");
            let answer = http1.get(&target, host).await;
            assert!(
                answer.is_complete && answer.body == Upstream::payload(len),
                "{target}"
            );
            let answer = h2.get(&target, host).await;
            assert!(
                answer.is_complete && answer.body == Upstream::payload(len),
                "{target} over h2"
            );
        }
    }
}

#[tokio::test]
async fn request_bodies_of_any_size_and_framing_are_forwarded() {
    let engine = TestEngine::start().await;
    let upstream = Upstream::http1().await;
    let tunnel = engine.publish(upstream.addr()).await;
    let host = tunnel.hostname();
    for len in [0, 1, 5_000, 100_000, 3_000_000] {
        let payload = Upstream::payload(len);
        let mut with_length = format!("POST /mirror HTTP/1.1\r\nHost: {host}\r\n").into_bytes();
        with_length.extend(format!("Content-Length: {len}\r\n\r\n").bytes());
        with_length.extend(&payload);
        let mut in_chunks = format!("POST /mirror HTTP/1.1\r\nHost: {host}\r\n").into_bytes();
        in_chunks.extend(b"Transfer-Encoding: chunked\r\n\r\n");
        for chunk in payload.chunks(7_777) {
            in_chunks.extend(format!("{:X}\r\n", chunk.len()).bytes());
            in_chunks.extend(chunk);
            in_chunks.extend(b"\r\n");
        }
        in_chunks.extend(b"0\r\n\r\n");
        for request in [with_length, in_chunks] {
            let answer = engine.visitor().http1(host).await.exchange(&request).await;
            assert!(answer.is_complete && answer.body == payload, "{len}");
        }
        let mut h2 = engine.visitor().h2(host).await;
        let request = hyper::Request::post(format!("https://{host}/mirror"))
            .body(H2Visitor::full(payload.clone()))
            .unwrap();
        let answer = H2Visitor::collect(h2.send(request).await.unwrap()).await;
        assert!(
            answer.is_complete && answer.body == payload,
            "{len} over h2"
        );
    }
}

#[tokio::test]
async fn answers_without_a_body_have_none() {
    let engine = TestEngine::start().await;
    let upstream = Upstream::http1().await;
    let tunnel = engine.publish(upstream.addr()).await;
    let host = tunnel.hostname();
    let mut visitor = engine.visitor().http1(host).await;
    visitor.request("HEAD", "/bytes/5000", host, "").await;
    let head = visitor.head().await;
    assert_eq!(
        (head.status, head.header("content-length")),
        (200, Some("5000"))
    );
    for status in [204, 304] {
        let answer = visitor.get(&format!("/status/{status}"), host).await;
        assert_eq!(answer.status, status);
    }
    // No bytes were left over that could be taken for the next answer.
    assert_eq!(
        visitor.get("/bytes/3", host).await.body,
        Upstream::payload(3)
    );

    let mut h2 = engine.visitor().h2(host).await;
    let request = hyper::Request::head(format!("https://{host}/bytes/5000"));
    let response = h2
        .send(request.body(H2Visitor::empty()).unwrap())
        .await
        .unwrap();
    assert_eq!(response.headers()["content-length"], "5000");
    assert_eq!(
        response
            .into_body()
            .collect()
            .await
            .unwrap()
            .to_bytes()
            .len(),
        0
    );
}

#[tokio::test]
async fn many_requests_share_an_h2_connection() {
    let engine = TestEngine::start().await;
    let upstream = Upstream::http1().await;
    let tunnel = engine.publish(upstream.addr()).await;
    let host = tunnel.hostname();
    let visitor = engine.visitor().h2(host).await;
    let requests = (0..40).map(|number| {
        let mut visitor = visitor.clone();
        async move { visitor.get(&format!("/{number}"), host).await.json()["target"].clone() }
    });
    let targets = futures_util::future::join_all(requests).await;
    let expected: Vec<_> = (0..40).map(|number| format!("/{number}")).collect();
    assert_eq!(targets, expected);
}

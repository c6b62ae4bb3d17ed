//! Routing of requests, and the errors if there is no route.

use testing::{ClosedPort, H2Visitor, RawVisitor, TestEngine, Upstream, within};

async fn refused(engine: &TestEngine, host: &str, bytes: impl AsRef<[u8]>) -> (u16, String) {
    let mut visitor = engine.visitor().http1(host).await;
    visitor.send(bytes).await;
    let answer = visitor.answer().await;
    assert_eq!(
        answer.header("content-type"),
        Some("application/problem+json")
    );
    assert_eq!(visitor.read_to_end().await, b"", "it closes");
    (
        answer.status,
        answer.json()["code"].as_str().unwrap().to_owned(),
    )
}

#[tokio::test]
async fn an_ambiguous_head_never_reaches_the_service() {
    let engine = TestEngine::start().await;
    let upstream = Upstream::http1().await;
    let tunnel = engine.publish(upstream.addr()).await;
    let host = tunnel.hostname();
    for head in [
        format!("GET / HTTP/1.1\nHost: {host}\n\n"),
        format!("GET / HTTP/1.1\r\nHost: {host}\r\nHost: {host}\r\n\r\n"),
        "GET / HTTP/1.1\r\n\r\n".to_owned(),
        format!("GET /#a HTTP/1.1\r\nHost: {host}\r\n\r\n"),
        format!("GET / a HTTP/1.1\r\nHost: {host}\r\n\r\n"),
        format!("GET https://other.example/ HTTP/1.1\r\nHost: {host}\r\n\r\n"),
        format!(
            "POST / HTTP/1.1\r\nHost: {host}\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\na"
        ),
        format!("POST / HTTP/1.1\r\nHost: {host}\r\nContent-Length: +1\r\n\r\na"),
        format!(
            "POST / HTTP/1.1\r\nHost: {host}\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n\
             0\r\n\r\n"
        ),
        format!("POST / HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: xchunked\r\n\r\n"),
        format!("POST / HTTP/1.0\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        format!("GET / HTTP/1.1\r\nHost: {host}\r\nX: a\r\n b\r\n\r\n"),
        format!("GET / HTTP/1.1\r\nHost: {host}\r\nX: a\0b\r\n\r\n"),
        format!("GET / HTTP/1.1\r\nHost: {host}\r\nX : a\r\n\r\n"),
    ] {
        let answer = refused(&engine, host, &head).await;
        assert_eq!(answer, (400, "invalid_request".to_owned()), "{head:?}");
    }
    for (head, status) in [
        (
            format!("CONNECT {host}:443 HTTP/1.1\r\nHost: {host}\r\n\r\n"),
            501,
        ),
        (format!("GET / HTTP/1.2\r\nHost: {host}\r\n\r\n"), 505),
        (
            format!(
                "GET /{} HTTP/1.1\r\nHost: {host}\r\n\r\n",
                "a".repeat(9_000)
            ),
            414,
        ),
        (
            format!(
                "GET / HTTP/1.1\r\nHost: {host}\r\nX: {}\r\n\r\n",
                "a".repeat(40_000)
            ),
            431,
        ),
    ] {
        assert_eq!(refused(&engine, host, &head).await.0, status);
    }
    assert_eq!(upstream.accepted(), 0);
}

#[tokio::test]
async fn a_malformed_chunk_of_a_request_closes_the_connection() {
    let engine = TestEngine::start().await;
    let upstream = Upstream::http1().await;
    let tunnel = engine.publish(upstream.addr()).await;
    let host = tunnel.hostname();
    let mut visitor = engine.visitor().http1(host).await;
    visitor
        .request("POST", "/", host, "Transfer-Encoding: chunked\r\n")
        .await;
    visitor
        .send("3 x=y\r\nabc\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\n\r\n")
        .await;
    let said = visitor.read_to_end().await;
    let said = String::from_utf8_lossy(&said);
    assert!(said.starts_with("HTTP/1.1 400"), "{said}");
    assert_eq!(said.matches("HTTP/1.1").count(), 1, "{said}");
}

#[tokio::test]
async fn the_host_of_another_tunnel_is_misdirected() {
    let engine = TestEngine::start().await;
    let upstream = Upstream::http1().await;
    let (first, second) = (
        engine.publish(upstream.addr()).await,
        engine.publish(upstream.addr()).await,
    );
    let mut visitor = engine.visitor().http1(first.hostname()).await;
    assert_eq!(visitor.get("/", first.hostname()).await.status, 200);
    let answer = visitor.get("/", second.hostname()).await;
    assert_eq!(
        (answer.status, answer.json()["code"].as_str()),
        (421, Some("misdirected_request"))
    );

    let mut visitor = engine.visitor().h2(first.hostname()).await;
    assert_eq!(visitor.get("/", first.hostname()).await.status, 200);
    assert_eq!(visitor.get("/", second.hostname()).await.status, 421);
    // The connection remains usable for its own host.
    assert_eq!(visitor.get("/", first.hostname()).await.status, 200);
}

#[tokio::test]
async fn host_names_are_compared_without_case_and_port() {
    let engine = TestEngine::start().await;
    let upstream = Upstream::http1().await;
    let tunnel = engine.publish(upstream.addr()).await;
    let host = tunnel.hostname();
    for written in [
        host.to_uppercase(),
        format!("{host}:{}", engine.addr().port()),
        format!("{host}."),
    ] {
        let answer = engine.visitor().http1(host).await.get("/", &written).await;
        assert_eq!(answer.status, 200, "{written}");
    }
}

#[tokio::test]
async fn an_unknown_name_is_not_found() {
    let engine = TestEngine::start().await;
    let host = format!("nobody.t.{}", engine.host());
    let answer = engine.visitor().http1(&host).await.get("/", &host).await;
    assert_eq!(
        (answer.status, answer.json()["code"].as_str()),
        (404, Some("tunnel_not_found"))
    );
    let answer = engine.visitor().h2(&host).await.get("/", &host).await;
    assert_eq!(answer.status, 404);
}

/// Agents of a crashed engine need a moment to reconnect. A 404 would tell senders of webhooks that
/// the address no longer exists.
#[tokio::test]
async fn a_name_without_an_agent_is_unknown_only_after_the_startup_grace() {
    let engine = TestEngine::start_with("timeouts: {startup_grace_seconds: 3600}").await;
    let host = format!("nobody.t.{}", engine.host());
    let early = engine.visitor().h2(&host).await.get("/", &host).await;
    assert_eq!(
        (early.status, early.json()["code"].as_str()),
        (503, Some("tunnel_offline"))
    );
    assert_eq!(early.header("retry-after"), Some("1"));

    let engine = TestEngine::start_with("timeouts: {startup_grace_seconds: 1}").await;
    let mut visitor = engine.visitor().http1(&host).await;
    loop {
        let answer = visitor.get("/", &host).await;
        if answer.status == 404 {
            break;
        }
        assert_eq!(answer.status, 503);
    }
}

#[tokio::test]
async fn a_name_whose_agent_has_disconnected_is_offline() {
    let engine = TestEngine::start().await;
    let upstream = Upstream::http1().await;
    let tunnel = engine.publish(upstream.addr()).await;
    let host = tunnel.hostname().to_owned();
    let mut kept = engine.visitor().http1(&host).await;
    assert_eq!(kept.get("/", &host).await.status, 200);
    tunnel.close().await;
    for answer in [
        kept.get("/", &host).await,
        engine.visitor().http1(&host).await.get("/", &host).await,
        engine.visitor().h2(&host).await.get("/", &host).await,
    ] {
        assert_eq!(
            (answer.status, answer.json()["code"].as_str()),
            (503, Some("tunnel_offline"))
        );
        assert!(answer.header("retry-after").is_some());
    }
}

#[tokio::test]
async fn a_service_that_is_down_is_unreachable() {
    let engine = TestEngine::start().await;
    let nobody = ClosedPort::new();
    let tunnel = engine.publish(nobody.addr()).await;
    let host = tunnel.hostname();
    for answer in [
        engine.visitor().http1(host).await.get("/", host).await,
        engine.visitor().h2(host).await.get("/", host).await,
    ] {
        let code = answer.json()["code"].clone();
        assert_eq!(
            (answer.status, code.as_str()),
            (502, Some("upstream_unreachable"))
        );
    }
}

#[tokio::test]
async fn a_browser_gets_a_page_for_every_refusal() {
    let engine = TestEngine::start().await;
    let host = format!("nobody.t.{}", engine.host());
    let mut visitor = engine.visitor().http1(&host).await;
    visitor
        .request("GET", "/", &host, "Accept: text/html,*/*;q=0.8\r\n")
        .await;
    let answer = visitor.answer().await;
    assert_eq!(answer.status, 404);
    assert!(
        answer
            .header("content-type")
            .unwrap()
            .starts_with("text/html")
    );
}

/// The page is still a single document: its policy allows the image that it contains, and nothing else.
#[tokio::test]
async fn a_refusal_has_the_operator_and_its_contact() {
    let directory = tempfile::tempdir().unwrap();
    let logo = directory.path().join("logo.svg");
    std::fs::write(&logo, "<svg xmlns=\"http://www.w3.org/2000/svg\"/>").unwrap();
    let pages = format!(
        "pages: {{operator_name: 'Example Networks', abuse_contact: 'https://example.com/abuse', \
         logo_file: '{}'}}",
        logo.display()
    );
    let engine = TestEngine::start_with(&pages).await;
    let host = format!("nobody.t.{}", engine.host());
    let mut visitor = engine.visitor().http1(&host).await;
    visitor
        .request("GET", "/", &host, "Accept: text/html\r\n")
        .await;
    let answer = visitor.answer().await;
    assert_eq!(answer.status, 404);
    let html = String::from_utf8(answer.body.clone()).unwrap();
    for part in [
        "Example Networks",
        "href=\"https://example.com/abuse\"",
        "src=\"data:image/svg+xml;base64,",
    ] {
        assert!(html.contains(part), "{part}: {html}");
    }
    let policy = answer.header("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'none'; ") && policy.ends_with("; img-src data:"));
}

/// EN-1a: on the host of a published tunnel the service handles `/api/*`, and never the engine.
#[tokio::test]
async fn the_service_handles_api_paths_of_a_tunnel() {
    let engine = TestEngine::start().await;
    let upstream = Upstream::http1().await;
    let tunnel = engine.publish(upstream.addr()).await;
    let host = tunnel.hostname();
    let mut visitor = engine.visitor().http1(host).await;
    for path in [
        "/api/clients",
        "/api/tunnels",
        "/api/sse",
        "/api/openapi.json",
        "/.well-known/x",
    ] {
        assert_eq!(visitor.get(path, host).await.json()["target"], path);
    }
    let mut visitor = engine.visitor().h2(host).await;
    assert_eq!(
        visitor.get("/api/clients", host).await.json()["target"],
        "/api/clients"
    );
}

#[tokio::test]
async fn a_tls_service_is_reached_with_the_protocol_it_chooses() {
    let engine = TestEngine::start().await;
    for (alpns, version) in [
        (["h2", "http/1.1"].as_slice(), "HTTP/2.0"),
        (&["http/1.1"], "HTTP/1.1"),
    ] {
        let upstream = Upstream::tls(engine.ca(), alpns).await;
        let tunnel = engine.publish_tls(upstream.addr()).await;
        let host = tunnel.hostname();
        let answer = engine.visitor().http1(host).await.get("/", host).await;
        assert_eq!(
            (answer.status, answer.json()["version"].as_str()),
            (200, Some(version))
        );
    }
}

#[tokio::test]
async fn an_h2c_service_is_reached() {
    let engine = TestEngine::start().await;
    let upstream = Upstream::h2c().await;
    let tunnel = engine.publish_h2c(upstream.addr()).await;
    let host = tunnel.hostname();
    let mut over_http1: RawVisitor = engine.visitor().http1(host).await;
    let answer = over_http1.get("/", host).await;
    assert_eq!(answer.json()["version"], "HTTP/2.0");
    over_http1
        .request("POST", "/mirror", host, "Transfer-Encoding: chunked\r\n")
        .await;
    over_http1.send("3\r\nabc\r\n0\r\n\r\n").await;
    assert_eq!(over_http1.answer().await.body, b"abc");
    let answer = over_http1.get("/bytes/300000", host).await;
    assert!(answer.is_complete && answer.body == Upstream::payload(300_000));

    let mut over_h2 = engine.visitor().h2(host).await;
    let answer = over_h2.get("/bytes/300000", host).await;
    assert!(answer.is_complete && answer.body == Upstream::payload(300_000));
    assert_eq!(
        answer.trailers,
        [("x-trailer".to_owned(), "end".to_owned())]
    );
    let request = hyper::Request::post(format!("https://{host}/mirror"))
        .body(H2Visitor::full(Upstream::payload(300_000)))
        .unwrap();
    let answer = H2Visitor::collect(over_h2.send(request).await.unwrap()).await;
    assert!(answer.is_complete && answer.body == Upstream::payload(300_000));
}

/// EN-1a: the Engine API answers to one name only, sent once.
#[tokio::test]
async fn en_1a_the_engines_own_host_is_named_once() {
    let engine = TestEngine::start().await;
    let host = engine.host();
    for (head, status) in [
        (format!("Host: {host}"), 404),
        (format!("Host: {}:1", host.to_uppercase()), 404),
        ("Host: web.t.engine.localhost".to_owned(), 421),
        (format!("Host: {host}\r\nHost: {host}"), 400),
        ("Host: a b".to_owned(), 400),
        ("X: y".to_owned(), 400),
    ] {
        let mut visitor = engine.visitor().http1(host).await;
        let request = format!("GET /api/nothing HTTP/1.1\r\n{head}\r\n\r\n");
        visitor.send(request).await;
        assert_eq!(visitor.answer().await.status, status, "{head}");
    }
    let mut visitor = engine.visitor().http1(host).await;
    let request = format!("GET https://{host}/ HTTP/1.1\r\nHost: other.example\r\n\r\n");
    visitor.send(request).await;
    assert_eq!(visitor.answer().await.status, 400);
}

/// The decision and the service see the encoded form.
#[tokio::test]
async fn other_bytes_of_a_target_are_percent_encoded() {
    let engine = TestEngine::start().await;
    let upstream = Upstream::http1().await;
    let tunnel = engine.publish(upstream.addr()).await;
    let host = tunnel.hostname();
    let head = |target: &[u8]| {
        let rest = format!(" HTTP/1.1\r\nHost: {host}\r\n\r\n");
        [b"GET ", target, rest.as_bytes()].concat()
    };
    let mut visitor = engine.visitor().http1(host).await;
    for (target, expected) in [
        (&b"/caf\xc3\xa9?q=\xc3\xbc"[..], "/caf%C3%A9?q=%C3%BC"),
        (b"/latin-\xe9?\xff", "/latin-%E9?%FF"),
    ] {
        // In two pieces, the first of which ends within the target.
        let head = head(target);
        let (first, second) = head.split_at(target.len());
        visitor.send(first).await;
        visitor.send(second).await;
        let answer = within("answer", visitor.answer()).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(answer.json()["target"], expected);
    }
    let mut h2 = engine.visitor().h2(host).await;
    let answer = h2.get("/caf\u{e9}?q=\u{fc}", host).await;
    assert_eq!(answer.json()["target"], "/caf%C3%A9?q=%C3%BC");
    // Only the target is encoded.
    for line in [&b"G\xc3\xa9T / HTTP/1.1"[..], b"GET / HTTP/1.\xc3\xa9"] {
        let mut visitor = engine.visitor().http1(host).await;
        let rest = format!("\r\nHost: {host}\r\n\r\n");
        visitor.send([line, rest.as_bytes()].concat()).await;
        assert_eq!(within("answer", visitor.answer()).await.status, 400);
    }
}

//! Interim answers and protocol switches.

use testing::{Gate, Report, ScriptedUpstream, Step, TestEngine, TestTunnel, Upstream};

/// A published service that follows a script with a gate.
pub(super) struct GatedService {
    pub(super) engine: TestEngine,
    pub(super) tunnel: TestTunnel,
    pub(super) gate: Gate,
    pub(super) upstream: ScriptedUpstream,
}

impl GatedService {
    /// Starts the engine and the service. Each connection to the service follows `script`.
    pub(super) async fn start(script: impl Fn(&Gate) -> Vec<Step> + Send + 'static) -> Self {
        let engine = TestEngine::start().await;
        let gate = Gate::new();
        let held = gate.clone();
        let upstream = ScriptedUpstream::start(move |_| script(&held)).await;
        let tunnel = engine.publish(upstream.addr()).await;
        Self {
            engine,
            tunnel,
            gate,
            upstream,
        }
    }
}

#[tokio::test]
async fn a_service_can_request_a_body_that_waits_for_continue() {
    let engine = TestEngine::start().await;
    let upstream = ScriptedUpstream::start(|_| {
        vec![
            Step::ReadHead,
            Step::write("HTTP/1.1 100 Continue\r\n\r\n"),
            Step::ReadBytes(4),
            Step::write("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"),
        ]
    })
    .await;
    let tunnel = engine.publish(upstream.addr()).await;
    let host = tunnel.hostname();
    let mut visitor = engine.visitor().http1(host).await;
    visitor
        .request(
            "PUT",
            "/",
            host,
            "Content-Length: 4\r\nExpect: 100-continue\r\n",
        )
        .await;
    assert_eq!(visitor.head().await.status, 100);
    visitor.send("body").await;
    let answer = visitor.answer().await;
    assert_eq!((answer.status, answer.text()), (200, "ok"));
    upstream.head().await;
    assert_eq!(upstream.report().await, Report::Bytes(b"body".to_vec()));
}

#[tokio::test]
async fn a_service_can_refuse_a_body_that_waits_for_continue() {
    let engine = TestEngine::start().await;
    let upstream = ScriptedUpstream::start(|_| {
        vec![
            Step::ReadHead,
            Step::write("HTTP/1.1 401 Unauthorized\r\ncontent-length: 2\r\n\r\nno"),
            Step::ReadToEnd,
        ]
    })
    .await;
    let tunnel = engine.publish(upstream.addr()).await;
    let host = tunnel.hostname();
    let mut visitor = engine.visitor().http1(host).await;
    visitor
        .request(
            "PUT",
            "/",
            host,
            "Content-Length: 4\r\nExpect: 100-continue\r\n",
        )
        .await;
    // No 100 comes before it, so the visitor does not send its body.
    let head = visitor.head().await;
    assert_eq!(head.status, 401);
    assert_eq!(visitor.body(head).await.text(), "no");
    upstream.head().await;
}

/// An HTTP/2 service need not send a 100, so the edge does.
#[tokio::test]
async fn the_edge_requests_a_body_for_an_http_2_service_that_waits_for_continue() {
    let engine = TestEngine::start().await;
    let service = Upstream::h2c().await;
    let tunnel = engine.publish_h2c(service.addr()).await;
    let host = tunnel.hostname();
    let mut visitor = engine.visitor().http1(host).await;
    let fields = "Content-Length: 4\r\nExpect: 100-continue\r\n";
    visitor.request("PUT", "/", host, fields).await;
    assert_eq!(visitor.head().await.status, 100);
    visitor.send("body").await;
    let answer = visitor.answer().await;
    assert_eq!(
        (answer.status, &answer.json()["body"]),
        (200, &"body".into())
    );

    // No 100 is sent if the body has already arrived, or to an HTTP/1.0 client (RFC 9110, 10.1.1).
    for version in ["1.1", "1.0"] {
        let head = format!("PUT / HTTP/{version}\r\nHost: {host}\r\n{fields}\r\n");
        let mut visitor = engine.visitor().http1(host).await;
        if version == "1.1" {
            visitor.send(head + "body").await;
        } else {
            visitor.send(head).await;
            visitor.send("body").await;
        }
        let head = visitor.head().await;
        assert_eq!(head.status, 200, "{version}");
        assert_eq!(visitor.body(head).await.json()["body"], "body");
    }
}

#[tokio::test]
async fn early_hints_do_not_end_the_answer() {
    let service = GatedService::start(|gate| {
        vec![
            Step::ReadHead,
            Step::write("HTTP/1.1 103 Early Hints\r\nlink: </a>; rel=preload\r\n\r\n"),
            Step::Wait(gate.clone()),
            Step::write("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"),
        ]
    })
    .await;
    let (engine, host) = (&service.engine, service.tunnel.hostname());
    service.gate.open();
    let answer = engine.visitor().http1(host).await.get("/", host).await;
    assert_eq!((answer.status, answer.text()), (200, "ok"));
    service.gate.open();
    let answer = engine.visitor().h2(host).await.get("/", host).await;
    assert_eq!((answer.status, answer.text()), (200, "ok"));
}

#[tokio::test]
async fn any_protocol_can_be_upgraded_to() {
    let engine = TestEngine::start().await;
    let upstream = ScriptedUpstream::start(|_| {
        vec![
            Step::ReadHead,
            Step::write("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: chat\r\n\r\nhello"),
            Step::ReadBytes(3),
            Step::write("bye"),
        ]
    })
    .await;
    let tunnel = engine.publish(upstream.addr()).await;
    let host = tunnel.hostname();
    let mut visitor = engine.visitor().http1(host).await;
    visitor
        .request("GET", "/", host, "Connection: upgrade\r\nUpgrade: chat\r\n")
        .await;
    let head = visitor.head().await;
    assert_eq!((head.status, head.header("upgrade")), (101, Some("chat")));
    let request = upstream.head().await.to_ascii_lowercase();
    assert!(request.contains("upgrade: chat\r\n"), "{request}");
    assert_eq!(visitor.read_exact(5).await.unwrap(), b"hello");
    visitor.send("\0\u{1}\n").await;
    assert_eq!(upstream.report().await, Report::Bytes(b"\0\x01\n".to_vec()));
    assert_eq!(visitor.read_to_end().await, b"bye");
}

#[tokio::test]
async fn an_unsolicited_upgrade_is_a_502() {
    let engine = TestEngine::start().await;
    let upstream = ScriptedUpstream::answering(
        "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: chat\r\n\r\nhello",
    )
    .await;
    let tunnel = engine.publish(upstream.addr()).await;
    let host = tunnel.hostname();
    assert_eq!(
        engine
            .visitor()
            .http1(host)
            .await
            .get("/", host)
            .await
            .status,
        502
    );
    assert_eq!(
        engine.visitor().h2(host).await.get("/", host).await.status,
        502
    );
}

/// Interim answers are forwarded first. Bytes of the new protocol are delivered in both directions,
/// however early they arrive.
#[tokio::test]
async fn a_switch_after_interim_answers_loses_no_bytes() {
    let engine = TestEngine::start().await;
    let upstream = ScriptedUpstream::start(|_| {
        vec![
            Step::ReadHead,
            Step::write(
                "HTTP/1.1 100 Continue\r\n\r\n\
                 HTTP/1.1 103 Early Hints\r\nlink: </a>; rel=preload\r\n\r\n\
                 HTTP/1.1 101 Switching Protocols\r\nupgrade: echo\r\nconnection: upgrade\r\n\r\n\
                 from the service",
            ),
            Step::ReadBytes(16),
            Step::write(", and more"),
        ]
    })
    .await;
    let tunnel = engine.publish(upstream.addr()).await;
    let host = tunnel.hostname();
    let mut visitor = engine.visitor().http1(host).await;
    let head =
        format!("GET / HTTP/1.1\r\nHost: {host}\r\nUpgrade: echo\r\nConnection: upgrade\r\n");
    // The first bytes of the new protocol are sent before the answer.
    visitor.send(head + "\r\nfrom the ").await;
    let mut interim = Vec::new();
    let switched = loop {
        let head = visitor.head().await;
        match head.status {
            100 | 103 => interim.push(head.status),
            _ => break head,
        }
    };
    assert_eq!(switched.status, 101);
    assert!(interim.contains(&103), "{interim:?}");
    assert_eq!(visitor.read_exact(16).await.unwrap(), b"from the service");
    visitor.send("visitor").await;
    assert_eq!(visitor.read_exact(10).await.unwrap(), b", and more");
    upstream.head().await;
    let report = upstream.report().await;
    assert_eq!(report, Report::Bytes(b"from the visitor".to_vec()));
}

/// A service that switches protocols while the visitor still sends its body has not read the whole
/// request. It would be unclear which bytes belong to which protocol.
#[tokio::test]
async fn a_switch_within_a_request_is_refused() {
    let engine = TestEngine::start().await;
    let upstream = ScriptedUpstream::start(|_| {
        vec![
            Step::ReadHead,
            Step::write(
                "HTTP/1.1 101 Switching Protocols\r\nupgrade: echo\r\nconnection: upgrade\r\n\r\n",
            ),
            Step::ReadToEnd,
        ]
    })
    .await;
    let tunnel = engine.publish(upstream.addr()).await;
    let host = tunnel.hostname();
    let mut visitor = engine.visitor().http1(host).await;
    let fields = "Upgrade: echo\r\nConnection: upgrade\r\nContent-Length: 8\r\n";
    visitor.request("POST", "/", host, fields).await;
    visitor.send("half").await;
    let head = visitor.head().await;
    assert!(head.status >= 400, "{head:?}");
}

//! Fields that are forwarded, fields that the edge removes, and fields that it adds.

use http_body_util::BodyExt as _;
use serde_json::Value;
use testing::{H2Visitor, ReceivedResponse, ScriptedUpstream, TestEngine, TestTunnel, Upstream};

/// The values that the service received under a name.
fn received_values<'v>(answer: &'v Value, name: &str) -> Vec<&'v str> {
    let pairs = answer["headers"].as_array().unwrap().iter();
    let pairs = pairs.filter(|pair| pair[0] == name);
    pairs.map(|pair| pair[1].as_str().unwrap()).collect()
}

/// A published service that returns the requests that it receives, with HTTP/2 or HTTP/1.1.
async fn publish_service(engine: &TestEngine, h2c: bool) -> (Upstream, TestTunnel) {
    if h2c {
        let upstream = Upstream::h2c().await;
        let tunnel = engine.publish_h2c(upstream.addr()).await;
        return (upstream, tunnel);
    }
    let upstream = Upstream::http1().await;
    let tunnel = engine.publish(upstream.addr()).await;
    (upstream, tunnel)
}

const SPOOFED: [(&str, &str); 13] = [
    ("X-Forwarded-For", "8.8.8.8"),
    ("x-forwarded-for", "9.9.9.9, 8.8.8.8"),
    ("X_Forwarded_For", "8.8.8.8"),
    ("X-Forwarded-Proto", "http"),
    ("X-Forwarded-Host", "evil.example"),
    ("Forwarded", "for=8.8.8.8;host=evil.example"),
    ("X-Real-IP", "8.8.8.8"),
    ("svc-user-id", "admin"),
    ("SVC-Credential-Id", "crd_1"),
    ("svc_auth_method", "mtls"),
    ("svc-anything", "1"),
    ("X-Svc-Anything", "1"),
    ("x_svc_anything", "1"),
];

fn assert_rebuilt(seen_by_service: &Value, host: &str) {
    for name in [
        "x-real-ip",
        "svc-user-id",
        "svc-credential-id",
        "svc_auth_method",
    ] {
        assert_eq!(
            received_values(seen_by_service, name),
            Vec::<&str>::new(),
            "{name}"
        );
    }
    for name in [
        "svc-anything",
        "x-svc-anything",
        "x_svc_anything",
        "x_forwarded_for",
    ] {
        assert_eq!(
            received_values(seen_by_service, name),
            Vec::<&str>::new(),
            "{name}"
        );
    }
    assert_eq!(
        received_values(seen_by_service, "x-forwarded-for"),
        ["127.0.0.1"]
    );
    assert_eq!(
        received_values(seen_by_service, "x-forwarded-proto"),
        ["https"]
    );
    let forwarded_host = received_values(seen_by_service, "x-forwarded-host");
    assert!(
        forwarded_host.len() == 1 && forwarded_host[0].starts_with(host),
        "{forwarded_host:?}"
    );
    let forwarded = received_values(seen_by_service, "forwarded");
    assert_eq!(forwarded.len(), 1);
    let parts: Vec<_> = forwarded[0].split(';').collect();
    assert!(
        parts.contains(&"for=127.0.0.1") && parts.contains(&"proto=https"),
        "{forwarded:?}"
    );
    assert!(!forwarded[0].contains("evil"), "{forwarded:?}");
}

/// RFC 8586: the entries of earlier nodes are kept, and the engine appends its own.
#[tokio::test]
async fn hops_of_a_request_are_listed_and_counted() {
    let engine = TestEngine::start().await;
    let upstream = Upstream::http1().await;
    let tunnel = engine.publish(upstream.addr()).await;
    let host = tunnel.hostname();
    let mut visitor = engine.visitor().http1(host).await;
    visitor
        .request("GET", "/", host, "CDN-Loop: other.example\r\n")
        .await;
    let answer = visitor.answer().await.json();
    let hops = received_values(&answer, "cdn-loop");
    let [other, own] = hops[..] else {
        panic!("{hops:?}")
    };
    assert_eq!(other, "other.example");

    for (times, status) in [(7, 200), (8, 508), (100, 508)] {
        let before = format!("CDN-Loop: {}\r\n", vec![own; times].join(", "));
        visitor.request("GET", "/", host, &before).await;
        let answer = visitor.answer().await;
        assert_eq!(answer.status, status, "{times}");
        if status == 508 {
            assert_eq!(answer.json()["code"], "loop_detected");
        }
    }
}

#[tokio::test]
async fn forwarding_fields_are_rebuilt_and_not_taken_from_the_visitor() {
    let engine = TestEngine::start().await;
    let upstream = Upstream::http1().await;
    let tunnel = engine.publish(upstream.addr()).await;
    let host = tunnel.hostname();
    let lines = SPOOFED.map(|(name, value)| format!("{name}: {value}\r\n"));
    let fields = lines.concat();
    let mut visitor = engine.visitor().http1(host).await;
    visitor.request("GET", "/", host, &fields).await;
    assert_rebuilt(&visitor.answer().await.json(), host);

    let mut request = hyper::Request::get(format!("https://{host}/"));
    for (name, value) in SPOOFED {
        request = request.header(name, value);
    }
    let mut visitor = engine.visitor().h2(host).await;
    let response = visitor
        .send(request.body(H2Visitor::empty()).unwrap())
        .await
        .unwrap();
    assert_rebuilt(&H2Visitor::collect(response).await.json(), host);
}

#[tokio::test]
async fn connection_fields_of_the_visitor_are_not_forwarded() {
    let engine = TestEngine::start().await;
    let upstream = Upstream::http1().await;
    let tunnel = engine.publish(upstream.addr()).await;
    let host = tunnel.hostname();
    let mut visitor = engine.visitor().http1(host).await;
    let fields = "Connection: keep-alive, X-Hop, cookie\r\nX-Hop: 1\r\nx-hop: 2\r\nCookie: a=b\r\n\
        Keep-Alive: timeout=5\r\nTE: trailers, deflate\r\nTrailer: X-Sum\r\n\
        Proxy-Connection: keep-alive\r\nProxy-Authorization: Basic eA==\r\nUpgrade: h2c\r\n\
        X-Stay: one\r\nX-Stay: two\r\nAccept: */*\r\n";
    visitor.request("GET", "/", host, fields).await;
    let answer = visitor.answer().await.json();
    for name in [
        "x-hop",
        "cookie",
        "keep-alive",
        "te",
        "trailer",
        "proxy-connection",
        "proxy-authorization",
        "upgrade",
    ] {
        assert_eq!(received_values(&answer, name), Vec::<&str>::new(), "{name}");
    }
    assert_eq!(received_values(&answer, "x-stay"), ["one", "two"]);
    assert_eq!(received_values(&answer, "accept"), ["*/*"]);
    assert_eq!(received_values(&answer, "host").len(), 1);
}

#[tokio::test]
async fn connection_fields_of_the_service_are_not_forwarded() {
    let engine = TestEngine::start().await;
    let upstream = ScriptedUpstream::answering(
        "HTTP/1.1 200 Fine\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\n\
         Proxy-Authenticate: Basic\r\nSet-Cookie: a=b\r\nSet-Cookie: c=d\r\nX-Stay: one\r\n\
         Content-Length: 2\r\n\r\nok",
    )
    .await;
    let tunnel = engine.publish(upstream.addr()).await;
    let host = tunnel.hostname();
    let mut http1 = engine.visitor().http1(host).await;
    let mut h2 = engine.visitor().h2(host).await;
    let answers: [ReceivedResponse; 2] = [http1.get("/", host).await, h2.get("/", host).await];
    for answer in answers {
        assert_eq!((answer.status, answer.text()), (200, "ok"));
        for name in ["x-hop", "keep-alive", "proxy-authenticate"] {
            assert_eq!(answer.header(name), None, "{name}");
        }
        assert_ne!(answer.header("connection"), Some("close, X-Hop"));
        let cookies = answer
            .headers
            .iter()
            .filter(|(name, _)| name == "set-cookie")
            .count();
        assert_eq!((cookies, answer.header("x-stay")), (2, Some("one")));
    }
    // The service closed its connection. The visitor's connection stays open.
    assert_eq!(http1.get("/", host).await.status, 200);
}

#[tokio::test]
async fn cookies_of_an_h2_visitor_reach_an_http1_service_in_one_field() {
    let engine = TestEngine::start().await;
    let upstream = Upstream::http1().await;
    let tunnel = engine.publish(upstream.addr()).await;
    let host = tunnel.hostname();
    let request = hyper::Request::get(format!("https://{host}/"))
        .header("cookie", "a=b")
        .header("cookie", "c=d")
        .body(H2Visitor::empty())
        .unwrap();
    let response = engine.visitor().h2(host).await.send(request).await.unwrap();
    let answer = H2Visitor::collect(response).await.json();
    // RFC 9113 section 8.2.3.
    assert_eq!(received_values(&answer, "cookie"), ["a=b; c=d"]);
    assert_eq!(received_values(&answer, "host").len(), 1);
}

#[tokio::test]
async fn trailers_are_forwarded_and_forbidden_ones_are_not() {
    let engine = TestEngine::start().await;
    let upstream = ScriptedUpstream::answering(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 1\r\n\
         Content-Length: 7\r\nSet-Cookie: a=b\r\n\r\n",
    )
    .await;
    let tunnel = engine.publish(upstream.addr()).await;
    let host = tunnel.hostname();
    let trailers = [("x-sum".to_owned(), "1".to_owned())];
    let answer = engine.visitor().http1(host).await.get("/", host).await;
    assert!(answer.is_complete && answer.text() == "ok");
    assert_eq!(answer.trailers, trailers);
    let answer = engine.visitor().h2(host).await.get("/", host).await;
    assert!(answer.is_complete && answer.text() == "ok");
    assert_eq!(answer.trailers, trailers);

    let upstream = Upstream::http1().await;
    let tunnel = engine.publish(upstream.addr()).await;
    let host = tunnel.hostname();
    let mut visitor = engine.visitor().http1(host).await;
    visitor
        .request("POST", "/", host, "Transfer-Encoding: chunked\r\n")
        .await;
    visitor
        .send("2\r\nok\r\n0\r\nX-Sum: 1\r\nHost: evil\r\nsvc-user-id: admin\r\n\r\n")
        .await;
    let answer = visitor.answer().await.json();
    assert_eq!(answer["body"], "ok");
    assert_eq!(answer["trailers"], serde_json::json!([["x-sum", "1"]]));
}

/// For all combinations of HTTP versions.
#[tokio::test]
async fn reserved_trailers_of_a_request_are_not_forwarded() {
    const GOOD: &str = "x-sum";
    const RESERVED: [&str; 8] = [
        "svc-user-id",
        "svc_user_id",
        "x-forwarded-for",
        "forwarded",
        "x-real-ip",
        "cookie",
        "authorization",
        "content-length",
    ];
    let engine = TestEngine::start().await;
    for h2c in [false, true] {
        let (_upstream, tunnel) = publish_service(&engine, h2c).await;
        let host = tunnel.hostname();
        let lines: String = RESERVED.map(|name| format!("{name}: 1\r\n")).concat();
        let mut visitor = engine.visitor().http1(host).await;
        let fields = "Transfer-Encoding: chunked\r\n";
        visitor.request("POST", "/", host, fields).await;
        visitor
            .send(format!("2\r\nok\r\n0\r\n{GOOD}: 1\r\n{lines}\r\n"))
            .await;
        let by_http1 = visitor.answer().await.json();

        let mut trailers = hyper::HeaderMap::new();
        for name in RESERVED.into_iter().chain([GOOD]) {
            trailers.insert(name, "1".parse().unwrap());
        }
        let body = H2Visitor::full("ok").with_trailers(async { Some(Ok(trailers)) });
        let request = hyper::Request::post(format!("https://{host}/"))
            .body(body.boxed_unsync())
            .unwrap();
        let response = engine.visitor().h2(host).await.send(request).await.unwrap();
        let by_h2 = H2Visitor::collect(response).await.json();
        for seen in [by_http1, by_h2] {
            assert_eq!(seen["body"], "ok");
            let names = seen["trailers"].as_array().map_or(&[][..], Vec::as_slice);
            assert!(names.iter().all(|pair| pair[0] == GOOD), "{h2c} {names:?}");
        }
    }
}

/// W3C Trace Context, in all combinations of HTTP versions. An invalid `traceparent` passes too:
/// the service decides what to do with it.
#[tokio::test]
async fn the_trace_context_passes_unchanged_and_is_logged_if_it_is_valid() {
    const ID: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    let valid = format!("00-{ID}-00f067aa0ba902b7-01");
    let values = [
        ("/valid", valid.clone()),
        ("/invalid", valid.replacen("00", "ff", 1)),
    ];
    let states = ["congo=t61rcWkgMzE,rojo=00f067aa0ba902b7", "other=1"];
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("access.log");
    let engine = TestEngine::start_with(&format!("access_log: {{path: {log:?}}}\n")).await;
    for h2c in [false, true] {
        let (_upstream, tunnel) = publish_service(&engine, h2c).await;
        let host = tunnel.hostname();
        for (path, parent) in &values {
            let lines = states
                .map(|state| format!("TraceState: {state}\r\n"))
                .concat();
            let fields = format!("Traceparent: {parent}\r\n{lines}");
            let mut visitor = engine.visitor().http1(host).await;
            visitor.request("GET", path, host, &fields).await;
            let by_http1 = visitor.answer().await.json();

            let mut request = hyper::Request::get(format!("https://{host}{path}"));
            request = request.header("traceparent", parent);
            for state in states {
                request = request.header("tracestate", state);
            }
            let request = request.body(H2Visitor::empty()).unwrap();
            let response = engine.visitor().h2(host).await.send(request).await.unwrap();
            let by_h2 = H2Visitor::collect(response).await.json();
            for seen in [by_http1, by_h2] {
                assert_eq!(received_values(&seen, "traceparent"), [parent], "{h2c}");
                assert_eq!(received_values(&seen, "tracestate"), states, "{h2c}");
            }
        }
    }
    engine.stop().await;
    let text = std::fs::read_to_string(log).unwrap();
    let records = text.lines().map(serde_json::from_str::<Value>);
    let records: Vec<_> = records.map(Result::unwrap).collect();
    assert_eq!(records.len(), 8, "{text}");
    // Each connection ends on its own, so the order is not defined.
    for (path, id) in [("/valid", Value::from(ID)), ("/invalid", Value::Null)] {
        let logged = records.iter().filter(|record| record["path"] == path);
        let ids: Vec<_> = logged.map(|record| record["trace_id"].clone()).collect();
        // Two requests for each version of the service's HTTP.
        assert_eq!(ids, vec![id; 4], "{text}");
    }
}

//! Services that reset their connection after a response, or within it.

use std::sync::Arc;

use client::Properties;
use client::properties::HttpVersion;
use http::{Request, Response};
use testing::{H2Visitor, ScriptedUpstream, Step, Stream, TestEngine, Upstream};
use tokio::sync::{Notify, mpsc};
use tokio_rustls::TlsAcceptor;

use super::idle::{end_of_stream, observed};

/// A service that responds to a request, and then resets its connection.
async fn resetting_service(response: &'static str) -> ScriptedUpstream {
    ScriptedUpstream::start(move |_| vec![Step::ReadHead, Step::write(response), Step::Reset]).await
}

/// Servers reset connections when they stop, when unread bytes remain, or to save memory.
#[tokio::test]
async fn a_reset_after_a_complete_response_is_not_reported_as_failed() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("access.log");
    let section = format!("access_log: {{path: '{}'}}", log.display());
    let engine = TestEngine::start_with(&section).await;
    let responses = [
        (
            "GET",
            "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\ncomplete",
        ),
        (
            "GET",
            "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 8\r\n\r\ncomplete",
        ),
        (
            "GET",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n8\r\ncomplete\r\n0\r\n\r\n",
        ),
        ("GET", "HTTP/1.1 204 No Content\r\n\r\n"),
        ("GET", "HTTP/1.1 304 Not Modified\r\n\r\n"),
        ("HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n"),
    ];
    for (method, response) in responses {
        let service = resetting_service(response).await;
        let (host, mut streams, _agent) =
            observed(&engine, service.addr(), Properties::http()).await;
        let status: u16 = response[9..12].parse().unwrap();
        let mut http1 = engine.visitor().http1(&host).await;
        let request = format!("{method} / HTTP/1.1\r\nHost: {host}\r\n\r\n");
        http1.send(&request).await;
        let head = http1.head().await;
        assert_eq!(head.status, status, "{response:?}");
        assert_eq!(end_of_stream(&mut streams).await, None, "{response:?}");
        let request = Request::builder()
            .method(method)
            .uri(format!("https://{host}/"))
            .body(H2Visitor::full(""))
            .unwrap();
        let answer = engine
            .visitor()
            .h2(&host)
            .await
            .send(request)
            .await
            .unwrap();
        let answer = H2Visitor::collect(answer).await;
        assert_eq!(
            (answer.status, answer.is_complete),
            (status, true),
            "{response:?}"
        );
        assert_eq!(end_of_stream(&mut streams).await, None, "{response:?}");
    }
    engine.stop().await;
    let log = std::fs::read_to_string(log).unwrap();
    let outcomes = log.lines().map(|line| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        line["outcome"].as_str().unwrap().to_owned()
    });
    assert_eq!(outcomes.collect::<Vec<_>>(), ["served"; 12]);
}

/// Without a length, the response of a connection that breaks is not complete.
#[tokio::test]
async fn a_reset_within_a_response_is_reported_as_failed() {
    let engine = TestEngine::start().await;
    for response in [
        "",
        "HTTP/1.0 200 OK\r\n\r\npart",
        "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\npart",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart\r\n",
    ] {
        let service = resetting_service(response).await;
        let (host, mut streams, _agent) =
            observed(&engine, service.addr(), Properties::http()).await;
        let answer = engine.visitor().http1(&host).await.get("/", &host).await;
        let is_served = answer.status == 200 && answer.is_complete;
        assert!(!is_served, "{response:?}: {answer:?}");
        let error = end_of_stream(&mut streams).await;
        assert!(error.is_some(), "{response:?}");
    }
}

/// A service with HTTP/2 that runs `connection` for each of its connections. Without TLS if there is
/// no engine, whose authority issues the certificate. `resets`: it resets the connections that it
/// drops.
async fn http2_service<F, C>(engine: Option<&TestEngine>, resets: bool, connection: C) -> Upstream
where
    C: Fn(Box<dyn Stream>) -> F + Clone + Send + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let config = engine.map(|engine| engine.ca().server(&["localhost"], &["h2"]));
    Upstream::start(move |stream, _| {
        let (config, connection) = (config.clone(), connection.clone());
        async move {
            if resets {
                stream.set_zero_linger().unwrap();
            }
            match config.map(TlsAcceptor::from) {
                None => connection(Box::new(stream)).await,
                Some(acceptor) => {
                    if let Ok(session) = acceptor.accept(stream).await {
                        connection(Box::new(session)).await;
                    }
                }
            }
        }
    })
    .await
}

/// Properties of a tunnel whose service uses HTTP/2, with or without TLS.
fn http2_properties(is_tls: bool) -> Properties {
    if is_tls {
        Properties::http().upstream_tls(true)
    } else {
        Properties::http().http_version(HttpVersion::H2c)
    }
}

/// The engine detects whether a request was in progress on the connection.
#[tokio::test]
async fn a_reset_of_an_idle_http_2_service_is_not_reported_as_failed() {
    let engine = TestEngine::start().await;
    for (is_tls, is_complete) in [(true, true), (true, false), (false, true), (false, false)] {
        let end = Arc::new(Notify::new());
        let resets = Arc::clone(&end);
        let service = http2_service(is_tls.then_some(&engine), true, move |session| {
            let resets = Arc::clone(&resets);
            async move {
                let Ok(mut connection) = h2::server::handshake(session).await else {
                    return;
                };
                let Some(Ok((_, mut answer))) = connection.accept().await else {
                    return;
                };
                let _body = answer
                    .send_response(Response::new(()), is_complete)
                    .unwrap();
                tokio::select! {
                    _ = connection.accept() => {}
                    () = resets.notified() => {}
                }
            }
        })
        .await;
        let properties = http2_properties(is_tls);
        let (host, mut streams, _agent) = observed(&engine, service.addr(), properties).await;
        let mut visitor = engine.visitor().h2(&host).await;
        let request = Request::get(format!("https://{host}/"))
            .body(H2Visitor::full(""))
            .unwrap();
        let answer = visitor.send(request).await.unwrap();
        assert_eq!(answer.status(), 200);
        if is_complete {
            assert!(H2Visitor::collect(answer).await.is_complete);
            end.notify_one();
        } else {
            end.notify_one();
            assert!(!H2Visitor::collect(answer).await.is_complete);
        }
        let error = end_of_stream(&mut streams).await;
        assert_eq!(error.is_none(), is_complete, "TLS: {is_tls}, {error:?}");
    }
}

/// The end of a request that a service with HTTP/2 has received and does not answer.
#[derive(Clone, Copy, Debug)]
enum Http2End {
    /// The stream is reset, and the connection closes in order.
    StreamReset,
    ConnectionReset,
    /// The connection closes. In TLS, with the alert before it.
    ConnectionClose,
}

async fn end_requests(session: Box<dyn Stream>, end: Http2End) {
    let Ok(mut connection) = h2::server::handshake(session).await else {
        return;
    };
    while let Some(Ok((_, mut answer))) = connection.accept().await {
        match end {
            Http2End::StreamReset => {
                answer.send_reset(h2::Reason::INTERNAL_ERROR);
                connection.graceful_shutdown();
            }
            Http2End::ConnectionReset => return,
            Http2End::ConnectionClose => connection.abrupt_shutdown(h2::Reason::NO_ERROR),
        }
    }
}

/// The stream of the agent ends, with a failure if the service has reset its connection. After an
/// orderly close, frames that the engine sends meanwhile can look like a request that came too late.
async fn assert_owner_is_told(
    streams: &mut mpsc::UnboundedReceiver<client::Connection>,
    end: Http2End,
) {
    let error = end_of_stream(streams).await;
    if matches!(end, Http2End::ConnectionReset) {
        assert!(error.is_some(), "{end:?}");
    }
}

/// The visitor and the access log see the same, and so does the owner of a service that resets its
/// connection.
#[tokio::test]
async fn a_request_that_an_http_2_service_ends_is_reported_as_failed() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("access.log");
    let section = format!("access_log: {{path: '{}'}}", log.display());
    let engine = TestEngine::start_with(&section).await;
    for is_tls in [false, true] {
        for end in [
            Http2End::StreamReset,
            Http2End::ConnectionReset,
            Http2End::ConnectionClose,
        ] {
            let resets = matches!(end, Http2End::ConnectionReset);
            let service = http2_service(is_tls.then_some(&engine), resets, move |session| {
                end_requests(session, end)
            })
            .await;
            let properties = http2_properties(is_tls);
            let (host, mut streams, _agent) = observed(&engine, service.addr(), properties).await;
            let mut http1 = engine.visitor().http1(&host).await;
            let length = "Content-Length: 0\r\n";
            http1.request("POST", "/", &host, length).await;
            let over_http1 = http1.answer().await;
            let is_unreachable = is_unreachable_problem(over_http1.status, &over_http1.json());
            assert!(is_unreachable, "TLS: {is_tls}, {end:?}: {over_http1:?}");
            assert_owner_is_told(&mut streams, end).await;
            let request = Request::post(format!("https://{host}/"))
                .body(H2Visitor::full(""))
                .unwrap();
            let answer = engine.visitor().h2(&host).await.send(request).await;
            let over_http2 = H2Visitor::collect(answer.unwrap()).await;
            let is_unreachable = is_unreachable_problem(over_http2.status, &over_http2.json());
            assert!(is_unreachable, "TLS: {is_tls}, {end:?}: {over_http2:?}");
            assert_owner_is_told(&mut streams, end).await;
        }
    }
    engine.stop().await;
    let log = std::fs::read_to_string(log).unwrap();
    let outcomes = log.lines().map(|line| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        line["outcome"].as_str().unwrap().to_owned()
    });
    assert_eq!(outcomes.collect::<Vec<_>>(), ["failed"; 12]);
}

fn is_unreachable_problem(status: u16, problem: &serde_json::Value) -> bool {
    status == 502 && problem["code"] == "upstream_unreachable"
}

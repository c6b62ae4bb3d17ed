//! Services that reset their connection after a response, or within it.

use std::sync::Arc;

use client::Properties;
use http::{Request, Response};
use testing::{H2Visitor, ScriptedUpstream, Step, TestEngine, Upstream};
use tokio::sync::Notify;
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

/// A service with HTTP/2 that responds to a request, completely or not, and resets its connection
/// when it is notified.
async fn resetting_http2_service(
    engine: &TestEngine,
    is_complete: bool,
    end: &Arc<Notify>,
) -> Upstream {
    let config = engine.ca().server(&["localhost"], &["h2"]);
    let end = Arc::clone(end);
    Upstream::start(move |stream, _| {
        let acceptor = TlsAcceptor::from(Arc::clone(&config));
        let end = Arc::clone(&end);
        async move {
            stream.set_zero_linger().unwrap();
            let Ok(session) = acceptor.accept(stream).await else {
                return;
            };
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
                () = end.notified() => {}
            }
        }
    })
    .await
}

/// The engine detects whether a request was in progress on the connection.
#[tokio::test]
async fn a_reset_of_an_idle_http_2_service_is_not_reported_as_failed() {
    let engine = TestEngine::start().await;
    for is_complete in [true, false] {
        let end = Arc::new(Notify::new());
        let service = resetting_http2_service(&engine, is_complete, &end).await;
        let properties = Properties::http().upstream_tls(true);
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
        assert_eq!(error.is_none(), is_complete, "{error:?}");
    }
}

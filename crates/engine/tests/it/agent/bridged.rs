//! HTTP/1.1 visitors of HTTP/2 services: bodies whose framing in one version depends on the
//! connection and in the other does not.

use std::convert::Infallible;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use testing::{TestEngine, Upstream, within};

/// A service that answers without reading the request body. The library then resets the body.
async fn answers_early() -> Upstream {
    Upstream::start(|stream, _| async move {
        let service = service_fn(|request: Request<Incoming>| async move {
            let path = request.uri().path().to_owned();
            Ok::<_, Infallible>(Response::new(Full::<Bytes>::from(path)))
        });
        hyper::server::conn::http2::Builder::new(TokioExecutor::new())
            .serve_connection(TokioIo::new(stream), service)
            .await
            .ok();
    })
    .await
}

#[tokio::test]
async fn the_rest_of_an_unwanted_body_is_not_a_request() {
    let engine = TestEngine::start().await;
    let service = answers_early().await;
    let tunnel = engine.publish_h2c(service.addr()).await;
    let host = tunnel.hostname();
    for _ in 0..10 {
        let mut visitor = engine.visitor().http1(host).await;
        let smuggled = format!("GET /smuggled HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let length = format!("Content-Length: {}\r\n", 10 + smuggled.len());
        visitor.request("POST", "/early", host, &length).await;
        visitor.send("first").await;
        let answer = visitor.answer().await;
        assert_eq!((answer.status, answer.text()), (200, "/early"));
        // The edge may have closed the connection by now.
        visitor.try_send("more.").await;
        visitor.try_send(&smuggled).await;
        assert_eq!(visitor.read_to_end().await, b"");
    }
}

#[tokio::test]
async fn a_forbidden_body_is_not_read_as_the_next_response() {
    const FORGED: &str = "HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nforged";
    let engine = TestEngine::start().await;
    let service = Upstream::start(|stream, _| async move {
        let mut connection = h2::server::handshake(stream).await.unwrap();
        while let Some(Ok((request, mut answer))) = connection.accept().await {
            let status = match request.uri().path() {
                "/204" => 204,
                "/304" => 304,
                _ => 200,
            };
            let head = Response::builder().status(status).body(()).unwrap();
            let mut body = answer.send_response(head, false).unwrap();
            body.send_data(Bytes::from_static(FORGED.as_bytes()), true)
                .ok();
        }
    })
    .await;
    let tunnel = engine.publish_h2c(service.addr()).await;
    let host = tunnel.hostname();
    for path in ["/204", "/304"] {
        let mut visitor = engine.visitor().http1(host).await;
        visitor.request("GET", path, host, "").await;
        let head = within("answer", visitor.head()).await;
        assert_eq!(format!("/{}", head.status), path);
        visitor
            .try_send(format!(
                "GET /200 HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
            ))
            .await;
        let rest = visitor.read_to_end().await;
        let rest = String::from_utf8_lossy(&rest);
        assert!(
            rest.is_empty() || rest.contains("transfer-encoding: chunked"),
            "{rest}"
        );
        assert!(!rest.starts_with(FORGED), "{rest}");
    }
}

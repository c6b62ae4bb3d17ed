//! The responses of an engine that is killed never look complete.

use std::io::ErrorKind;

use client::Properties;
use testing::{ScriptedUpstream, Step, TestEngine, Upstream, within};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

#[tokio::test]
async fn a_visitor_of_a_tcp_tunnel_is_reset() {
    let port = ports::lease();
    let engine = TestEngine::start_with(&format!("tcp: {{port_range: '{port}-{port}'}}")).await;
    let service = Upstream::tcp().await;
    let _tunnel = engine.publish_as(Properties::tcp(), service.addr()).await;
    let mut visitor = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    visitor.write_all(b"x").await.unwrap();
    let mut echo = [0; 1];
    within("echo", visitor.read_exact(&mut echo)).await.unwrap();
    drop(engine);
    let read = within("end", visitor.read(&mut echo)).await;
    assert_eq!(read.unwrap_err().kind(), ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn an_answer_to_http_1_0_is_reset() {
    let engine = TestEngine::start().await;
    let upstream = ScriptedUpstream::start(|_| {
        vec![
            Step::ReadHead,
            Step::write("HTTP/1.1 200 OK\r\n\r\nhalf"),
            Step::KeepOpen,
        ]
    })
    .await;
    let tunnel = engine.publish(upstream.addr()).await;
    let host = tunnel.hostname();
    let mut visitor = engine.visitor().http1(host).await;
    visitor
        .send(format!("GET / HTTP/1.0\r\nHost: {host}\r\n\r\n"))
        .await;
    let mut stream = {
        let head = visitor.head().await;
        assert_eq!(head.status, 200);
        assert_eq!(visitor.read_exact(4).await.unwrap(), b"half");
        visitor.into_stream()
    };
    drop(engine);
    let read = within("end", stream.read(&mut [0; 1])).await;
    assert_eq!(read.unwrap_err().kind(), ErrorKind::ConnectionReset);
}

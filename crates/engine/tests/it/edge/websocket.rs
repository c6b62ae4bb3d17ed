//! WebSocket through the engine, by upgrade and by extended CONNECT.

use futures_util::{SinkExt, StreamExt};
use testing::{ScriptedUpstream, TestEngine, Upstream};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Bytes, Error, Message};

async fn converse<S: AsyncRead + AsyncWrite + Unpin>(mut socket: WebSocketStream<S>) {
    let large = Message::binary(Bytes::from(Upstream::payload(1_000_000)));
    for message in [Message::text("hello"), large, Message::binary(Vec::new())] {
        socket.send(message.clone()).await.unwrap();
        assert_eq!(socket.next().await.unwrap().unwrap(), message);
    }
    socket.send(Message::Ping("x".into())).await.unwrap();
    assert_eq!(
        socket.next().await.unwrap().unwrap(),
        Message::Pong("x".into())
    );
    let close = CloseFrame {
        code: 4000.into(),
        reason: "done".into(),
    };
    socket.close(Some(close.clone())).await.unwrap();
    assert_eq!(
        socket.next().await.unwrap().unwrap(),
        Message::Close(Some(close))
    );
    assert!(socket.next().await.is_none());
}

#[tokio::test]
async fn messages_pass_after_an_upgrade() {
    let engine = TestEngine::start().await;
    let upstream = Upstream::websocket().await;
    let tunnel = engine.publish(upstream.addr()).await;
    let host = tunnel.hostname();
    let stream = engine.visitor().http1(host).await.into_stream();
    let mut request = format!("wss://{host}/chat?a=b")
        .into_client_request()
        .unwrap();
    let offered = "first, second".parse().unwrap();
    request
        .headers_mut()
        .insert("sec-websocket-protocol", offered);
    let (socket, response) = tokio_tungstenite::client_async(request, stream)
        .await
        .unwrap();
    assert_eq!(response.headers()["sec-websocket-protocol"], "first");
    converse(socket).await;
}

#[tokio::test]
async fn messages_pass_after_an_extended_connect() {
    let engine = TestEngine::start().await;
    let upstream = Upstream::websocket().await;
    let tunnel = engine.publish(upstream.addr()).await;
    let host = tunnel.hostname();
    let mut visitor = engine.visitor().h2(host).await;
    // A client may use extended CONNECT only after it has received the server's settings.
    visitor.get("/", host).await;
    let (_, stream) = visitor.websocket("/chat?a=b", host).await.unwrap();
    let config = Some(WebSocketConfig::default());
    converse(WebSocketStream::from_raw_socket(stream, Role::Client, config).await).await;
}

#[tokio::test]
async fn a_service_that_disconnects_ends_the_conversation_as_aborted() {
    let engine = TestEngine::start().await;
    let upstream = Upstream::websocket().await;
    let tunnel = engine.publish(upstream.addr()).await;
    let host = tunnel.hostname();
    let stream = engine.visitor().http1(host).await.into_stream();
    let (mut socket, _) = tokio_tungstenite::client_async(format!("wss://{host}/"), stream)
        .await
        .unwrap();
    socket.send(Message::text("hello")).await.unwrap();
    assert_eq!(
        socket.next().await.unwrap().unwrap(),
        Message::text("hello")
    );
    drop(upstream);
    assert!(!matches!(socket.next().await, Some(Ok(_))));
}

#[tokio::test]
async fn a_service_can_refuse_the_upgrade() {
    let engine = TestEngine::start().await;
    let upstream =
        ScriptedUpstream::answering("HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\n\r\nno").await;
    let tunnel = engine.publish(upstream.addr()).await;
    let host = tunnel.hostname();
    let stream = engine.visitor().http1(host).await.into_stream();
    let refused = tokio_tungstenite::client_async(format!("wss://{host}/"), stream).await;
    let Err(Error::Http(response)) = refused else {
        panic!("not an answer: {:?}", refused.err())
    };
    assert_eq!(response.status(), 403);

    let mut visitor = engine.visitor().h2(host).await;
    visitor.get("/", host).await;
    assert_eq!(visitor.websocket("/", host).await.err().unwrap(), 403);
}

/// Answers that accept another protocol than the requested one, or none.
#[tokio::test]
async fn a_101_that_does_not_match_the_request_is_refused() {
    const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
    const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";
    let engine = TestEngine::start().await;
    let accept = |accept: &str| format!("upgrade: websocket\r\nsec-websocket-accept: {accept}\r\n");
    let twice = accept(ACCEPT) + &accept(ACCEPT);
    for (fields, status) in [
        (accept(ACCEPT), 101),
        (accept(ACCEPT).replace("websocket\r", "WebSocket\r"), 101),
        (accept(ACCEPT).replace("websocket\r", "h2c\r"), 502),
        (
            accept(ACCEPT).replace("websocket\r", "websocket, h2c\r"),
            502,
        ),
        (accept("AAAAAAAAAAAAAAAAAAAAAAAAAAA="), 502),
        ("upgrade: websocket\r\n".to_owned(), 502),
        (twice, 502),
        (String::new(), 502),
    ] {
        let answer =
            format!("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\n{fields}\r\nahead");
        let upstream = ScriptedUpstream::answering(answer).await;
        let tunnel = engine.publish(upstream.addr()).await;
        let host = tunnel.hostname();
        let mut visitor = engine.visitor().http1(host).await;
        let asked = format!(
            "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: {KEY}\r\n"
        );
        visitor.request("GET", "/", host, &asked).await;
        assert_eq!(visitor.head().await.status, status, "{fields:?}");
        // The edge has made the key itself, so none of these matches.
        let mut visitor = engine.visitor().h2(host).await;
        visitor.get("/", host).await;
        assert_eq!(
            visitor.websocket("/", host).await.err().unwrap(),
            502,
            "{fields:?}"
        );
    }
}

/// RFC 8441, 4: a 2xx to an extended CONNECT means that the protocol has changed.
#[tokio::test]
async fn an_answer_without_an_upgrade_is_no_success_of_an_extended_connect() {
    let engine = TestEngine::start().await;
    let upstream =
        ScriptedUpstream::answering("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
    let tunnel = engine.publish(upstream.addr()).await;
    let host = tunnel.hostname();
    let mut visitor = engine.visitor().h2(host).await;
    visitor.get("/", host).await;
    assert_eq!(visitor.websocket("/", host).await.err().unwrap(), 502);
}

//! A drain: event streams of the Engine API end with a reason and do not delay it, and new connections
//! are served.

use serde_json::json;
use testing::{RawVisitor, TestEngine, within};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

async fn watch_by_sse(engine: &TestEngine) -> RawVisitor {
    let mut watcher = engine.visitor().http1(engine.host()).await;
    let bearer = format!("Authorization: Bearer {}\r\n", engine.token(json!({})));
    watcher
        .request("GET", "/api/sse", engine.host(), &bearer)
        .await;
    let head = watcher.head().await;
    assert_eq!(head.status, 200);
    let first = watcher.chunk().await.unwrap();
    assert!(first.starts_with(b"data: "), "{}", first.escape_ascii());
    watcher
}

#[tokio::test]
async fn sse_clients_are_notified_that_the_engine_stops() {
    let engine = TestEngine::start().await;
    let mut watchers = [watch_by_sse(&engine).await, watch_by_sse(&engine).await];
    // No deadline shortens this drain. It ends when the event streams have ended.
    let stopping = tokio::spawn(engine.stop());
    for watcher in &mut watchers {
        let last = watcher.chunk().await.unwrap();
        assert_eq!(last, b": closed: the engine is stopping\n\n");
        assert_eq!(watcher.chunk().await.unwrap(), b"", "the body is complete");
    }
    within("end of the engine", stopping).await.unwrap();
}

#[tokio::test]
async fn websocket_clients_are_notified_that_the_engine_stops() {
    use futures_util::StreamExt;

    let engine = TestEngine::start().await;
    let token = engine.token(json!({}));
    let url = format!("wss://{}/api/websocket", engine.host());
    let mut request = url.into_client_request().unwrap();
    let bearer = format!("Bearer {token}").parse().unwrap();
    request.headers_mut().insert("authorization", bearer);
    let config = engine.ca().client(&["http/1.1"]);
    let stream = engine.visitor().connect(engine.host(), &config).await;
    let opening = tokio_tungstenite::client_async(request, stream);
    let (mut socket, _) = within("WebSocket", Box::pin(opening)).await.unwrap();
    let first = within("first frame", socket.next()).await.unwrap().unwrap();
    assert!(first.to_text().unwrap().contains("state.initial"));

    let stopping = tokio::spawn(engine.stop());
    let last = within("close frame", socket.next()).await.unwrap().unwrap();
    let Message::Close(Some(frame)) = last else {
        panic!("not a close frame: {last:?}");
    };
    assert_eq!(frame.code, CloseCode::Away);
    assert_eq!(frame.reason.as_str(), "the engine is stopping");
    while within("end of the WebSocket", socket.next())
        .await
        .is_some()
    {}
    within("end of the engine", stopping).await.unwrap();
}

#[tokio::test]
async fn a_new_connection_has_time_for_its_first_request() {
    let engine = TestEngine::start().await;
    let name = format!("nobody.t.{}", engine.host());
    let mut watcher = watch_by_sse(&engine).await;
    let mut visitor = engine.visitor().http1(&name).await;
    let stopping = tokio::spawn(engine.stop());
    // The drain has started.
    watcher.chunk().await.unwrap();
    visitor.request("GET", "/", &name, "").await;
    let status = visitor.head().await.status;
    assert!(matches!(status, 404 | 503), "{status}");
    within("end of the engine", stopping).await.unwrap();
}

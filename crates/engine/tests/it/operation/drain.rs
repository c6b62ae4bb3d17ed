//! A drain: event streams of the Engine API end with a reason and do not delay it, new connections are
//! served, and WebSockets of tunnels are closed in order.

use std::io::ErrorKind;

use futures_util::{SinkExt, StreamExt};
use serde_json::json;
use testing::{H2Visitor, RawVisitor, Stream, TestEngine, TestTunnel, Upstream, within};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::Role;
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
    let engine = TestEngine::start_unhurried("").await;
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

/// The close of WebSockets starts after half of it. The other half is longer than the time for the Close
/// frames, so that its end is not what ends them.
const SHORT_DRAIN: &str = "timeouts: {drain_seconds: 4, startup_grace_seconds: 0}";

/// The start of a frame with 100 bytes.
const HALF: [u8; 5] = [0x82, 100, 1, 2, 3];

/// A message to the service, which answers with [`HALF`].
const SEND_HALF: &str = "half a frame";

/// A visitor's end of a WebSocket.
type Socket = WebSocketStream<Box<dyn Stream>>;

/// A service that sends messages back, and reports the codes of the Close frames that it receives.
async fn websocket_service() -> (Upstream, mpsc::UnboundedReceiver<u16>) {
    let (codes, reports) = mpsc::unbounded_channel();
    let service = Upstream::start(move |stream, _number| serve(stream, codes.clone())).await;
    (service, reports)
}

async fn serve(stream: TcpStream, codes: mpsc::UnboundedSender<u16>) {
    let Ok(mut socket) = tokio_tungstenite::accept_async(stream).await else {
        return;
    };
    while let Some(Ok(message)) = socket.next().await {
        match message {
            Message::Close(frame) => codes.send(frame.unwrap().code.into()).unwrap(),
            Message::Text(text) if text.as_str() == SEND_HALF => {
                return send_half(socket.get_mut(), codes).await;
            }
            other => socket.send(other).await.unwrap(),
        }
    }
}

/// Sends half of a frame, and nothing more, also not after the Close frame of the peer.
async fn send_half(stream: &mut TcpStream, codes: mpsc::UnboundedSender<u16>) {
    stream.write_all(&HALF).await.unwrap();
    let mut frame = [0; 8];
    stream.read_exact(&mut frame).await.unwrap();
    assert_eq!(frame[..2], [0x88, 0x82], "a masked close frame");
    let code = [frame[6] ^ frame[2], frame[7] ^ frame[3]];
    codes.send(u16::from_be_bytes(code)).unwrap();
    let end = stream.read(&mut frame).await;
    assert!(matches!(end, Ok(0) | Err(_)), "{end:?}");
}

async fn open_by_upgrade(engine: &TestEngine, host: &str) -> Socket {
    let stream = engine.visitor().http1(host).await.into_stream();
    let opening = tokio_tungstenite::client_async(format!("wss://{host}/"), stream);
    let (socket, _) = within("WebSocket", Box::pin(opening)).await.unwrap();
    socket
}

/// Opens a WebSocket by an extended CONNECT, on the connection that is returned.
async fn open_by_connect(engine: &TestEngine, host: &str) -> (Socket, H2Visitor) {
    let mut visitor = engine.visitor().h2(host).await;
    // A client may use extended CONNECT only after it has received the server's settings.
    visitor.get("/", host).await;
    let (_, stream) = visitor.websocket("/", host).await.unwrap();
    let stream: Box<dyn Stream> = Box::new(stream);
    let socket = WebSocketStream::from_raw_socket(stream, Role::Client, None).await;
    (socket, visitor)
}

/// A tunnel with a WebSocket of each kind, the second on the connection that is returned.
async fn open_both(
    engine: &TestEngine,
    service: &Upstream,
) -> (TestTunnel, [Socket; 2], H2Visitor) {
    let tunnel = engine.publish(service.addr()).await;
    let upgraded = open_by_upgrade(engine, tunnel.hostname()).await;
    let (connected, visitor) = open_by_connect(engine, tunnel.hostname()).await;
    (tunnel, [upgraded, connected], visitor)
}

async fn expect_echo(socket: &mut Socket) {
    let message = Message::binary(Upstream::payload(70_000));
    socket.send(message.clone()).await.unwrap();
    let echo = within("echo", socket.next()).await;
    assert_eq!(echo.unwrap().unwrap(), message);
}

/// Expects the close of an engine that stops, and a regular end.
async fn expect_close(mut socket: Socket) {
    let last = within("close frame", socket.next()).await.unwrap().unwrap();
    let Message::Close(Some(frame)) = last else {
        panic!("not a close frame: {last:?}");
    };
    assert_eq!(frame.code, CloseCode::Away);
    let next = within("end of the WebSocket", socket.next()).await;
    assert!(next.is_none(), "{next:?}");
}

/// Checks that the service has received the Close frames of clients that go away.
async fn expect_codes(mut reports: mpsc::UnboundedReceiver<u16>, count: usize) {
    for _ in 0..count {
        let code = within("close at the service", reports.recv()).await;
        assert_eq!(code, Some(u16::from(CloseCode::Away)));
    }
}

#[tokio::test]
async fn open_websockets_are_closed_in_order_on_both_sides() {
    let engine = TestEngine::start_unhurried(SHORT_DRAIN).await;
    let (service, reports) = websocket_service().await;
    let (_tunnel, [mut upgraded, mut connected], _visitor) = open_both(&engine, &service).await;
    expect_echo(&mut upgraded).await;
    expect_echo(&mut connected).await;

    let stopping = tokio::spawn(engine.stop());
    tokio::join!(
        expect_close(upgraded),
        expect_close(connected),
        expect_codes(reports, 2)
    );
    within("end of the engine", stopping).await.unwrap();
}

/// Lets the service send half of a frame.
async fn receive_half(socket: &mut Socket) {
    socket.send(Message::text(SEND_HALF)).await.unwrap();
    let mut half = [0; HALF.len()];
    let reading = socket.get_mut().read_exact(&mut half);
    within("half a frame", reading).await.unwrap();
    assert_eq!(half, HALF);
}

#[tokio::test]
async fn a_websocket_in_the_middle_of_a_frame_is_reset() {
    let engine = TestEngine::start_with(SHORT_DRAIN).await;
    let (service, reports) = websocket_service().await;
    let (_tunnel, [mut upgraded, mut connected], _visitor) = open_both(&engine, &service).await;
    receive_half(&mut upgraded).await;
    receive_half(&mut connected).await;

    let stopping = tokio::spawn(engine.stop());
    // The other direction is between two frames.
    expect_codes(reports, 2).await;
    let mut rest = [0; 16];
    let read = within("reset", upgraded.get_mut().read(&mut rest)).await;
    assert_eq!(read.unwrap_err().kind(), ErrorKind::ConnectionReset);
    // The library returns the code of this reset as the end of the stream.
    let read = within("reset", connected.get_mut().read(&mut rest)).await;
    assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
    within("end of the engine", stopping).await.unwrap();
}

//! A server in the role of an engine, and a platform that trusts its certificate.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::response::Response;
use http::Request;
use http_body_util::BodyExt as _;
use parking_lot::Mutex;
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::broadcast;
use tokio::task::JoinHandle;
use tower::ServiceExt as _;

use crate::support::receiver::{ReceivedRequest, acceptor, read};
use crate::support::{BASE_URL, PEER, START, TestControl};

/// The server. It answers `/api/sse` with a stream and all other paths with a fixed response. It
/// stops when dropped.
pub(super) struct Engine {
    received: Arc<Mutex<Vec<ReceivedRequest>>>,
    answer: Arc<Mutex<(u16, &'static str)>>,
    kept: Arc<Mutex<Option<IdleConnectionEnd>>>,
    events: broadcast::Sender<&'static str>,
    task: JoinHandle<()>,
    _directory: TempDir,
}

/// The end of a connection that was kept after a response.
#[derive(Clone, Copy, Debug)]
pub(super) enum IdleConnectionEnd {
    /// The TLS session ends first.
    Session,
    /// Only the connection ends.
    Connection,
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Engine {
    /// Starts it, and a platform whose projects are there.
    pub(super) async fn start() -> (Self, TestControl) {
        let directory = tempfile::tempdir().unwrap();
        let ca_file = directory.path().join("ca.pem");
        let acceptor = acceptor(&ca_file, &["*.engine.localhost"]);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let received = Arc::new(Mutex::new(Vec::new()));
        let answer = Arc::new(Mutex::new((200, "[]")));
        let kept = Arc::new(Mutex::new(None));
        let (events, _) = broadcast::channel(16);
        let (seen, fixed, sender) = (Arc::clone(&received), Arc::clone(&answer), events.clone());
        let next_kept = Arc::clone(&kept);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                let (seen, fixed) = (Arc::clone(&seen), Arc::clone(&fixed));
                let events = sender.subscribe();
                let next_kept = Arc::clone(&next_kept);
                tokio::spawn(async move {
                    let Ok(mut stream) = acceptor.accept(stream).await else {
                        return;
                    };
                    let request = read(&mut stream).await;
                    let is_stream = request.line.starts_with("GET /api/sse");
                    seen.lock().push(request);
                    let (status, text) = *fixed.lock();
                    if is_stream && status == 200 {
                        send_events(&mut stream, events).await;
                        return;
                    }
                    let end: Option<IdleConnectionEnd> = next_kept.lock().take();
                    send_answer(&mut stream, status, text, end.is_some()).await;
                    if let Some(end) = end {
                        let request = read(&mut stream).await;
                        seen.lock().push(request);
                        if matches!(end, IdleConnectionEnd::Session) {
                            let _gone = stream.shutdown().await;
                        }
                    }
                });
            }
        });
        let engines = json!([{"cluster_domain": "engine.localhost", "ca_file": ca_file}]);
        let region = json!({"provider": "other", "region": "local", "engine_port": port});
        let sections = format!("catalog: {}\n", json!({"regions": [region]}));
        let now = START.parse().unwrap();
        let control = TestControl::at(BASE_URL, now, &engines, &sections).await;
        let engine = Self {
            received,
            answer,
            kept,
            events,
            task,
            _directory: directory,
        };
        (engine, control)
    }

    /// Sets the response to all paths except the stream's, and to that as well if it is an error.
    pub(super) fn answers(&self, status: u16, text: &'static str) {
        *self.answer.lock() = (status, text);
    }

    /// Keeps the connection of the next response, and closes it when the next request has arrived.
    pub(super) fn keeps_next(&self, end: IdleConnectionEnd) {
        *self.kept.lock() = Some(end);
    }

    /// Sends an event to every open stream.
    pub(super) fn send(&self, event: &'static str) {
        self.events.send(event).unwrap();
    }

    /// The requests so far.
    pub(super) fn received(&self) -> Vec<ReceivedRequest> {
        self.received.lock().clone()
    }
}

async fn send_answer(
    stream: &mut (impl AsyncWrite + Unpin),
    status: u16,
    text: &str,
    is_kept: bool,
) {
    let length = text.len();
    let connection = if is_kept { "keep-alive" } else { "close" };
    let answer = format!(
        "HTTP/1.1 {status} Status\r\ncontent-type: application/json\r\nset-cookie: a=b\r\n\
         access-control-allow-origin: *\r\ncontent-length: {length}\r\nconnection: {connection}\r\n\r\n{text}"
    );
    let _gone = stream.write_all(answer.as_bytes()).await;
    let _gone = stream.flush().await;
    if !is_kept {
        let _gone = stream.shutdown().await;
    }
}

/// Sends the first event and then those of the test, until the client disconnects.
async fn send_events(
    stream: &mut (impl AsyncWrite + Unpin),
    mut events: broadcast::Receiver<&'static str>,
) {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\
                transfer-encoding: chunked\r\n\r\n";
    let _gone = stream.write_all(head.as_bytes()).await;
    let mut next = Some("state.initial");
    while let Some(event) = next {
        let line = format!("data: {event}\n\n");
        let chunk = format!("{:x}\r\n{line}\r\n", line.len());
        if stream.write_all(chunk.as_bytes()).await.is_err() || stream.flush().await.is_err() {
            return;
        }
        next = events.recv().await.ok();
    }
}

/// Opens a stream as a page does. Returns the response with its body unread.
pub(super) async fn open(control: &TestControl, path: &str, cookie: &str) -> Response {
    let request = Request::get(path)
        .header("cookie", cookie)
        .header("sec-fetch-site", "same-origin")
        .extension(ConnectInfo(std::net::SocketAddr::from((PEER, 40_000))))
        .body(Body::empty())
        .unwrap();
    control.router.clone().oneshot(request).await.unwrap()
}

/// Reads the body up to a text.
pub(super) async fn read_until(body: &mut Body, text: &str) -> String {
    let mut all = String::new();
    while !all.contains(text) {
        let frame = body.frame().await.expect("the text comes before the end");
        let data = frame.unwrap().into_data().unwrap();
        all.push_str(std::str::from_utf8(&data).unwrap());
    }
    all
}

/// Reads the rest of the body.
pub(super) async fn read_rest(body: Body) -> String {
    let bytes = body.collect().await.unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}

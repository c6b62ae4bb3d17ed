//! A server of events at times that the test chooses.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::broadcast;

use crate::Upstream;

/// An HTTP/1.1 server that responds to every request with an endless `text/event-stream`, one event
/// per chunk. The head is sent immediately.
pub struct EventSource {
    /// The server.
    pub upstream: Upstream,
    events: broadcast::Sender<String>,
}

impl EventSource {
    /// Starts the server.
    pub async fn start() -> Self {
        let (events, _) = broadcast::channel(16);
        let sender = events.clone();
        let upstream = Upstream::start(move |stream, _number| {
            // Subscribes before the head is sent, so that a client that has received it misses no
            // later event.
            serve(stream, sender.subscribe())
        })
        .await;
        Self { upstream, events }
    }

    /// Sends an event to every client that has received the head of a response, and returns its
    /// bytes.
    pub fn send(&self, data: &str) -> String {
        let event = format!("data: {data}\n\n");
        self.events.send(event.clone()).expect("a client listens");
        event
    }

    /// Ends the bodies of all responses properly.
    pub fn end(&self) {
        self.events.send(String::new()).expect("a client listens");
    }
}

async fn serve(mut stream: TcpStream, mut events: broadcast::Receiver<String>) {
    let mut request = Vec::new();
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        if stream.read_buf(&mut request).await.unwrap_or(0) == 0 {
            return;
        }
    }
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\
        transfer-encoding: chunked\r\nconnection: close\r\n\r\n";
    let mut sent = stream.write_all(head.as_bytes()).await;
    while let (Ok(()), Ok(event)) = (sent, events.recv().await) {
        let chunk = format!("{:x}\r\n{event}\r\n", event.len());
        sent = stream.write_all(chunk.as_bytes()).await;
        if event.is_empty() {
            return;
        }
    }
}

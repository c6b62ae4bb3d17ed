//! A server of events whose moments the test chooses.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::broadcast;

use crate::Upstream;

/// An HTTP/1.1 server that answers every request with an endless `text/event-stream`, one chunk an
/// event. The head is sent at once.
pub struct EventSource {
    /// The server.
    pub upstream: Upstream,
    events: broadcast::Sender<String>,
}

impl EventSource {
    /// Starts it.
    pub async fn start() -> Self {
        let (events, _) = broadcast::channel(16);
        let sender = events.clone();
        let upstream = Upstream::start(move |stream, _number| {
            // Before the head is sent: who has seen it misses no later event.
            serve(stream, sender.subscribe())
        })
        .await;
        Self { upstream, events }
    }

    /// Sends an event to everybody who has received the head of an answer, and returns the bytes
    /// that carry it.
    pub fn send(&self, data: &str) -> String {
        let event = format!("data: {data}\n\n");
        self.events.send(event.clone()).expect("somebody listens");
        event
    }

    /// Ends the bodies of all answers well.
    pub fn end(&self) {
        self.events.send(String::new()).expect("somebody listens");
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

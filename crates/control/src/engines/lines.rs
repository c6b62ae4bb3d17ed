//! JSON lines for an engine, with limited buffers. Engines that do not read are disconnected.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use api::link::LinkMessage;
use bytes::Bytes;
use hyper::body::{Body, Frame};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

/// Creates the writer, and the body of the response.
pub(super) fn lines() -> (Lines, Stream) {
    let (sender, receiver) = mpsc::channel(QUEUE);
    let lines = Lines {
        sender,
        buffer: Vec::new(),
        flushed: Instant::now(),
    };
    (lines, Stream(receiver))
}

/// Reasons that the engine cannot receive lines any more.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LineError {
    /// The engine disconnected.
    Disconnected,
    /// It did not read for [`STALLED`].
    Stalled,
}

/// The writer.
pub(super) struct Lines {
    sender: mpsc::Sender<Bytes>,
    buffer: Vec<u8>,
    flushed: Instant,
}

impl Lines {
    /// Adds a line. It is sent when the buffer is full, or with [`Lines::flush`].
    pub(super) async fn push(&mut self, line: &LinkMessage) -> Result<(), LineError> {
        // Values with string keys always serialise, and into memory.
        serde_json::to_writer(&mut self.buffer, line).map_err(|_| LineError::Disconnected)?;
        self.buffer.push(b'\n');
        if self.buffer.len() >= CHUNK_BYTES {
            self.flush().await?;
        }
        Ok(())
    }

    /// Sends the buffered lines.
    pub(super) async fn flush(&mut self) -> Result<(), LineError> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let chunk = Bytes::from(std::mem::take(&mut self.buffer));
        match timeout(WRITE_TIMEOUT, self.sender.send(chunk)).await {
            Ok(Ok(())) => {
                self.flushed = Instant::now();
                Ok(())
            }
            Ok(Err(_)) => Err(LineError::Disconnected),
            Err(_) => Err(LineError::Stalled),
        }
    }

    /// Time since the last line was sent.
    pub(super) fn silence(&self) -> Duration {
        self.flushed.elapsed()
    }

    /// Waits until the engine disconnects.
    pub(super) async fn wait_disconnected(&self) {
        self.sender.closed().await;
    }
}

/// The body of the response.
pub(super) struct Stream(mpsc::Receiver<Bytes>);

impl Body for Stream {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let chunk = self.0.poll_recv(context);
        chunk.map(|chunk| chunk.map(|chunk| Ok(Frame::data(chunk))))
    }
}

/// Small lines are sent together in chunks of about this size.
const CHUNK_BYTES: usize = 32 * 1024;
/// Number of chunks that can wait for an engine that reads slowly. A chunk exceeds [`CHUNK_BYTES`]
/// by one line at most.
const QUEUE: usize = 4;
/// Time limit for a write. Engines process lines immediately. An engine that receives nothing for
/// twice as long considers the link broken anyway.
const WRITE_TIMEOUT: Duration = Duration::from_secs(8);

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    #[tokio::test]
    async fn lines_are_sent_together_and_in_order() {
        let (mut out, body) = lines();
        out.push(&LinkMessage::Alive {}).await.unwrap();
        out.push(&LinkMessage::Alive {}).await.unwrap();
        out.flush().await.unwrap();
        out.flush().await.unwrap();
        drop(out);
        let all = body.collect().await.unwrap().to_bytes();
        assert_eq!(all, "{\"type\":\"alive\"}\n{\"type\":\"alive\"}\n");
    }

    /// Tokio's paused clock advances when all tasks wait.
    #[tokio::test(start_paused = true)]
    async fn an_engine_that_does_not_read_is_disconnected() {
        let (mut out, body) = lines();
        for _ in 0..QUEUE {
            out.push(&LinkMessage::Alive {}).await.unwrap();
            out.flush().await.unwrap();
        }
        out.push(&LinkMessage::Alive {}).await.unwrap();
        assert_eq!(out.flush().await, Err(LineError::Stalled));
        drop(body);
        out.push(&LinkMessage::Alive {}).await.unwrap();
        assert_eq!(out.flush().await, Err(LineError::Disconnected));
    }
}

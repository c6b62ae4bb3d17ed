//! A visitor that sends arbitrary bytes.

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};

use crate::within;

use super::answer::{ReceivedResponse, pairs};

/// One HTTP/1.1 connection of a visitor, valid or invalid.
pub struct RawVisitor {
    reader: Reader,
    writer: WriteHalf<Box<dyn Stream>>,
}

/// A byte stream in both directions.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

impl RawVisitor {
    /// Creates a visitor on any stream.
    pub fn new(stream: impl Stream + 'static) -> Self {
        let stream: Box<dyn Stream> = Box::new(stream);
        let (half, writer) = tokio::io::split(stream);
        Self {
            reader: Reader {
                half,
                buffer: Vec::new(),
            },
            writer,
        }
    }

    /// Sends bytes unchanged.
    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        send(&mut self.writer, bytes.as_ref()).await;
    }

    /// Sends bytes to an edge that may have closed already.
    pub async fn try_send(&mut self, bytes: impl AsRef<[u8]>) {
        // The test checks the effect with later steps.
        self.writer.write_all(bytes.as_ref()).await.ok();
        self.writer.flush().await.ok();
    }

    /// Sends a request without a body. `fields` are lines with their line ends.
    pub async fn request(&mut self, method: &str, target: &str, host: &str, fields: &str) {
        let head = format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n");
        self.send(head).await;
    }

    /// Sends a GET and returns the response.
    pub async fn get(&mut self, target: &str, host: &str) -> ReceivedResponse {
        self.request("GET", target, host, "").await;
        self.answer().await
    }

    /// Sends bytes and reads a response concurrently: for bodies larger than the buffers in
    /// between.
    pub async fn exchange(&mut self, bytes: &[u8]) -> ReceivedResponse {
        let (answer, ()) = tokio::join!(self.reader.answer(), send(&mut self.writer, bytes));
        answer
    }

    /// Reads the head of the next response, including interim ones. The body is read with
    /// [`Self::read_exact`] or [`Self::body`].
    pub async fn head(&mut self) -> ReceivedResponse {
        self.reader.head().await
    }

    /// Reads the next response whose status is not interim, with its body.
    pub async fn answer(&mut self) -> ReceivedResponse {
        self.reader.answer().await
    }

    /// Reads the body after a head, as far as it arrives. Not for responses to HEAD.
    pub async fn body(&mut self, head: ReceivedResponse) -> ReceivedResponse {
        self.reader.body(head).await
    }

    /// Reads the next chunk of a chunked body; empty for the last one, including its trailer
    /// section; `None` if the body was truncated.
    pub async fn chunk(&mut self) -> Option<Vec<u8>> {
        let chunk = self.reader.chunk().await?;
        if chunk.is_empty() {
            self.reader.trailers().await?;
        }
        Some(chunk)
    }

    /// Reads this number of bytes; `None` if the connection ends before.
    pub async fn read_exact(&mut self, count: usize) -> Option<Vec<u8>> {
        self.reader.read_exact(count).await
    }

    /// Reads to the end of the connection, and returns the bytes.
    pub async fn read_to_end(&mut self) -> Vec<u8> {
        while self.reader.read_more().await.is_some() {}
        std::mem::take(&mut self.reader.buffer)
    }

    /// Closes the sending side.
    pub async fn finish(&mut self) {
        self.writer.shutdown().await.expect("the edge reads");
    }

    /// Closes the sending side of a connection that the edge may already have closed.
    pub async fn try_finish(&mut self) {
        self.writer.shutdown().await.ok();
    }

    /// The stream itself, for another protocol. No bytes may have been read ahead.
    pub fn into_stream(self) -> Box<dyn Stream> {
        assert!(self.reader.buffer.is_empty(), "bytes were read ahead");
        self.reader.half.unsplit(self.writer)
    }
}

async fn send(writer: &mut WriteHalf<Box<dyn Stream>>, bytes: &[u8]) {
    let writing = async {
        writer.write_all(bytes).await?;
        writer.flush().await
    };
    within("room for bytes to the edge", writing)
        .await
        .expect("the edge reads");
}

struct Reader {
    half: ReadHalf<Box<dyn Stream>>,
    /// Bytes that were read ahead.
    buffer: Vec<u8>,
}

impl Reader {
    async fn head(&mut self) -> ReceivedResponse {
        let head = self
            .read_through(b"\r\n\r\n")
            .await
            .expect("the head of an answer");
        let text = String::from_utf8_lossy(&head).into_owned();
        let (line, fields) = text.split_once("\r\n").expect("a status line");
        let status = line
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok());
        ReceivedResponse {
            status: status.unwrap_or_else(|| panic!("not a status line: {line}")),
            headers: pairs(fields),
            body: Vec::new(),
            trailers: Vec::new(),
            is_complete: false,
        }
    }

    async fn answer(&mut self) -> ReceivedResponse {
        loop {
            let head = self.head().await;
            if head.status >= 200 || head.status == 101 {
                return self.body(head).await;
            }
        }
    }

    async fn body(&mut self, mut answer: ReceivedResponse) -> ReceivedResponse {
        if answer.header("transfer-encoding") == Some("chunked") {
            answer.is_complete = self.chunks(&mut answer).await.is_some();
        } else if matches!(answer.status, 100..200 | 204 | 304) {
            answer.is_complete = true;
        } else if let Some(length) = answer.header("content-length") {
            let length: usize = length.parse().expect("a length");
            while self.buffer.len() < length && self.read_more().await.is_some() {}
            answer.is_complete = self.buffer.len() >= length;
            let end = length.min(self.buffer.len());
            answer.body = self.buffer.drain(..end).collect();
        } else {
            while self.read_more().await.is_some() {}
            answer.body = std::mem::take(&mut self.buffer);
        }
        answer
    }

    async fn chunks(&mut self, answer: &mut ReceivedResponse) -> Option<()> {
        loop {
            let chunk = self.chunk().await?;
            if chunk.is_empty() {
                answer.trailers = self.trailers().await?;
                return Some(());
            }
            answer.body.extend_from_slice(&chunk);
        }
    }

    /// Does not read the trailer section of the last chunk.
    async fn chunk(&mut self) -> Option<Vec<u8>> {
        let line = self.read_through(b"\r\n").await?;
        let size = std::str::from_utf8(&line[..line.len() - 2]).ok();
        let size = size.and_then(|size| usize::from_str_radix(size, 16).ok());
        let size = size.unwrap_or_else(|| panic!("not a chunk size: {}", line.escape_ascii()));
        if size == 0 {
            return Some(Vec::new());
        }
        let mut chunk = self.read_exact(size + 2).await?;
        assert!(chunk.ends_with(b"\r\n"), "a chunk ends with CR LF");
        chunk.truncate(size);
        Some(chunk)
    }

    async fn trailers(&mut self) -> Option<Vec<(String, String)>> {
        let mut trailers = Vec::new();
        loop {
            let line = self.read_through(b"\r\n").await?;
            if line == b"\r\n" {
                return Some(trailers);
            }
            trailers.extend(pairs(&String::from_utf8_lossy(&line)));
        }
    }

    async fn read_exact(&mut self, count: usize) -> Option<Vec<u8>> {
        while self.buffer.len() < count {
            self.read_more().await?;
        }
        Some(self.buffer.drain(..count).collect())
    }

    async fn read_through(&mut self, end: &[u8]) -> Option<Vec<u8>> {
        loop {
            if let Some(at) = self
                .buffer
                .windows(end.len())
                .position(|bytes| bytes == end)
            {
                return Some(self.buffer.drain(..at + end.len()).collect());
            }
            self.read_more().await?;
        }
    }

    async fn read_more(&mut self) -> Option<()> {
        let reading = self.half.read_buf(&mut self.buffer);
        let read = within("bytes from the edge", reading).await.ok()?;
        (read > 0).then_some(())
    }
}

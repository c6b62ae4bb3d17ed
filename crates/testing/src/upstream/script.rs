//! HTTP/1.1 servers that misbehave, step by step.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Mutex, Semaphore, mpsc};

use crate::{Upstream, within};

/// One step of a scripted server on a connection. After the last step it closes the connection.
#[derive(Clone)]
pub enum Step {
    /// Reads to the end of a request's head and reports it.
    ReadHead,
    /// Reads this number of bytes and reports them.
    ReadBytes(usize),
    /// Reads until the peer ends its side, and reports the bytes and the end.
    ReadToEnd,
    /// Writes bytes unchanged.
    Write(Vec<u8>),
    /// Writes bytes repeatedly until the peer disconnects.
    WriteForever(Vec<u8>),
    /// Waits until the test lets one connection pass.
    Wait(Gate),
    /// Resets the connection instead of closing it.
    Reset,
    /// Stops, and keeps the connection open.
    KeepOpen,
}

impl Step {
    /// [`Step::Write`] of text.
    pub fn write(text: impl Into<String>) -> Self {
        Self::Write(text.into().into_bytes())
    }
}

/// Data received by a scripted server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    /// The head of a request, with its empty line.
    Head {
        /// The connection, from 1.
        connection: usize,
        /// Its bytes as text.
        text: String,
    },
    /// Bytes of a body.
    Bytes(Vec<u8>),
    /// The peer closed its sending side, or the connection.
    Closed,
}

/// Blocks scripted servers until the test lets them continue.
#[derive(Clone)]
pub struct Gate(Arc<Semaphore>);

impl Gate {
    /// Creates a closed gate.
    pub fn new() -> Self {
        Self(Arc::new(Semaphore::new(0)))
    }

    /// Lets one connection pass, now or later.
    pub fn open(&self) {
        self.0.add_permits(1);
    }

    async fn pass(&self) {
        self.0
            .acquire()
            .await
            .expect("gates are not destroyed")
            .forget();
    }
}

impl Default for Gate {
    fn default() -> Self {
        Self::new()
    }
}

/// A server that runs a script on each connection.
pub struct ScriptedUpstream {
    upstream: Upstream,
    reports: Mutex<mpsc::UnboundedReceiver<Report>>,
}

impl ScriptedUpstream {
    /// Starts a server with a script for each connection, by its number from 1.
    pub async fn start(script: impl Fn(usize) -> Vec<Step> + Send + 'static) -> Self {
        let (sender, reports) = mpsc::unbounded_channel();
        let upstream = Upstream::start(move |stream, number| {
            let steps = script(number);
            let sender = sender.clone();
            async move {
                let connection = Connection {
                    stream,
                    number,
                    buffer: Vec::new(),
                    reports: sender,
                };
                connection.run(steps).await;
            }
        })
        .await;
        Self {
            upstream,
            reports: Mutex::new(reports),
        }
    }

    /// Responds to the first request of each connection with these bytes, and closes.
    pub async fn answering(answer: impl Into<Vec<u8>>) -> Self {
        let answer = answer.into();
        Self::start(move |_| vec![Step::ReadHead, Step::Write(answer.clone())]).await
    }

    /// Announces 10 bytes, sends 5, and sends the others when the gate opens.
    pub async fn slow_body(gate: &Gate) -> Self {
        let gate = gate.clone();
        Self::start(move |_| {
            vec![
                Step::ReadHead,
                Step::write("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nfirst"),
                Step::Wait(gate.clone()),
                Step::write("later"),
                Step::ReadToEnd,
            ]
        })
        .await
    }

    /// Announces 10 bytes, sends 5, and resets when the gate opens.
    pub async fn resets_in_the_body(gate: &Gate) -> Self {
        let gate = gate.clone();
        Self::start(move |_| {
            vec![
                Step::ReadHead,
                Step::write("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nfirst"),
                Step::Wait(gate.clone()),
                Step::Reset,
            ]
        })
        .await
    }

    /// Announces 10 bytes, sends 5, and closes.
    pub async fn cuts_a_length() -> Self {
        Self::answering("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nfirst").await
    }

    /// Sends a chunk, and closes before the last one.
    pub async fn cuts_chunks() -> Self {
        Self::answering("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nfirst\r\n").await
    }

    /// Closes within the head of the response.
    pub async fn cuts_the_head() -> Self {
        Self::answering("HTTP/1.1 200 OK\r\ncontent-le").await
    }

    /// Closes without a response.
    pub async fn closes_unanswered() -> Self {
        Self::answering("").await
    }

    /// Responds with something that is not HTTP.
    pub async fn answers_garbage() -> Self {
        Self::answering("SSH-2.0-OpenSSH_9.2\r\n\0\u{1}\u{2}\r\n\r\n").await
    }

    /// Sends interim responses without end.
    pub async fn floods_interim_responses() -> Self {
        Self::start(|_| {
            let interim = b"HTTP/1.1 103 Early Hints\r\nlink: </a>; rel=preload\r\n\r\n";
            vec![Step::ReadHead, Step::WriteForever(interim.to_vec())]
        })
        .await
    }

    /// Responds with 413 before it has read the body, and never reads it.
    pub async fn answers_early() -> Self {
        Self::start(|_| {
            vec![
                Step::ReadHead,
                Step::write("HTTP/1.1 413 Too Large\r\ncontent-length: 5\r\n\r\nearly"),
                Step::KeepOpen,
            ]
        })
        .await
    }

    /// Reads the request and never responds; reports when the peer disconnects.
    pub async fn never_answers() -> Self {
        Self::start(|_| vec![Step::ReadHead, Step::ReadToEnd, Step::KeepOpen]).await
    }

    /// Responds to the first request of every connection and keeps the connection open. It closes
    /// it without a response after the head of a second request.
    pub async fn closes_when_reused() -> Self {
        Self::start(|number| {
            let answer = format!(
                "HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n{}",
                number % 10
            );
            vec![Step::ReadHead, Step::write(answer), Step::ReadHead]
        })
        .await
    }

    /// The listen address.
    pub fn addr(&self) -> SocketAddr {
        self.upstream.addr()
    }

    /// Number of accepted connections so far.
    pub fn accepted(&self) -> usize {
        self.upstream.accepted()
    }

    /// Waits for the next report.
    pub async fn report(&self) -> Report {
        let mut reports = self.reports.lock().await;
        within("report of the server", reports.recv())
            .await
            .expect("the server runs")
    }

    /// Waits for the next head, and ignores other reports before it.
    pub async fn next_head(&self) -> String {
        loop {
            if let Report::Head { text, .. } = self.report().await {
                return text;
            }
        }
    }

    /// Waits for the next report, which must be a head, and returns its text.
    pub async fn head(&self) -> String {
        match self.report().await {
            Report::Head { text, .. } => text,
            other => panic!("not a head: {other:?}"),
        }
    }
}

struct Connection {
    stream: TcpStream,
    number: usize,
    /// Bytes that were read ahead.
    buffer: Vec<u8>,
    reports: mpsc::UnboundedSender<Report>,
}

impl Connection {
    async fn run(mut self, steps: Vec<Step>) {
        for step in steps {
            if self.step(step).await.is_none() {
                self.report(Report::Closed);
                return;
            }
        }
        // Closing with unread bytes would reset the connection, which discards sent data.
        if self.stream.shutdown().await.is_ok() {
            while self.stream.read_buf(&mut self.buffer).await.unwrap_or(0) > 0 {
                self.buffer.clear();
            }
        }
    }

    /// `None` if the peer has disconnected.
    async fn step(&mut self, step: Step) -> Option<()> {
        match step {
            Step::ReadHead => {
                let end = loop {
                    if let Some(at) = self.buffer.windows(4).position(|end| end == b"\r\n\r\n") {
                        break at + 4;
                    }
                    self.read_more().await?;
                };
                let head: Vec<u8> = self.buffer.drain(..end).collect();
                let text = String::from_utf8_lossy(&head).into_owned();
                self.report(Report::Head {
                    connection: self.number,
                    text,
                });
            }
            Step::ReadBytes(count) => {
                while self.buffer.len() < count {
                    self.read_more().await?;
                }
                let bytes = self.buffer.drain(..count).collect();
                self.report(Report::Bytes(bytes));
            }
            Step::ReadToEnd => {
                while self.read_more().await.is_some() {}
                let bytes = std::mem::take(&mut self.buffer);
                self.report(Report::Bytes(bytes));
                self.report(Report::Closed);
            }
            Step::Write(bytes) => self.stream.write_all(&bytes).await.ok()?,
            Step::WriteForever(bytes) => while self.stream.write_all(&bytes).await.is_ok() {},
            Step::Wait(gate) => gate.pass().await,
            Step::Reset => {
                self.stream.set_zero_linger().expect("a socket option");
                return None;
            }
            Step::KeepOpen => std::future::pending().await,
        }
        Some(())
    }

    async fn read_more(&mut self) -> Option<()> {
        let read = self.stream.read_buf(&mut self.buffer).await.ok()?;
        (read > 0).then_some(())
    }

    fn report(&self, report: Report) {
        // The test may have dropped the receiver already.
        self.reports.send(report).ok();
    }
}

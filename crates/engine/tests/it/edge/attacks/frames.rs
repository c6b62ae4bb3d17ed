//! HTTP/2 by hand (RFC 9113, RFC 7541): frames that no library would send.

use std::sync::Arc;

use rustls::ClientConfig;
use testing::{TestEngine, within};
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const PRIORITY: u8 = 2;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PUSH_PROMISE: u8 = 5;
pub(super) const PING: u8 = 6;
pub(super) const GOAWAY: u8 = 7;
pub(super) const WINDOW_UPDATE: u8 = 8;
pub(super) const CONTINUATION: u8 = 9;

pub(super) const ACK: u8 = 1;
pub(super) const END_STREAM: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;

/// A frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
    pub(super) payload: Vec<u8>,
}

pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: impl Into<Vec<u8>>) -> Frame {
    Frame {
        kind,
        flags,
        stream,
        payload: payload.into(),
    }
}

impl Frame {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let len = u32::try_from(self.payload.len()).unwrap().to_be_bytes();
        let mut bytes = len[1..].to_vec();
        bytes.extend([self.kind, self.flags]);
        bytes.extend(self.stream.to_be_bytes());
        bytes.extend(&self.payload);
        bytes
    }

    /// The error code of a `RST_STREAM` or a `GOAWAY`.
    fn code(&self) -> u32 {
        let at = if self.kind == GOAWAY { 4 } else { 0 };
        u32::from_be_bytes(self.payload[at..at + 4].try_into().unwrap())
    }
}

/// A header block with literal fields, none of which is indexed.
pub(super) fn block<N: AsRef<[u8]>, V: AsRef<[u8]>>(fields: &[(N, V)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name.as_ref(), value.as_ref()] {
            put_length(&mut block, text.len());
            block.extend_from_slice(text);
        }
    }
    block
}

/// An integer with a prefix of 7 bits (RFC 7541, 5.1), without Huffman coding.
fn put_length(block: &mut Vec<u8>, len: usize) {
    let Some(mut rest) = len.checked_sub(127) else {
        block.push(u8::try_from(len).unwrap());
        return;
    };
    block.push(127);
    while rest >= 128 {
        block.push(u8::try_from(rest % 128).unwrap() | 128);
        rest /= 128;
    }
    block.push(u8::try_from(rest).unwrap());
}

/// The fields of a valid GET.
pub(super) fn get<'a>(host: &'a str, target: &'a str) -> Vec<(&'a str, &'a str)> {
    vec![
        (":method", "GET"),
        (":scheme", "https"),
        (":authority", host),
        (":path", target),
    ]
}

/// Outcome of a request or of its connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// An answer to the stream, with this status.
    Answer(u16),
    /// The stream was reset with this code.
    Reset(u32),
    /// The connection ended, with this code if one was given.
    Ended(Option<u32>),
}

pub(super) const NO_ERROR: u32 = 0;
pub(super) const PROTOCOL_ERROR: u32 = 1;
pub(super) const FLOW_CONTROL_ERROR: u32 = 3;
pub(super) const FRAME_SIZE_ERROR: u32 = 6;
pub(super) const CANCEL: u32 = 8;
pub(super) const ENHANCE_YOUR_CALM: u32 = 11;

/// A connection after its handshake and preface.
pub(super) struct Connection {
    pub(super) reader: Reader,
    pub(super) writer: Writer,
}

pub(super) struct Reader(ReadHalf<TlsStream<TcpStream>>);
pub(super) struct Writer(WriteHalf<TlsStream<TcpStream>>);

impl Connection {
    pub(super) async fn open(engine: &TestEngine, host: &str) -> Self {
        let mut connection = Self::silent(engine, host).await;
        let mut preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        preface.extend(frame(SETTINGS, 0, 0, []).to_bytes());
        connection.writer.send(&preface).await;
        connection
    }

    /// A connection that negotiated HTTP/2 and has sent nothing.
    pub(super) async fn silent(engine: &TestEngine, host: &str) -> Self {
        let config: Arc<ClientConfig> = engine.ca().client(&["h2"]);
        let stream = engine.visitor().connect(host, &config).await;
        let (reader, writer) = tokio::io::split(stream);
        Self {
            reader: Reader(reader),
            writer: Writer(writer),
        }
    }

    /// Sends frames and waits for the outcome of stream 1 or of the connection.
    pub(super) async fn outcome(&mut self, frames: &[Frame]) -> Outcome {
        let bytes: Vec<u8> = frames.iter().flat_map(Frame::to_bytes).collect();
        let (fate, _sent) = tokio::join!(self.reader.outcome(1), self.writer.try_send(&bytes));
        fate
    }
}

impl Writer {
    pub(super) async fn send(&mut self, bytes: &[u8]) {
        assert!(self.try_send(bytes).await, "the edge reads");
    }

    /// Sends the bytes and returns false if the edge has closed the connection.
    pub(super) async fn try_send(&mut self, bytes: &[u8]) -> bool {
        let writing = async {
            self.0.write_all(bytes).await?;
            self.0.flush().await
        };
        within("room for bytes to the edge", writing).await.is_ok()
    }
}

impl Reader {
    /// The next frame, or nothing if the connection has ended.
    pub(super) async fn next(&mut self) -> Option<Frame> {
        let reading = async {
            let mut head = [0; 9];
            self.0.read_exact(&mut head).await.ok()?;
            let len = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let mut payload = vec![0; usize::try_from(len).unwrap()];
            self.0.read_exact(&mut payload).await.ok()?;
            let stream = u32::from_be_bytes([head[5] & 127, head[6], head[7], head[8]]);
            Some(frame(head[3], head[4], stream, payload))
        };
        within("frame from the edge", reading).await
    }

    /// Waits for the outcome of a stream or of the connection.
    pub(super) async fn outcome(&mut self, stream: u32) -> Outcome {
        let mut status = None;
        let mut code = None;
        while let Some(frame) = self.next().await {
            match frame.kind {
                GOAWAY => code = Some(frame.code()),
                RST_STREAM if frame.stream == stream => return Outcome::Reset(frame.code()),
                HEADERS if frame.stream == stream && status.is_none() => {
                    status = Some(status_of(&frame.payload));
                }
                _ => {}
            }
            let ends = matches!(frame.kind, DATA | HEADERS) && frame.flags & END_STREAM != 0;
            if let Some(status) = status.filter(|_| ends && frame.stream == stream) {
                return Outcome::Answer(status);
            }
        }
        Outcome::Ended(code)
    }
}

/// The status at the start of the first header block of a connection, either from the static table
/// or as three digits in Huffman code (RFC 7541, appendices A and B).
fn status_of(block: &[u8]) -> u16 {
    match block {
        [index @ 0x88..=0x8e, ..] => [200, 204, 206, 304, 400, 404, 500][usize::from(index - 0x88)],
        [0x08 | 0x48 | 0x18, length, code @ ..] if length & 0x80 != 0 => {
            let mut bits = code
                .iter()
                .flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1));
            let mut take = |code: u16| code << 1 | u16::from(bits.next().unwrap());
            (0..3).fold(0, |status, _| {
                let digit = match (0..5).fold(0, |code, _| take(code)) {
                    short @ 0..=2 => short,
                    // 3 to 9 have six bits, from 011001 on.
                    long => take(long) - 0b01_1001 + 3,
                };
                status * 10 + digit
            })
        }
        _ => panic!("no status: {}", block.escape_ascii()),
    }
}

//! The transport on standard input and output: each message is a line (MCP, "stdio").
//!
//! The SDK's own transport ignores lines that are too long without a response, so that the client
//! waits forever.

use std::io;
use std::sync::Arc;

use futures_util::{SinkExt, StreamExt as _};
use rmcp::RoleServer;
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::Mutex;
use tokio_util::bytes::BytesMut;
use tokio_util::codec::{Decoder, FramedRead, FramedWrite, LinesCodec, LinesCodecError};

use crate::server::MAX_REQUEST_BYTES;
use crate::tools;

/// Reader and writer of messages.
pub(crate) struct Lines<R, W> {
    read: FramedRead<R, BoundedLines>,
    write: Arc<Mutex<FramedWrite<W, LinesCodec>>>,
    /// The error response to send before the next line is read. It is stored here because the
    /// service cancels waiting for a message whenever it has something else to do.
    refusal: Option<String>,
}

impl<R: AsyncRead, W: AsyncWrite + Unpin> Lines<R, W> {
    pub(crate) fn new(read: R, write: W) -> Self {
        // The same limit as on the platform's endpoint, which receives most calls.
        let codec = LinesCodec::new_with_max_length(MAX_REQUEST_BYTES);
        Self {
            read: FramedRead::new(read, BoundedLines(codec)),
            write: Arc::new(Mutex::new(FramedWrite::new(write, LinesCodec::new()))),
            refusal: None,
        }
    }

    /// Sends a pending refusal, once.
    async fn refuse(&mut self) -> Result<(), LinesCodecError> {
        if let Some(answer) = self.refusal.clone() {
            let mut write = self.write.lock().await;
            write.feed(answer).await?;
            self.refusal = None;
            SinkExt::<String>::flush(&mut *write).await?;
        }
        Ok(())
    }
}

impl<R, W> Transport<RoleServer> for Lines<R, W>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    type Error = io::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let write = Arc::clone(&self.write);
        async move {
            let mut message = serde_json::to_value(message)?;
            tools::add_schemes(&mut message);
            let mut write = write.lock().await;
            write
                .send(message.to_string())
                .await
                .map_err(io::Error::other)
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            // A broken standard input or output ends the transport.
            self.refuse().await.ok()?;
            // No input is read from a client that does not read responses, because they would
            // accumulate here.
            drop(self.write.lock().await);
            self.refusal = match self.read.next().await?.ok()? {
                InputLine::Text(text) => match read(&text) {
                    Ok(message) => return Some(message),
                    Err(refusal) => refusal,
                },
                InputLine::TooLong => Some(refusal(&Value::Null, -32600, TOO_LONG)),
                InputLine::NoText => Some(refusal(&Value::Null, -32700, "The line is not UTF-8.")),
            };
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        let mut write = self.write.lock().await;
        write.get_mut().shutdown().await
    }
}

/// Parses a message. The error is the response to an invalid one, if it gets any.
fn read(text: &str) -> Result<RxJsonRpcMessage<RoleServer>, Option<String>> {
    // Empty lines between messages are ignored.
    if text.trim().is_empty() {
        return Err(None);
    }
    let Ok(value) = serde_json::from_str::<Value>(text) else {
        return Err(Some(refusal(&Value::Null, -32700, "The line is not JSON.")));
    };
    let id = value
        .get("id")
        .filter(|id| id.is_string() || id.is_number());
    let id = id.cloned().unwrap_or_default();
    // Notifications and responses get no response: two peers that respond to responses would never
    // stop.
    let is_notification = value.get("method").is_some() && id.is_null();
    let is_answer = value.get("error").is_some() || value.get("result").is_some();
    serde_json::from_value(value).map_err(|_| {
        let refusal = refusal(&id, -32600, "The line is not a message of the protocol.");
        (!is_notification && !is_answer).then_some(refusal)
    })
}

/// The response to an invalid message (JSON-RPC 2.0 section 5.1).
fn refusal(id: &Value, code: i32, message: &str) -> String {
    let error = json!({"code": code, "message": message});
    json!({"jsonrpc": "2.0", "id": id, "error": error}).to_string()
}

/// Lines of limited length. An invalid line does not end the stream: reading continues after it.
struct BoundedLines(LinesCodec);

enum InputLine {
    Text(String),
    TooLong,
    NoText,
}

impl Decoder for BoundedLines {
    type Item = InputLine;
    type Error = io::Error;

    fn decode(&mut self, bytes: &mut BytesMut) -> io::Result<Option<InputLine>> {
        line(self.0.decode(bytes))
    }

    fn decode_eof(&mut self, bytes: &mut BytesMut) -> io::Result<Option<InputLine>> {
        line(self.0.decode_eof(bytes))
    }
}

fn line(decoded: Result<Option<String>, LinesCodecError>) -> io::Result<Option<InputLine>> {
    match decoded {
        Ok(text) => Ok(text.map(InputLine::Text)),
        Err(LinesCodecError::MaxLineLengthExceeded) => Ok(Some(InputLine::TooLong)),
        Err(LinesCodecError::Io(error)) if error.kind() == io::ErrorKind::InvalidData => {
            Ok(Some(InputLine::NoText))
        }
        Err(LinesCodecError::Io(error)) => Err(error),
    }
}

const TOO_LONG: &str = "A message has at most 256 KiB.";

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use rmcp::ErrorData;
    use tokio::io::{AsyncBufReadExt as _, BufReader, DuplexStream, split};

    use super::*;

    /// Returns the responses to a text, line by line, and the messages that the service receives.
    async fn responses_and_messages(text: &[u8]) -> (Vec<Value>, Vec<Value>) {
        let (theirs, ours) = tokio::io::duplex(1 << 20);
        let (read, write) = split(ours);
        let mut lines = Lines::new(read, write);
        let (read, mut write) = split(theirs);
        write.write_all(text).await.unwrap();
        write.shutdown().await.unwrap();
        let mut messages = Vec::new();
        while let Some(message) = lines.receive().await {
            messages.push(serde_json::to_value(message).unwrap());
        }
        lines.close().await.unwrap();
        (answers(read).await, messages)
    }

    async fn answers(read: tokio::io::ReadHalf<DuplexStream>) -> Vec<Value> {
        let mut answers = Vec::new();
        let mut lines = BufReader::new(read).lines();
        while let Some(line) = lines.next_line().await.unwrap() {
            answers.push(serde_json::from_str(&line).unwrap());
        }
        answers
    }

    const PING: &str = r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#;

    fn refused(code: i32) -> impl Fn(&Value) -> bool {
        move |answer| answer["error"]["code"] == code
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_is_refused_and_the_next_is_read() {
        let padding = " ".repeat(MAX_REQUEST_BYTES - PING.len());
        let longest = format!("{PING}{padding}\n");
        let (answers, messages) = responses_and_messages(longest.as_bytes()).await;
        assert_eq!((answers.len(), messages.len()), (0, 1), "{answers:?}");

        let longer = format!("{PING}{padding} \n{PING}\n");
        let (answers, messages) = responses_and_messages(longer.as_bytes()).await;
        assert_eq!(messages.len(), 1);
        assert_eq!(answers.len(), 1);
        assert!(refused(-32600)(&answers[0]), "{answers:?}");
        assert_eq!(answers[0]["id"], Value::Null);
        assert_eq!(answers[0]["error"]["message"], TOO_LONG);
    }

    #[tokio::test]
    async fn an_endless_line_is_refused_before_it_fills_memory() {
        let (mut theirs, ours) = tokio::io::duplex(4096);
        let (read, write) = split(ours);
        let mut lines = Lines::new(read, write);
        let service = tokio::spawn(async move { lines.receive().await });
        // This line has no end; the response arrives while it is being written.
        theirs
            .write_all(&vec![b'x'; MAX_REQUEST_BYTES + 8192])
            .await
            .unwrap();
        let mut answer = String::new();
        BufReader::new(&mut theirs)
            .read_line(&mut answer)
            .await
            .unwrap();
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(answer["error"]["message"], TOO_LONG);
        service.abort();
    }

    #[tokio::test]
    async fn input_waits_until_responses_are_read() {
        let (theirs, ours) = tokio::io::duplex(128);
        let (read, write) = split(ours);
        let mut lines = Lines::new(read, write);
        let (read, mut write) = split(theirs);
        let ping = format!("{PING}\n");
        write.write_all(ping.as_bytes()).await.unwrap();
        let long = ErrorData::internal_error("x".repeat(1024), None);
        let mut answer = Box::pin(lines.send(TxJsonRpcMessage::<RoleServer>::error(long, None)));
        assert!((&mut answer).now_or_never().is_none());
        assert!(lines.receive().now_or_never().is_none());
        let reader = tokio::spawn(answers(read));
        answer.await.unwrap();
        assert!(lines.receive().await.is_some());
        lines.close().await.unwrap();
        assert_eq!(reader.await.unwrap().len(), 1);
    }

    #[tokio::test]
    async fn invalid_messages_are_refused_with_their_id() {
        for (line, code, id) in [
            (&b"{"[..], -32700, Value::Null),
            (b"\xff", -32700, Value::Null),
            (b"[]", -32600, Value::Null),
            (br#"{"jsonrpc":"2.0","id":3}"#, -32600, json!(3)),
            (
                br#"{"jsonrpc":"1.0","id":"a","method":"ping"}"#,
                -32600,
                json!("a"),
            ),
        ] {
            let text = [line, b"\n", PING.as_bytes(), b"\n"].concat();
            let (answers, messages) = responses_and_messages(&text).await;
            assert_eq!((answers.len(), messages.len()), (1, 1), "{answers:?}");
            assert!(refused(code)(&answers[0]), "{answers:?}");
            assert_eq!(answers[0]["id"], id);
        }
    }

    /// A client that sends back every response causes no loop.
    #[tokio::test]
    async fn responses_get_no_response() {
        for line in [
            refusal(&Value::Null, -32600, TOO_LONG),
            r#"{"jsonrpc":"2.0","result":5}"#.to_owned(),
            r#"{"jsonrpc":"1.0","method":"notifications/x"}"#.to_owned(),
            "\r".to_owned(),
            String::new(),
        ] {
            let (answers, _) = responses_and_messages(format!("{line}\n").as_bytes()).await;
            assert_eq!(answers, [] as [Value; 0], "{line}");
        }
    }
}

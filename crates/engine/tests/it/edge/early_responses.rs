//! Answers that arrive before the request is complete.

use testing::{ScriptedUpstream, Step, TestEngine, within};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// The service closes with most of the request unread, so its system sends a reset after the
/// answer. The agent's next write fails, and the data that it has read must be delivered all the
/// same.
#[tokio::test]
async fn an_answer_before_a_reset_is_delivered() {
    const ANSWER: &str = "HTTP/1.1 413 Content Too Large\r\ncontent-length: 8\r\n\r\ntoo much";
    let engine = TestEngine::start().await;
    let upstream = ScriptedUpstream::start(|_| {
        // More than the system buffers for a socket that is not read.
        vec![
            Step::ReadHead,
            Step::ReadBytes(1_000_000),
            Step::write(ANSWER),
        ]
    })
    .await;
    let tunnel = engine.publish(upstream.addr()).await;
    let host = tunnel.hostname();
    for _ in 0..20 {
        let mut visitor = engine.visitor().http1(host).await;
        let length = "Content-Length: 1000000000\r\n";
        visitor.request("POST", "/", host, length).await;
        let (mut reader, mut writer) = tokio::io::split(visitor.into_stream());
        let uploading = tokio::spawn(async move {
            let piece = vec![0; 64 * 1024];
            while writer.write_all(&piece).await.is_ok() {}
        });
        let mut answer = vec![0; ANSWER.len()];
        let read = within("answer", reader.read_exact(&mut answer)).await;
        let answer = String::from_utf8_lossy(&answer).into_owned();
        assert!(read.is_ok(), "{read:?} {answer}");
        assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
        drop(reader);
        within("end of the upload", uploading).await.unwrap();
    }
}

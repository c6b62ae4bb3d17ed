//! Spectators of a terminal session: each reads the engine's output and discards it.

use std::io::BufRead as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, Result, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinSet;

use crate::target::{Stream, Target};

/// Attaches the spectators from stdin, one per line: the URL of the stream, the session, the
/// participant, the grant in hex. After an empty line it prints `open`; at the end of stdin, the
/// total number of received bytes.
pub(crate) async fn watch(ca_file: &str, token: &str) -> Result<()> {
    let mut watching = JoinSet::new();
    let received = Arc::new(AtomicU64::new(0));
    while let Some(line) = next_line().await? {
        if line.is_empty() {
            break;
        }
        let words: Vec<&str> = line.split(' ').collect();
        let [url, session, participant, grant] = words[..] else {
            anyhow::bail!("a line is URL SESSION PARTICIPANT GRANT");
        };
        let target = Target::new(url, ca_file)?;
        let fields = format!("{UPGRADE}Authorization: Bearer {token}\r\n");
        let (mut stream, rest) = target.ask(&fields, "101").await?;
        let attach = attach(session, participant, &bytes_of(grant)?)?;
        stream.write_all(&frame(&attach)?).await?;
        // The first message is the screen, after which the spectator is attached.
        let first = match rest.len() {
            0 => stream.read(&mut [0; 1 << 10]).await?,
            count => count,
        };
        ensure!(first > 0, "a spectator was hung up to");
        received.fetch_add(first as u64, Ordering::Relaxed);
        watching.spawn(read(stream, Arc::clone(&received)));
    }
    println!("open");
    while next_line().await?.is_some() {}
    let ended = std::iter::from_fn(|| watching.try_join_next()).count();
    println!(
        r#"{{"bytes": {}, "ended": {ended}}}"#,
        received.load(Ordering::Relaxed)
    );
    Ok(())
}

async fn next_line() -> Result<Option<String>> {
    let read = tokio::task::spawn_blocking(|| std::io::stdin().lock().lines().next());
    Ok(read.await?.transpose()?)
}

async fn read(mut stream: Box<dyn Stream>, got: Arc<AtomicU64>) {
    let mut bytes = vec![0; 64 << 10];
    while let Ok(count @ 1..) = stream.read(&mut bytes).await {
        got.fetch_add(count as u64, Ordering::Relaxed);
    }
}

/// The message `attach` (`docs/webtty-protocol.md`) of a spectator over a WebSocket.
fn attach(session: &str, participant: &str, grant: &[u8]) -> Result<Vec<u8>> {
    let mut fields = Vec::new();
    for (tag, text) in [
        (0x0a, session.as_bytes()),
        (0x12, participant.as_bytes()),
        (0x1a, grant),
    ] {
        fields.extend_from_slice(&[tag, short(text.len())?]);
        fields.extend_from_slice(text);
    }
    // The role and the transport.
    fields.extend_from_slice(&[0x20, 1, 0x28, 2]);
    let mut message = vec![0x42, short(fields.len())?];
    message.append(&mut fields);
    Ok(message)
}

/// A length that takes one byte in protobuf.
fn short(length: usize) -> Result<u8> {
    ensure!(
        length < 0x80,
        "{length} bytes are more than a short field has"
    );
    Ok(u8::try_from(length)?)
}

/// A WebSocket message of less than 64 KiB, with an all-zero mask.
fn frame(message: &[u8]) -> Result<Vec<u8>> {
    let mut frame = vec![0x82, 0x80 | 0x7e];
    frame.extend_from_slice(&u16::try_from(message.len())?.to_be_bytes());
    if message.len() < 126 {
        frame = vec![0x82, 0x80 | u8::try_from(message.len())?];
    }
    frame.extend_from_slice(&[0; 4]);
    frame.extend_from_slice(message);
    Ok(frame)
}

fn bytes_of(hex: &str) -> Result<Vec<u8>> {
    let digits: Option<Vec<u32>> = hex.chars().map(|c| c.to_digit(16)).collect();
    digits
        .context("a grant is in hex")?
        .chunks_exact(2)
        .map(|pair| {
            Ok(u8::try_from(
                pair.iter().fold(0, |byte, digit| byte * 16 + digit),
            )?)
        })
        .collect()
}

/// The key is the RFC's example, because it need not be random here.
const UPGRADE: &str = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attach_message_has_four_texts_and_numbers() {
        let grant = bytes_of("01ff").unwrap();
        assert_eq!(
            attach("s", "p", &grant).unwrap(),
            [
                0x42, 14, 0x0a, 1, b's', 0x12, 1, b'p', 0x1a, 2, 1, 255, 0x20, 1, 0x28, 2
            ]
        );
        assert!(attach(&"s".repeat(200), "p", &grant).is_err());
    }

    #[test]
    fn a_frame_has_the_length_of_its_message() {
        assert_eq!(frame(b"ab").unwrap(), [0x82, 0x82, 0, 0, 0, 0, b'a', b'b']);
        let long = frame(&[7; 200]).unwrap();
        assert_eq!(long[..4], [0x82, 0xfe, 0, 200]);
        assert_eq!(long.len(), 8 + 200);
    }
}

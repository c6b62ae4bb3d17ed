//! WebSocket round trips: an echo service, and its load.
//!
//! Messages are short (a header of two bytes, RFC 6455 section 5.2), so frames are built by hand: a
//! library would be a large part of the measurement.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use crate::quantiles::Samples;
use crate::target::Target;

/// Echoes every message of every client, until it is killed. It responds to other requests with
/// `200`, so that the bench can wait until a tunnel to this service is up.
pub(crate) async fn serve(address: &str) -> Result<()> {
    let listener = TcpListener::bind(address).await?;
    loop {
        let (client, _) = listener.accept().await?;
        // A disconnected client only ends its own task.
        tokio::spawn(async move { echo(client).await.ok() });
    }
}

async fn echo(mut client: TcpStream) -> Result<()> {
    client.set_nodelay(true)?;
    let mut bytes = Vec::with_capacity(16 << 10);
    loop {
        let head = loop {
            if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
                break bytes.drain(..end + 4).collect::<Vec<u8>>();
            }
            ensure!(
                client.read_buf(&mut bytes).await? > 0 && bytes.len() < 16 << 10,
                "no request"
            );
        };
        let head = String::from_utf8(head)?;
        let key = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("sec-websocket-key")
                .then(|| value.trim())
        });
        let Some(key) = key else {
            client
                .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nup\n")
                .await?;
            continue;
        };
        let accept = derive_accept_key(key.as_bytes());
        let answer = format!(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"
        );
        client.write_all(answer.as_bytes()).await?;
        break;
    }
    let mut answers = Vec::new();
    loop {
        while let Some(frame) = masked_frame(&bytes) {
            answers.extend_from_slice(&[BINARY, u8::try_from(frame.payload.len())?]);
            answers.extend(
                frame
                    .payload
                    .iter()
                    .zip(frame.mask.iter().cycle())
                    .map(|(byte, mask)| byte ^ mask),
            );
            let used = frame.length;
            bytes.drain(..used);
        }
        client.write_all(&answers).await?;
        answers.clear();
        ensure!(client.read_buf(&mut bytes).await? > 0, "the client is gone");
    }
}

/// A client's frame with a short payload.
struct MaskedFrame<'a> {
    mask: &'a [u8],
    payload: &'a [u8],
    /// Length of the whole frame.
    length: usize,
}

fn masked_frame(bytes: &[u8]) -> Option<MaskedFrame<'_>> {
    let payload = usize::from(bytes.get(1)? & 0x7f);
    Some(MaskedFrame {
        mask: bytes.get(2..6)?,
        payload: bytes.get(6..6 + payload)?,
        length: 6 + payload,
    })
}

/// Opens the sockets, and sends the next message on each as soon as the previous one has returned.
pub(crate) async fn load(target: Target, sockets: usize, seconds: f64, bytes: u8) -> Result<()> {
    ensure!(
        bytes <= MAX_SHORT,
        "a short message has {MAX_SHORT} bytes at most"
    );
    let mut open = Vec::new();
    for _ in 0..sockets {
        let (stream, rest) = target.ask(UPGRADE, "101").await?;
        ensure!(rest.is_empty(), "a message before the first");
        open.push(stream);
    }
    let begun = Instant::now();
    let end = begun + Duration::from_secs_f64(seconds);
    let mut tasks = JoinSet::new();
    for mut stream in open {
        tasks.spawn(async move {
            // The mask is zero: masking costs CPU in the load generator, and does not affect the
            // tunnel.
            let mut frame = vec![BINARY, 0x80 | bytes, 0, 0, 0, 0];
            frame.resize(6 + usize::from(bytes), b'x');
            let mut answer = vec![0; 2 + usize::from(bytes)];
            let mut samples = Samples::default();
            let mut now = Instant::now();
            while now < end {
                stream.write_all(&frame).await?;
                stream.read_exact(&mut answer).await?;
                let sent = std::mem::replace(&mut now, Instant::now());
                samples.add(now - sent);
            }
            Ok::<_, anyhow::Error>(samples)
        });
    }
    let mut all = Samples::default();
    while let Some(done) = tasks.join_next().await {
        all.merge(done?.context("a socket ended")?);
    }
    let wall = begun.elapsed().as_secs_f64();
    let n = all.len();
    let (p50, p99) = all.p50_p99();
    println!(r#"{{"n": {n}, "wall": {wall}, "p50": {p50}, "p99": {p99}}}"#);
    Ok(())
}

/// A complete binary message.
const BINARY: u8 = 0x82;
/// Longer payloads have longer headers.
const MAX_SHORT: u8 = 125;
/// The key is the RFC's example, because it need not be random here.
const UPGRADE: &str = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_parsed_when_it_is_complete() {
        let frame = [BINARY, 0x82, 1, 2, 3, 4, b'a', b'b', b'!'];
        assert!((0..8).all(|end| masked_frame(&frame[..end]).is_none()));
        let parsed = masked_frame(&frame).unwrap();
        assert_eq!((parsed.payload, parsed.length), (b"ab".as_slice(), 8));
    }
}

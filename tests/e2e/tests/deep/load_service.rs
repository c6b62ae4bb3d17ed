//! A service behind tunnels: short answers, WebSockets, long downloads and TCP streams.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::UPGRADED;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{interval, timeout};

/// The service. It ends with this value.
pub(crate) struct LoadService {
    /// Address of HTTP.
    pub(crate) web: SocketAddr,
    /// Address of an echo service.
    pub(crate) echo: SocketAddr,
    _tasks: JoinSet<Result<()>>,
}

impl LoadService {
    /// Starts it. Downloads end when `has_ended` becomes true.
    pub(crate) async fn start(has_ended: watch::Receiver<bool>) -> Result<Self> {
        let mut tasks: JoinSet<Result<()>> = JoinSet::new();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let web = listener.local_addr()?;
        tasks.spawn(async move {
            // Connections end with the test.
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await?;
                connections.spawn(answer(stream, has_ended.clone()));
                while connections.try_join_next().is_some() {}
            }
        });
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let echo = listener.local_addr()?;
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (mut stream, _) = listener.accept().await?;
                connections.spawn(async move {
                    let (mut reader, mut writer) = stream.split();
                    tokio::io::copy(&mut reader, &mut writer).await
                });
            }
        });
        Ok(Self {
            web,
            echo,
            _tasks: tasks,
        })
    }
}

/// Answers one request.
async fn answer(mut stream: TcpStream, has_ended: watch::Receiver<bool>) -> Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        ensure!(stream.read_buf(&mut head).await? > 0, "no request");
    }
    if head.starts_with(b"GET /ws ") {
        stream.write_all(UPGRADED.as_bytes()).await?;
        return echo_frames(stream).await;
    }
    if head.starts_with(b"GET /download ") {
        return download(stream, has_ended).await;
    }
    let length = head.len();
    let answer =
        format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    stream.write_all(answer.as_bytes()).await?;
    Ok(stream.write_all(&head).await?)
}

/// Returns the payload of each frame.
async fn echo_frames(mut stream: TcpStream) -> Result<()> {
    let mut frame = [0; 10];
    loop {
        stream.read_exact(&mut frame).await?;
        let [.., a, b, c, d] = frame;
        let [first, second] = SERVER_FRAME;
        stream.write_all(&[first, second, a, b, c, d]).await?;
    }
}

/// Sends consecutive numbers, in chunks, so that a truncated answer is not complete.
async fn download(mut stream: TcpStream, has_ended: watch::Receiver<bool>) -> Result<()> {
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n";
    stream.write_all(head.as_bytes()).await?;
    let mut pace = interval(CHUNK_PERIOD);
    let mut next = 0_u64;
    while !*has_ended.borrow() {
        pace.tick().await;
        let chunk: Vec<u8> = (next..next + CHUNK_NUMBERS)
            .flat_map(u64::to_be_bytes)
            .collect();
        next += CHUNK_NUMBERS;
        let length = format!("{:x}\r\n", chunk.len());
        let chunk = [length.as_bytes(), &chunk, b"\r\n"].concat();
        stream.write_all(&chunk).await?;
    }
    Ok(stream.write_all(b"0\r\n\r\n").await?)
}

/// Checks that a downloaded body lacks no byte, up to its end. Returns the number of chunks.
pub(crate) fn check_download(body: &[u8]) -> Result<u64> {
    for (expected, number) in (0_u64..).zip(body.chunks(8)) {
        ensure!(number == expected.to_be_bytes(), "wrong from {expected} on");
    }
    let length = u64::try_from(body.len())?;
    ensure!(length % (8 * CHUNK_NUMBERS) == 0, "{length} bytes");
    Ok(length / (8 * CHUNK_NUMBERS))
}

/// Sends numbered messages, each of which must return, until `has_ended`. `heads` precede a message and
/// its answer. Returns their number.
pub(crate) async fn exchange(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    (head, answer_head): (&'static [u8], &'static [u8]),
    has_ended: watch::Receiver<bool>,
) -> Result<u32> {
    let mut pace = interval(MESSAGE_PERIOD);
    let mut number = 0_u32;
    while !*has_ended.borrow() {
        pace.tick().await;
        let payload = number.to_be_bytes();
        stream.write_all(&[head, &payload].concat()).await?;
        stream.flush().await?;
        let expected = [answer_head, &payload].concat();
        let mut received = vec![0; expected.len()];
        let receiving = timeout(WAIT_LIMIT, stream.read_exact(&mut received));
        receiving
            .await
            .with_context(|| format!("message {number}"))??;
        ensure!(received == expected, "message {number}: {received:?}");
        number += 1;
    }
    Ok(number)
}

/// Head of a binary frame of a client with four bytes of payload, and a mask that changes nothing
/// (RFC 6455 section 5.2).
pub(crate) const CLIENT_FRAME: [u8; 6] = [0x82, 0x84, 0, 0, 0, 0];

/// The same of a server.
pub(crate) const SERVER_FRAME: [u8; 2] = [0x82, 0x04];

/// Five messages per second.
const MESSAGE_PERIOD: Duration = Duration::from_millis(200);

/// Twenty chunks per second.
const CHUNK_PERIOD: Duration = Duration::from_millis(50);

/// 16 KiB: a minute of a download fits into the memory of a test.
const CHUNK_NUMBERS: u64 = 2048;

/// Longer than any message takes.
const WAIT_LIMIT: Duration = Duration::from_mins(1);

//! A proxy between a program and PostgreSQL that can become slow, fall silent, or break at any
//! message.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// A listener on loopback that connects to a server's socket.
pub(crate) struct Proxy {
    address: SocketAddr,
    database: String,
    line: Arc<Line>,
    task: JoinHandle<()>,
}

/// State of the connection.
struct Line {
    /// Delay of each piece of an answer.
    delay: watch::Sender<Duration>,
    /// Connections before this one forward nothing any more, without an error.
    silent_before: watch::Sender<u64>,
    /// Number of requests until the connection is cut, or 0 to never cut it.
    fuse: AtomicUsize,
    /// True if the request at which it is cut reaches the server.
    cut_after: std::sync::atomic::AtomicBool,
    cuts: AtomicUsize,
    connections: AtomicU64,
}

impl Proxy {
    /// Starts it in front of a database with a Unix socket address.
    pub(crate) async fn start(url: &str) -> Self {
        let (database, socket) = parts(url);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let line = Arc::new(Line {
            delay: watch::Sender::new(Duration::ZERO),
            silent_before: watch::Sender::new(0),
            fuse: AtomicUsize::new(0),
            cut_after: false.into(),
            cuts: AtomicUsize::new(0),
            connections: AtomicU64::new(0),
        });
        let shared = Arc::clone(&line);
        let task = tokio::spawn(async move {
            let mut tasks = tokio::task::JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let (line, socket) = (Arc::clone(&shared), socket.clone());
                let number = line.connections.fetch_add(1, Ordering::Relaxed) + 1;
                tasks.spawn(async move {
                    // Both ends are closed when this ends.
                    if let Ok(server) = UnixStream::connect(&socket).await {
                        carry(&line, number, client, server).await.ok();
                    }
                });
            }
        });
        Self {
            address,
            database,
            line,
            task,
        }
    }

    /// The database's address through this proxy.
    pub(crate) fn url(&self) -> String {
        let (address, database) = (self.address, &self.database);
        format!("postgres://svc@{address}/{database}?sslmode=disable")
    }

    /// From now on, each piece of an answer is delayed by this time.
    pub(crate) fn delay(&self, delay: Duration) {
        self.line.delay.send_replace(delay);
    }

    /// Existing connections forward nothing any more, in either direction. New ones do.
    pub(crate) fn silence(&self) {
        let known = self.line.connections.load(Ordering::Relaxed);
        self.line.silent_before.send_replace(known + 1);
    }

    /// Cuts the connection that carries the `at`th request from now on, either before the server
    /// receives it, or after the server has answered and before the client receives the answer.
    pub(crate) fn cut(&self, at: usize, after: bool) {
        self.line.cuts.store(0, Ordering::SeqCst);
        self.line.cut_after.store(after, Ordering::SeqCst);
        self.line.fuse.store(at, Ordering::SeqCst);
    }

    /// Cancels the cut. Returns true if one happened.
    pub(crate) fn mend(&self) -> bool {
        self.line.fuse.store(0, Ordering::SeqCst);
        self.line.cuts.load(Ordering::SeqCst) > 0
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The name of the database and the path of the socket in an address.
fn parts(url: &str) -> (String, PathBuf) {
    let rest = url.strip_prefix("postgres://svc@localhost/").unwrap();
    let (database, query) = rest.split_once('?').unwrap();
    let query: HashMap<_, _> = query
        .split('&')
        .map(|pair| pair.split_once('=').unwrap())
        .collect();
    let directory = query["host"].replace("%2F", "/");
    (
        database.to_owned(),
        PathBuf::from(directory).join(".s.PGSQL.5432"),
    )
}

async fn carry(
    line: &Line,
    number: u64,
    client: tokio::net::TcpStream,
    server: UnixStream,
) -> io::Result<()> {
    client.set_nodelay(true)?;
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    // True if the next answer is the last one, which is not delivered.
    let dying = watch::Sender::new(false);
    let up = async {
        let mut first = true;
        loop {
            let message = message(&mut from_client, first).await?;
            let kind = message.first().copied();
            // A simple query, or the end of an extended one: the messages that the server answers.
            if !first && matches!(kind, Some(b'Q' | b'S')) && line.burns() {
                if !line.cut_after.load(Ordering::SeqCst) {
                    return Err::<(), io::Error>(io::ErrorKind::ConnectionAborted.into());
                }
                dying.send_replace(true);
            }
            first = false;
            line.lets(number).await;
            to_server.write_all(&message).await?;
        }
    };
    let down = async {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let read = from_server.read(&mut buffer).await?;
            if read == 0 || *dying.borrow() {
                return Err::<(), io::Error>(io::ErrorKind::ConnectionAborted.into());
            }
            let delay = *line.delay.borrow();
            if !delay.is_zero() {
                tokio::time::sleep(delay).await;
            }
            line.lets(number).await;
            to_client.write_all(&buffer[..read]).await?;
        }
    };
    tokio::select! {
        ended = up => ended,
        ended = down => ended,
    }
}

impl Line {
    /// Waits forever if the connection has fallen silent.
    async fn lets(&self, number: u64) {
        if *self.silent_before.borrow() > number {
            std::future::pending::<()>().await;
        }
    }

    /// Counts a request. Returns true if the connection must be cut at it.
    fn burns(&self) -> bool {
        let burn = |left: usize| left.checked_sub(1);
        let was = self
            .fuse
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, burn);
        let cut = was == Ok(1);
        if cut {
            self.cuts.fetch_add(1, Ordering::SeqCst);
        }
        cut
    }
}

/// One message of the client with its header. The first message has no type (PostgreSQL 55.7).
async fn message(from: &mut (impl AsyncRead + Unpin), first: bool) -> io::Result<Vec<u8>> {
    let mut message = Vec::new();
    if !first {
        message.push(from.read_u8().await?);
    }
    let length = from.read_u32().await?;
    message.extend_from_slice(&length.to_be_bytes());
    let head = message.len();
    message.resize(head + usize::try_from(length).unwrap() - 4, 0);
    from.read_exact(&mut message[head..]).await?;
    Ok(message)
}

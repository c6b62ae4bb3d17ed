//! Private services to publish.

mod events;
mod http;
mod script;
mod websocket;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

pub use events::EventSource;
pub use script::{Gate, Report, ScriptedUpstream, Step};

use crate::{TestCa, grpc, within};

/// A server on a free port that counts the connections it accepts. It and all its connections end
/// when it is dropped.
pub struct Upstream {
    addr: SocketAddr,
    accepted: watch::Receiver<usize>,
    _acceptor: JoinSet<()>,
}

impl Upstream {
    /// Starts a server that runs `connection` for each connection, with its number from 1.
    pub async fn start<F, C>(connection: C) -> Self
    where
        C: FnMut(TcpStream, usize) -> F + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        Self::start_at(0, connection).await
    }

    /// As [`Self::start`], on a port that the test has leased. After the end of the server, no
    /// other server gets that port, so connections to it are refused.
    pub async fn start_at<F, C>(port: u16, mut connection: C) -> Self
    where
        C: FnMut(TcpStream, usize) -> F + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await;
        let listener = listener.expect("a free port");
        let addr = listener.local_addr().expect("an address");
        let (count, accepted) = watch::channel(0);
        let mut acceptor = JoinSet::new();
        acceptor.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _peer) = listener.accept().await.expect("a connection");
                stream.set_nodelay(true).expect("a socket option");
                count.send_modify(|count| *count += 1);
                let number = *count.borrow();
                connections.spawn(connection(stream, number));
            }
        });
        Self {
            addr,
            accepted,
            _acceptor: acceptor,
        }
    }

    /// An HTTP/1.1 server.
    ///
    /// * `/mirror` sends the request's body back as it arrives.
    /// * `/bytes/<n>` sends n bytes with a length, `/chunked/<n>` without; see [`Self::payload`].
    /// * `/status/<code>` sends that status and no body.
    /// * Every other path returns a JSON object about the request: `connection` and `request`
    ///   (their numbers from 1), `method`, `target`, `version`, `headers` (pairs, names in lower
    ///   case), `body`, and `trailers`.
    pub async fn http1() -> Self {
        Self::start(|stream, number| async move { http::serve_http1(stream, number).await }).await
    }

    /// The same over HTTP/2 without TLS; every response ends with the trailer `x-trailer: end`.
    pub async fn h2c() -> Self {
        Self::start(|stream, number| async move { http::serve_http2(stream, number).await }).await
    }

    /// The same over TLS for `127.0.0.1` and `localhost`, with the protocol that ALPN chooses.
    pub async fn tls(ca: &TestCa, alpns: &[&str]) -> Self {
        let config = ca.server(&["127.0.0.1", "localhost"], alpns);
        Self::start(move |stream, number| serve_tls(stream, number, Arc::clone(&config))).await
    }

    /// A WebSocket server that sends every message back. It chooses the first offered subprotocol.
    pub async fn websocket() -> Self {
        Self::start(|stream, _number| websocket::echo(stream)).await
    }

    /// The gRPC service of [`grpc`] over HTTP/2 without TLS.
    pub async fn grpc() -> Self {
        Self::start(|stream, _number| grpc::serve(stream)).await
    }

    /// A TCP server that sends every byte back, to the end of the stream.
    pub async fn tcp() -> Self {
        Self::start(|mut stream, _number| async move {
            let (mut reader, mut writer) = stream.split();
            if tokio::io::copy(&mut reader, &mut writer).await.is_ok() {
                tokio::io::AsyncWriteExt::shutdown(&mut writer).await.ok();
            }
        })
        .await
    }

    /// The listen address.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Number of accepted connections so far.
    pub fn accepted(&self) -> usize {
        *self.accepted.borrow()
    }

    /// Waits until it has accepted `count` connections.
    pub async fn wait_accepted(&self, count: usize) {
        let mut accepted = self.accepted.clone();
        let counted = accepted.wait_for(|now| *now >= count);
        within("connection to the server", counted)
            .await
            .expect("the server runs");
    }

    /// The `len` bytes that `/bytes/<len>` and `/chunked/<len>` send. The period is not a power of
    /// two, so that a lost or repeated block is noticed.
    pub fn payload(len: usize) -> Vec<u8> {
        let period: Vec<u8> = (0..=250).collect();
        let mut payload = period.repeat(len.div_ceil(period.len()));
        payload.truncate(len);
        payload
    }
}

async fn serve_tls(stream: TcpStream, number: usize, config: Arc<ServerConfig>) {
    let Ok(stream) = TlsAcceptor::from(config).accept(stream).await else {
        return;
    };
    if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
        http::serve_http2(stream, number).await;
    } else {
        http::serve_http1(stream, number).await;
    }
}

//! Listeners. Each connection is classified once, by its port, its TLS server name and its
//! protocol.
//!
//! Every worker listens on the same address, and the kernel distributes the connections. The
//! ClientHello determines the destination of a connection before any response:
//!
//! | server name | protocol (ALPN) | goes to |
//! |---|---|---|
//! | the base host, or none | `svc/1`, `rstrm/1` | [`crate::agents`] |
//! | the base host, or none | `h2`, `http/1.1`, `http/1.0`, none | the Engine API |
//! | a `tls` tunnel | any | [`crate::edge`], terminated or passed through |
//! | any other | `h2`, `http/1.1`, `http/1.0`, none | [`crate::edge`], as HTTP |
//! | the name of a pending order | only `acme-tls/1` | the answer to a challenge (RFC 8737) |

mod admit;
mod client_auth;
mod connections;
mod handshakes;
mod hello;
mod peer_ports;
mod plain;
mod port_memory;
mod routes;
#[cfg(test)]
mod sizes;
mod socket;
mod tcp_ports;
mod tcp_visitors;
mod tls;

pub(crate) use self::admit::is_trusted;
pub(crate) use self::connections::Connections;
pub(crate) use self::handshakes::Handshakes;
pub(crate) use self::peer_ports::keep_peer_ports;
pub(crate) use self::plain::serve_plain;
pub(crate) use self::socket::{adopt, bind};
pub(crate) use self::tcp_ports::{BoundPort, PortError, PortRecord, TcpPorts};
pub(crate) use self::tcp_visitors::accept_visitors;
pub(crate) use self::tls::{TlsConfigs, check_ciphers};

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::net::{TcpListener, TcpStream};
use tracing::warn;
use transport::Socket;

use crate::core::Worker;

/// Pause after an accept failed for lack of descriptors or memory. The waiting connection would
/// fail again immediately, and the loop must leave the core to tasks that can free resources.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Interval between two warnings about failed accepts.
const WARNING_INTERVAL: Duration = Duration::from_secs(10);

/// Accepts visitors and agents on one worker, from when this process serves until it drains.
pub(crate) async fn serve_tls(listener: TcpListener, worker: Arc<Worker>) {
    if !serves(&worker).await {
        return;
    }
    accept_loop(&listener, worker.drain.cancelled(), |stream, peer| {
        let visitor = Arc::clone(&worker);
        worker.spawn(async move {
            if let Some(socket) = admit::admit(stream, peer, &visitor.core).await {
                hello::serve(socket, visitor).await;
            }
        });
    })
    .await;
}

/// Accepts other engines of the cluster on one worker, from when this process serves until agents are
/// disconnected: a stream that leaves its lane needs a connection also during a drain. A process that
/// replaces this one accepts in its place from the start of the drain.
pub(crate) async fn serve_peers(listener: TcpListener, worker: Arc<Worker>) {
    if !serves(&worker).await {
        return;
    }
    let end = async {
        worker.drain.cancelled().await;
        if !worker.core.handover.replaced().is_cancelled() {
            worker.core.agents_stop.cancelled().await;
        }
    };
    accept_loop(&listener, end, |stream, peer| {
        let at = Arc::clone(&worker);
        // These connections outlive the visits, because other engines have visitors as well.
        let serving = async move { crate::cluster::serve_peer(stream, peer, at).await };
        worker.core.agents.spawn_on(serving, &worker.runtime);
    })
    .await;
}

/// Serves a connection that another process of this engine has accepted. `unread` was read from it.
pub(crate) async fn serve_passed(
    stream: std::net::TcpStream,
    source: SocketAddr,
    unread: Vec<u8>,
    worker: Arc<Worker>,
) {
    let Ok(stream) = TcpStream::from_std(stream) else {
        return;
    };
    let mut socket = Socket::new(stream, source);
    if socket.unread(&unread).is_err() {
        return;
    }
    if let Some(socket) = admit::count(socket, &worker.core) {
        hello::serve(socket, worker).await;
    }
}

/// Waits until this process serves. Returns false if it drains before.
async fn serves(worker: &Worker) -> bool {
    let begin = worker.core.handover.begin().cancelled();
    worker.drain.run_until_cancelled(begin).await.is_some()
}

/// Runs `serve` for each connection and its peer until `end`, which is the drain for visitors.
/// Accepting is cancel safe. The task of the caller is one of the visits: `serve` spawns another one
/// before it ends, so a drain never misses a connection that was accepted.
async fn accept_loop(
    listener: &TcpListener,
    end: impl Future<Output = ()>,
    serve: impl Fn(TcpStream, SocketAddr),
) {
    let mut end = pin!(end);
    let mut last_warning: Option<Instant> = None;
    loop {
        let accepted = tokio::select! {
            // Another process may accept the connections that wait now.
            biased;
            () = &mut end => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                // Small responses must not wait for a full packet. If setting the option fails, the
                // socket is already closed.
                stream.set_nodelay(true).ok();
                serve(
                    stream,
                    SocketAddr::new(peer.ip().to_canonical(), peer.port()),
                );
            }
            Err(error) if is_connection_error(&error) => {}
            Err(error) => {
                // Accepting fails repeatedly until a connection closes. The interval limits the
                // warnings.
                if last_warning.is_none_or(|at| at.elapsed() >= WARNING_INTERVAL) {
                    warn!(%error, "connections cannot be accepted at the moment");
                    last_warning = Some(Instant::now());
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Errors that concern only the connection that was to be accepted (accept(2)).
fn is_connection_error(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
    )
}

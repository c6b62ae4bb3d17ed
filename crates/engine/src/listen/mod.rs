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

mod accept_loop;
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

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::{TcpListener, TcpStream};
use transport::Socket;

use self::accept_loop::accept_loop;
use crate::core::Worker;

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

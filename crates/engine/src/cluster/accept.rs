//! Connections from other engines.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tracing::debug;
use transport::permit::Permit;
use transport::{Socket, wrap_server_session};
use wire::cluster::{ConnectionPurpose, PeerFrame, PeerIdentity};

use super::control::{self, ControlStream, HELLO_DEADLINE};
use super::peers::Cluster;
use super::{inbound, tls};
use crate::core::Worker;

/// Handshakes of other engines that are in progress at the same time, on all workers. An engine opens
/// at most 64 connections at once.
const MAX_HANDSHAKES: usize = 512;

/// Serves one connection that another engine has opened.
pub(crate) async fn serve(stream: TcpStream, peer: SocketAddr, worker: Arc<Worker>) {
    let Some(cluster) = worker.core.cluster.clone() else {
        return;
    };
    let Some(handshake) = Permit::try_take(&cluster.handshakes, MAX_HANDSHAKES) else {
        return;
    };
    // Boxed, because the connection lives much longer.
    let starting = Box::pin(timeout(HELLO_DEADLINE, start(stream, peer, &cluster)));
    let started = starting.await;
    drop(handshake);
    let (stream, identity) = match started {
        Ok(Ok(started)) => started,
        Ok(Err(error)) => {
            debug!(%peer, %error, "a connection between engines was refused");
            return;
        }
        Err(_) => return,
    };
    match identity.purpose {
        ConnectionPurpose::Control => inbound::control(stream, &identity, &worker, &cluster).await,
        ConnectionPurpose::Data => {
            inbound::data(stream.into_stream(), &identity, &worker, &cluster).await;
        }
        ConnectionPurpose::Unspecified => {}
    }
}

/// Completes the handshake, and reads and checks the hello.
async fn start(
    stream: TcpStream,
    peer: SocketAddr,
    cluster: &Cluster,
) -> io::Result<(ControlStream, PeerIdentity)> {
    control::keep_alive(&stream)?;
    let acceptor = TlsAcceptor::from(Arc::clone(&cluster.tls.server));
    let session = acceptor.accept(Socket::new(stream, peer)).await?;
    let mut started = ControlStream::new(wrap_server_session(session));
    let PeerFrame::Hello(identity) = started.read_first().await? else {
        return Err(refused("it does not start with a hello"));
    };
    if identity.cluster != cluster.name {
        return Err(refused("it belongs to another cluster"));
    }
    if identity.engine == cluster.engine {
        return Err(refused("it has the id of this engine"));
    }
    if !tls::is_engine(started.stream(), &cluster.name, &identity.engine) {
        return Err(refused("its certificate is not the one of the engine"));
    }
    Ok((started, identity))
}

fn refused(reason: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, reason)
}

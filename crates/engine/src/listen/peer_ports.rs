//! Ports of TCP tunnels whose agents are at other engines of the cluster.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::accept_loop::accept_loop;
use super::socket::bind;
use crate::cluster::{Cluster, RemoteTunnel};
use crate::core::{Core, Worker};
use crate::edge::raw;

/// A port that this engine listens on for another one.
struct PeerPort {
    /// The tunnel of the visitors.
    tunnel: ArcSwap<RemoteTunnel>,
    closed: CancellationToken,
}

/// Listens on the ports of the directory, until the engine drains. Ports outside of
/// `tcp.port_range` are not used.
pub(crate) async fn keep_peer_ports(core: Arc<Core>, cluster: Arc<Cluster>) {
    let mut listed = cluster.directory().ports();
    let drain = core.shutdown.drain().clone();
    let mut open: HashMap<u16, Arc<PeerPort>> = HashMap::new();
    loop {
        let wanted: HashMap<u16, Arc<RemoteTunnel>> = {
            let tunnels = listed.borrow_and_update();
            let range = core.config.tcp_ports.as_ref();
            let ports = tunnels.iter().filter_map(|tunnel| {
                let port = tunnel.view().properties.port?;
                let is_ours = range.is_some_and(|range| range.contains(&port));
                is_ours.then(|| (port, Arc::clone(tunnel)))
            });
            ports.collect()
        };
        open.retain(|port, entry| {
            let Some(tunnel) = wanted.get(port) else {
                entry.closed.cancel();
                return false;
            };
            entry.tunnel.store(Arc::clone(tunnel));
            true
        });
        for (port, tunnel) in wanted {
            if open.contains_key(&port) {
                continue;
            }
            match listen(port, tunnel, &core, &cluster) {
                Ok(entry) => drop(open.insert(port, entry)),
                Err(error) => warn!(port, %error, "the port of another engine cannot be used"),
            }
        }
        tokio::select! {
            changed = listed.changed() => if changed.is_err() {
                return drain.cancelled().await;
            },
            () = drain.cancelled() => return,
        }
    }
}

fn listen(
    port: u16,
    tunnel: Arc<RemoteTunnel>,
    core: &Arc<Core>,
    cluster: &Arc<Cluster>,
) -> std::io::Result<Arc<PeerPort>> {
    let workers = core.workers();
    let address = SocketAddr::new(core.config.tls.ip(), port);
    let listeners = bind(address, workers.len())?;
    let entry = Arc::new(PeerPort {
        tunnel: ArcSwap::new(tunnel),
        closed: CancellationToken::new(),
    });
    for (listener, worker) in listeners.into_iter().zip(workers) {
        let (entry, cluster, at) = (Arc::clone(&entry), Arc::clone(cluster), Arc::clone(worker));
        worker.spawn(async move {
            match TcpListener::from_std(listener) {
                Ok(listener) => accept(&listener, &entry, &cluster, &at).await,
                Err(error) => warn!(%error, "the port of another engine cannot be used"),
            }
        });
    }
    Ok(entry)
}

async fn accept(
    listener: &TcpListener,
    entry: &Arc<PeerPort>,
    cluster: &Arc<Cluster>,
    worker: &Arc<Worker>,
) {
    let accepting = accept_loop(listener, worker.drain.cancelled(), |stream, peer| {
        let remote = entry.tunnel.load_full();
        let (cluster, visitor) = (Arc::clone(cluster), Arc::clone(worker));
        worker.spawn(async move {
            let admitting = super::admit::admit_visitor(stream, peer, &visitor.core);
            let Some(socket) = Box::pin(admitting).await else {
                return;
            };
            match cluster.tunnel(&remote, &visitor.core.tenancy) {
                Some(tunnel) => raw::serve(socket, &tunnel, "tcp", &visitor).await,
                // As if nothing listened there.
                None => socket.abort_on_close(),
            }
        });
    });
    tokio::select! {
        () = accepting => {}
        () = entry.closed.cancelled() => {}
    }
}

//! Visitors of published TCP tunnels.

use std::sync::Arc;

use tokio::net::TcpListener;
use tracing::warn;

use super::accept_loop::accept_loop;
use super::tcp_ports::Port;
use crate::core::Worker;
use crate::edge::raw;

/// Accepts the visitors of a port, each worker on its own listener. For
/// [`TcpPorts::serve`](super::TcpPorts::serve).
pub(crate) fn accept_visitors(
    workers: &[Arc<Worker>],
) -> impl Fn(usize, std::net::TcpListener, Arc<Port>) {
    |index, listener, port| {
        // There may be more listeners than workers, if they are those of an earlier process.
        let Some(worker) = workers.get(index % workers.len().max(1)) else {
            return;
        };
        let visitors = Arc::clone(worker);
        worker.spawn(async move {
            match TcpListener::from_std(listener) {
                Ok(listener) => {
                    let listener = Arc::new(listener);
                    port.listeners.lock().push(Arc::downgrade(&listener));
                    accept(&listener, &port, &visitors).await;
                }
                Err(error) => warn!(%error, "the port of a TCP tunnel cannot be used"),
            }
        });
    }
}

async fn accept(listener: &TcpListener, port: &Arc<Port>, worker: &Arc<Worker>) {
    let accepting = accept_loop(listener, worker.drain.cancelled(), |stream, peer| {
        let (tunnel, visitor) = (port.tunnel.load_full(), Arc::clone(worker));
        worker.spawn(async move {
            let admitting = super::admit::admit_visitor(stream, peer, &visitor.core);
            if let Some(socket) = Box::pin(admitting).await {
                raw::serve(socket, &tunnel, "tcp", &visitor).await;
            }
        });
    });
    let accepting = async {
        // Until this process serves, the old one accepts: a failed replacement breaks no stream.
        worker.core.handover.begin().cancelled().await;
        accepting.await;
    };
    tokio::select! {
        () = accepting => {}
        () = worker.drain.cancelled() => {}
        () = port.closed.cancelled() => {}
    }
}

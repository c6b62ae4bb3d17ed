//! Memory in bytes that the task of a connection reserves while it waits. The tests compare exact
//! sizes of futures, so that a larger future is detected without a measurement of memory.

use std::sync::Arc;

use transport::{Socket, TlsStream};

use crate::agents::Agent;
use crate::core::Worker;
use crate::edge::{self, ConnectionInfo, raw};
use crate::live::LiveTunnel;

/// The size of the future that a function returns.
fn future_size<A, F: Future>(_function: impl FnOnce(A) -> F) -> usize {
    size_of::<F>()
}

type TunnelAndWorker = (&'static Arc<LiveTunnel<Agent>>, &'static Arc<Worker>);

/// The size excludes the handshake, which is another task, and the TLS session.
#[test]
fn idle_http_connections_reserve_no_memory_for_requests() {
    let size = future_size(
        |(stream, info, worker): (TlsStream, ConnectionInfo, Arc<Worker>)| {
            edge::serve_http(stream, info, worker)
        },
    );
    assert!(size <= 1536, "{size}");
}

/// The size excludes the TLS session of the agent's connection, and buffered bytes.
#[test]
fn raw_connections_reserve_no_memory_for_dialling() {
    let terminated = future_size(|(stream, (tunnel, worker)): (TlsStream, TunnelAndWorker)| {
        raw::serve(stream, tunnel, "tls", worker)
    });
    assert!(terminated <= 2048, "{terminated}");
    let plain = future_size(|(socket, (tunnel, worker)): (Socket, TunnelAndWorker)| {
        raw::serve(socket, tunnel, "tcp", worker)
    });
    assert!(plain <= 2560, "{plain}");
}

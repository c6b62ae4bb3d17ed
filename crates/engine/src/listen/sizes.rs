//! What the task of a connection keeps room for while it waits, in bytes. Exact, not timed: a wait
//! that is added to a long-lived future is seen here before anybody measures memory.

use std::sync::Arc;

use transport::{Socket, TlsStream};

use crate::agents::Agent;
use crate::core::Worker;
use crate::edge::{self, ConnectionInfo, raw};
use crate::live::LiveTunnel;

/// The size of the future that a function makes.
fn of<A, F: Future>(_function: impl FnOnce(A) -> F) -> usize {
    size_of::<F>()
}

type At = (&'static Arc<LiveTunnel<Agent>>, &'static Arc<Worker>);

/// The handshake was a task before it, the TLS session comes on top.
#[test]
fn an_idle_http_visitor_holds_no_room_for_a_request() {
    let size = of(
        |(stream, seen, worker): (TlsStream, ConnectionInfo, Arc<Worker>)| {
            edge::serve_http(stream, seen, worker)
        },
    );
    assert!(size <= 1536, "{size}");
}

/// The carrier's TLS session comes on top, and what is under way.
#[test]
fn a_visitor_of_bytes_holds_no_room_for_dialling() {
    let terminated =
        of(|(stream, (tunnel, worker)): (TlsStream, At)| raw::serve(stream, tunnel, "tls", worker));
    assert!(terminated <= 2048, "{terminated}");
    let plain =
        of(|(socket, (tunnel, worker)): (Socket, At)| raw::serve(socket, tunnel, "tcp", worker));
    assert!(plain <= 2560, "{plain}");
}

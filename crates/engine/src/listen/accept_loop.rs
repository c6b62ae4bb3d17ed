//! The loop that accepts connections of a listener.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::{Duration, Instant};

use tokio::net::{TcpListener, TcpStream};
use tracing::warn;

/// Pause after an accept failed for lack of descriptors or memory. The waiting connection would
/// fail again immediately, and the loop must leave the core to tasks that can free resources.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Interval between two warnings about failed accepts.
const WARNING_INTERVAL: Duration = Duration::from_secs(10);

/// Runs `serve` for each connection and its peer until `end`, which is the drain for visitors.
/// Accepting is cancel safe. The task of the caller is one of the visits: `serve` spawns another one
/// before it ends, so a drain never misses a connection that was accepted.
pub(super) async fn accept_loop(
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

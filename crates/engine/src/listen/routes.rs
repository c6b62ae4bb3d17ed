//! Connections for other servers of the operator (`tls.routes`): the engine shares its port with
//! them, and forwards their bytes without terminating TLS.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tracing::debug;
use transport::{Socket, pump};
use types::proxy_protocol;

use crate::config::TlsRoute;
use crate::core::Worker;
use crate::metrics::Handshake;

/// Time limit of a connection to the server, with the resolution of its name. It is near, and a
/// lost packet is repeated after one second.
const CONNECT_DEADLINE: Duration = Duration::from_secs(5);

/// Forwards a connection whose `ClientHello` was put back, until one side closes it.
pub(super) async fn serve(mut visitor: Socket, route: Arc<TlsRoute>, worker: Arc<Worker>) {
    let source = visitor.peer();
    let mut server = match connect(&route, source).await {
        Ok(server) => server,
        Err(error) => {
            debug!(to = route.to, %error, "the server of a route cannot be reached");
            worker.core.metrics.tls_handshake(Handshake::RouteFailed);
            visitor.abort_on_close();
            return;
        }
    };
    worker.core.metrics.tls_handshake(Handshake::Routed);
    drop(worker);
    // Until the data of the server is complete, a close is a reset (RST), so that the visitor sees
    // an error.
    visitor.begin_message();
    let copied = pump(source.ip().into(), &mut visitor, &mut server).await;
    match copied.result {
        Ok(()) => visitor.end_message(),
        Err(error) => debug!(to = route.to, %error, "a connection of a route failed"),
    }
}

/// Connects and sends the header of the PROXY protocol, if the server expects it.
async fn connect(route: &TlsRoute, source: SocketAddr) -> io::Result<Socket> {
    let connecting = async {
        let mut stream = TcpStream::connect(&route.to).await?;
        stream.set_nodelay(true)?;
        let server = stream.peer_addr()?;
        if route.proxy_protocol {
            let mut header = Vec::new();
            proxy_protocol::write_v2(Some(source), server, &mut header);
            stream.write_all(&header).await?;
        }
        Ok(Socket::new(stream, server))
    };
    timeout(CONNECT_DEADLINE, connecting)
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

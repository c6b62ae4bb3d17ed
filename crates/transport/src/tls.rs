//! TLS on the sockets of the data path.

use std::io;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio_rustls::TlsConnector;

use crate::{Scratch, Socket};

/// A TLS session over a [`Socket`], either side.
pub type TlsStream = tokio_rustls::TlsStream<Socket>;

/// Opens a session as a client.
///
/// # Errors
/// Whatever the handshake ended with. Cancel safe in the sense that dropping it closes the socket.
pub async fn connect(
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    socket: Socket,
) -> io::Result<TlsStream> {
    let stream = TlsConnector::from(config).connect(name, socket).await?;
    let mut stream = TlsStream::Client(stream);
    tune(&mut stream);
    Ok(stream)
}

/// Lets the session take a bulk chunk and its framing in one piece: with the library's smaller
/// default each chunk is cut, which costs half again per byte (measured).
pub fn tune(stream: &mut TlsStream) {
    const LIMIT: usize = Scratch::LARGE + Scratch::SMALL;
    match stream {
        TlsStream::Client(client) => client.get_mut().1.set_buffer_limit(Some(LIMIT)),
        TlsStream::Server(server) => server.get_mut().1.set_buffer_limit(Some(LIMIT)),
    }
}

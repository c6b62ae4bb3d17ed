//! TLS on the sockets of the data path.

use std::io;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio_rustls::{TlsConnector, server};

use crate::{Scratch, Socket};

/// A TLS session over a [`Socket`], either side. Boxed: it is a kilobyte and a half, and moves
/// through the futures of its connection, each of which would keep room for it.
pub type TlsStream = Box<tokio_rustls::TlsStream<Socket>>;

/// Opens a session as a client.
///
/// # Errors
/// Whatever the handshake ended with. Cancel safe in the sense that dropping it closes the socket.
pub async fn connect(
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    socket: Socket,
) -> io::Result<TlsStream> {
    let mut stream = TlsConnector::from(config).connect(name, socket).await?;
    stream.get_mut().1.set_buffer_limit(Some(LIMIT));
    Ok(Box::new(stream.into()))
}

/// Takes over a session whose handshake was completed as a server.
pub fn accepted(mut stream: server::TlsStream<Socket>) -> TlsStream {
    stream.get_mut().1.set_buffer_limit(Some(LIMIT));
    Box::new(stream.into())
}

/// Lets a session take a bulk chunk and its framing in one piece: with the library's smaller
/// default each chunk is cut, which costs half again per byte (measured).
const LIMIT: usize = Scratch::LARGE + Scratch::SMALL;

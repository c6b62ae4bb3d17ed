//! From an address to a TLS connection with the requested protocol.

use std::{fmt, io, sync::Arc, time::Duration};

use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::time::timeout;
use transport::{Socket, TlsStream};
use wire::handshake::process_protocol;

use crate::{
    HostPort, Trust,
    error::{ConnectError, Step},
    proxy::{Proxies, Route},
    tcp::{DialError, RESOLVE, dial_first},
};

/// Opens connections of one kind to one engine.
#[derive(Clone)]
pub(crate) struct Connector {
    address: HostPort,
    name: ServerName<'static>,
    tls: Arc<ClientConfig>,
    proxies: Proxies,
}

impl Connector {
    /// Creates a connector for connections on which the peer must choose one of `alpn`.
    pub(crate) fn new(
        address: HostPort,
        trust: &Trust,
        proxies: &Proxies,
        alpn: &[&[u8]],
    ) -> Result<Self, ConnectError> {
        let name = address.server_name()?;
        let tls = trust.client_config(alpn)?;
        let proxies = proxies.clone();
        Ok(Self {
            address,
            name,
            tls,
            proxies,
        })
    }

    pub(crate) fn address(&self) -> &HostPort {
        &self.address
    }

    /// The same for another address of the same engine (`proxy_endpoint`).
    pub(crate) fn at(&self, address: HostPort) -> Result<Self, ConnectError> {
        let name = address.server_name()?;
        Ok(Self {
            address,
            name,
            tls: Arc::clone(&self.tls),
            proxies: self.proxies.clone(),
        })
    }

    /// The same for one process of the engine, while two of them share its listeners. `None` if the
    /// name of the process is not valid.
    pub(crate) fn for_process(&self, process: &str) -> Option<Self> {
        let mut tls = ClientConfig::clone(&self.tls);
        tls.alpn_protocols.push(process_protocol(process)?);
        Some(Self {
            tls: Arc::new(tls),
            ..self.clone()
        })
    }

    /// Resolves, dials and shakes hands, each step with its own time limit. A proxy resolves and
    /// dials instead.
    ///
    /// Cancel safe: dropping the future closes the socket.
    pub(crate) async fn connect(&self) -> Result<TlsStream, ConnectError> {
        let socket = open_socket(&self.address, &self.proxies, true).await?;
        let tls = transport::connect(Arc::clone(&self.tls), self.name.clone(), socket);
        let stream = match timeout(HANDSHAKE, tls).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(ConnectError::handshake(error)),
            Err(_elapsed) => return Err(ConnectError::TimedOut(Step::Handshake)),
        };
        // A peer that ignores ALPN is not an engine; rustls itself refuses a peer that chooses a
        // protocol that was not offered.
        if stream.get_ref().1.alpn_protocol().is_none() {
            let silent = io::Error::other("it does not agree on a protocol");
            return Err(ConnectError::not_an_engine(silent));
        }
        Ok(stream)
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

/// Opens a TCP connection to `address`: directly, or through its proxy. `is_tls` is true if the
/// caller uses TLS on it.
///
/// Only for the crates of this project.
///
/// # Errors
/// The address or its proxy cannot be reached, or the proxy does not connect.
///
/// # Cancellation
/// Safe: dropping the future closes the connection.
#[doc(hidden)]
pub async fn open_socket(
    address: &HostPort,
    proxies: &Proxies,
    is_tls: bool,
) -> Result<Socket, ConnectError> {
    if let Route::Proxy(proxy) = proxies.route(address, is_tls)? {
        let opened = proxy.open(address).await;
        return opened.map_err(|fault| ConnectError::proxy(proxy.to_string(), fault));
    }
    let addresses = bounded(Step::Resolve, RESOLVE, address.resolve()).await?;
    match dial_first(&addresses).await {
        Ok((stream, peer)) => Ok(Socket::new(stream, peer)),
        Err(DialError::Network(source)) => Err(ConnectError::network(Step::Dial, source)),
        Err(DialError::TimedOut) => Err(ConnectError::TimedOut(Step::Dial)),
    }
}

/// Runs one step of an attempt with its time limit and its name.
pub(crate) async fn bounded<T>(
    step: Step,
    limit: Duration,
    work: impl Future<Output = io::Result<T>>,
) -> Result<T, ConnectError> {
    match timeout(limit, work).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(source)) => Err(ConnectError::network(step, source)),
        Err(_elapsed) => Err(ConnectError::TimedOut(step)),
    }
}

/// Time limit of the TLS handshake: two round trips over the worst usable link.
const HANDSHAKE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use socket2::{Domain, Socket as Raw, Type};
    use tokio::{net::TcpListener, time::Instant};

    use super::*;

    /// Pauses the clock until the returned value is dropped. A paused clock advances automatically
    /// only while nothing blocks.
    fn standing_clock() -> std::sync::mpsc::Sender<()> {
        let (stands, dropped) = std::sync::mpsc::channel();
        tokio::task::spawn_blocking(move || dropped.recv());
        stands
    }

    async fn time_of_an_attempt(at: SocketAddr) -> (Option<ConnectError>, u64) {
        let address = at.to_string().parse().unwrap();
        let connector = Connector::new(
            address,
            &Trust::Roots(Vec::new()),
            &Proxies::default(),
            &[b"x"],
        );
        let began = Instant::now();
        let error = connector.unwrap().connect().await.err();
        (error, began.elapsed().as_secs())
    }

    /// An engine whose machine does not respond.
    #[tokio::test(start_paused = true)]
    async fn a_dial_times_out() {
        let listener = Raw::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        listener.bind(&any.into()).unwrap();
        listener.listen(0).unwrap();
        let at = listener.local_addr().unwrap().as_socket().unwrap();
        // This connection fills the accept queue: the system drops further ones.
        let _waiting = std::net::TcpStream::connect(at).unwrap();
        let (error, seconds) = time_of_an_attempt(at).await;
        assert!(
            matches!(error, Some(ConnectError::TimedOut(Step::Dial))),
            "{error:?}"
        );
        assert_eq!(seconds, 5);
    }

    /// The kernel accepts the connection, but the handshake gets no response.
    #[tokio::test(start_paused = true)]
    async fn a_handshake_times_out() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let clock = standing_clock();
        let attempt = time_of_an_attempt(listener.local_addr().unwrap());
        let engine = async {
            let silent = listener.accept().await.unwrap();
            drop(clock);
            silent
        };
        let ((error, seconds), _silent) = tokio::join!(attempt, engine);
        assert!(
            matches!(error, Some(ConnectError::TimedOut(Step::Handshake))),
            "{error:?}"
        );
        assert_eq!(seconds, 10);
    }
}

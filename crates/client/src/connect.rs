//! From an address to a TLS connection with the requested protocol.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use socket2::{SockRef, TcpKeepalive};
use tokio::{net::TcpStream, time::timeout};
use transport::{Socket, TlsStream};

use crate::{
    HostPort, Trust,
    error::{ConnectError, Step},
};

/// Opens connections of one kind to one engine.
#[derive(Clone)]
pub(crate) struct Connector {
    address: HostPort,
    name: ServerName<'static>,
    tls: Arc<ClientConfig>,
}

impl Connector {
    /// Creates a connector for connections on which the peer must choose one of `alpn`.
    pub(crate) fn new(
        address: HostPort,
        trust: &Trust,
        alpn: &[&[u8]],
    ) -> Result<Self, ConnectError> {
        let name = address.server_name()?;
        let tls = trust.client_config(alpn)?;
        Ok(Self { address, name, tls })
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
        })
    }

    /// Resolves, dials and shakes hands, each step with its own time limit.
    ///
    /// Cancel safe: dropping the future closes the socket.
    pub(crate) async fn connect(&self) -> Result<TlsStream, ConnectError> {
        let addresses = bounded(Step::Resolve, RESOLVE, self.address.resolve()).await?;
        let socket = dial_first(&addresses).await?;
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

/// Tries each address in turn and returns the last error.
async fn dial_first(addresses: &[SocketAddr]) -> Result<Socket, ConnectError> {
    let mut last = ConnectError::TimedOut(Step::Dial);
    for &address in addresses {
        match bounded(Step::Dial, DIAL, TcpStream::connect(address)).await {
            Ok(stream) => {
                // Small frames must not wait for an acknowledgement, and a connection that a
                // middlebox dropped must not look alive. A kernel that refuses an option still
                // carries the bytes.
                drop(stream.set_nodelay(true));
                drop(SockRef::from(&stream).set_tcp_keepalive(&keepalive()));
                return Ok(Socket::new(stream, address));
            }
            Err(error) => last = error,
        }
    }
    Err(last)
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

/// Half a minute of silence, then three probes. Standing connections may be silent for a long time,
/// and NAT devices drop silent connections after some minutes.
pub(crate) fn keepalive() -> TcpKeepalive {
    TcpKeepalive::new()
        .with_time(Duration::from_secs(30))
        .with_interval(Duration::from_secs(10))
        .with_retries(3)
}

/// Time limit of name resolution. A resolver usually tries two servers in this time.
const RESOLVE: Duration = Duration::from_secs(10);

/// Time limit of one address: three SYNs (at 0, 1 and 3 seconds) and the last response.
const DIAL: Duration = Duration::from_secs(5);

/// Time limit of the TLS handshake: two round trips over the worst usable link.
const HANDSHAKE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
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
        let connector = Connector::new(address, &Trust::Roots(Vec::new()), &[b"x"]);
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

//! Joins a visitor's stream to the private service.

use std::{io, net::SocketAddr};

use socket2::SockRef;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;
use transport::proxy_protocol::{MAX_HEADER, write_v1, write_v2};
use transport::{Pumped, Socket, pump, standing::Framed};

use super::{lanes::OnLane, unix::UnixStream};
use crate::{
    Destination, HostPort, ProxyProtocol, Stream, Target,
    connect::keepalive,
    tunnel::{Connection, Observer},
};

/// Where the streams of one tunnel go, and who is told of them.
pub(crate) struct Forward {
    to: Destination,
    observer: Option<Observer>,
}

impl Forward {
    pub(crate) fn new(to: Destination, observer: Option<Observer>) -> Self {
        Self { to, observer }
    }

    /// Dials the service, and tells it who visits where it wants to know; the error is for the
    /// engine and the owner, and names the target.
    pub(crate) async fn dial(&self, visit: &Visit) -> Result<Service, String> {
        let dialled = timeout(SERVICE_DIAL, async {
            let mut service = self.dial_target().await?;
            if let Some(version) = self.to.proxy_protocol {
                service.introduce(visit, version).await?;
            }
            Ok::<_, io::Error>(service)
        })
        .await;
        dialled
            .unwrap_or_else(|_elapsed| Err(io::ErrorKind::TimedOut.into()))
            .map_err(|error| {
                format!(
                    "the service at {} is not reachable: {error}",
                    self.to.target
                )
            })
    }

    async fn dial_target(&self) -> io::Result<Service> {
        match &self.to.target {
            Target::Tcp(address) | Target::Tls(address) => dial_tcp(address).await,
            Target::Unix(path) => UnixStream::connect(path).await.map(Service::Unix),
        }
    }

    pub(crate) fn begins(&self, stream: &Visit) {
        self.tell(stream, true, None);
    }

    pub(crate) fn ends(&self, stream: &Visit, error: Option<String>) {
        self.tell(stream, false, error);
    }

    fn tell(&self, visit: &Visit, active: bool, error: Option<String>) {
        if let Some(observer) = &self.observer {
            observer(Connection {
                stream_id: visit.stream_id.clone(),
                source_ip: visit.source_ip,
                active,
                error,
            });
        }
    }
}

/// Who visits.
#[derive(Clone, Debug)]
pub(crate) struct Visit {
    pub(crate) stream_id: String,
    pub(crate) source_ip: Option<std::net::IpAddr>,
}

/// A connection to the private service.
pub(crate) enum Service {
    /// With the address of our end.
    Tcp {
        socket: Socket,
        local: SocketAddr,
    },
    Unix(UnixStream),
}

impl Service {
    /// Sends the header that says who visits. The visitor's port is not known, and of a Unix
    /// socket no address is: both are written as zero.
    async fn introduce(&mut self, visit: &Visit, version: ProxyProtocol) -> io::Result<()> {
        let source = visit.source_ip.map(|ip| SocketAddr::new(ip, 0));
        let destination = match self {
            Self::Tcp { local, .. } => *local,
            Self::Unix(_) => SocketAddr::from(([0, 0, 0, 0], 0)),
        };
        let mut header = Vec::with_capacity(MAX_HEADER);
        match version {
            ProxyProtocol::V1 => write_v1(source, destination, &mut header),
            ProxyProtocol::V2 => write_v2(source, destination, &mut header),
        }
        match self {
            Self::Tcp { socket, .. } => socket.write_all(&header).await,
            Self::Unix(socket) => socket.write_all(&header).await,
        }
    }

    /// Carries both directions to their ends. After a failure the service's side is reset where
    /// the system can do that: half a request must not look whole to it.
    pub(crate) async fn join<S: transport::Stream>(mut self, visitor: &mut S) -> Pumped {
        match &mut self {
            Self::Tcp { socket, .. } => {
                // Also when the agent is killed meanwhile.
                socket.begin_message();
                let pumped = pump(visitor, socket).await;
                if pumped.result.is_ok() {
                    socket.end_message();
                }
                pumped
            }
            Self::Unix(service) => pump(visitor, service).await,
        }
    }
}

/// Serves a stream that has a connection of its own, and was accepted already.
pub(crate) async fn serve_raw(forward: std::sync::Arc<Forward>, mut stream: Stream) {
    let visit = Visit {
        stream_id: stream.stream_id().to_owned(),
        source_ip: stream.source_ip(),
    };
    forward.begins(&visit);
    let error = match Box::pin(forward.dial(&visit)).await {
        Ok(service) => service
            .join(&mut stream)
            .await
            .result
            .err()
            .map(|e| e.to_string()),
        Err(error) => Some(error),
    };
    forward.ends(&visit, error);
}

/// Serves a stream on a standing connection and hands the connection back.
pub(crate) async fn serve_framed<T: transport::Stream>(
    forward: &Forward,
    visit: &Visit,
    mut framed: Framed<T>,
) -> Framed<T> {
    forward.begins(visit);
    // On the heap while it lasts, as all that is short beside a stream.
    let error = match Box::pin(forward.dial(visit)).await {
        Ok(service) => {
            let pumped = service.join(&mut framed).await;
            if let Err(error) = &pumped.result {
                framed.reset(Some(wire::Error::stream_broke(format!(
                    "the connection to the service broke: {}",
                    error.kind()
                ))));
            }
            pumped.result.err().map(|e| e.to_string())
        }
        Err(error) => {
            framed.reset(Some(wire::Error::service_unavailable(error.as_str())));
            Some(error)
        }
    };
    forward.ends(visit, error);
    framed
}

/// Serves a stream that begins on a lane.
pub(crate) async fn serve_carried(forward: &Forward, visit: &Visit, mut carried: OnLane) {
    forward.begins(visit);
    let error = match Box::pin(forward.dial(visit)).await {
        Ok(service) => {
            let pumped = service.join(&mut carried).await;
            let broken = |error: &io::Error| {
                let broke = format!("the connection to the service broke: {}", error.kind());
                (wire::Error::stream_broke(broke), error.to_string())
            };
            pumped.result.err().as_ref().map(broken)
        }
        Err(error) => Some((wire::Error::service_unavailable(error.as_str()), error)),
    };
    let error = error.map(|(reason, told)| {
        match carried.connection_mut() {
            Some(connection) => connection.reset(reason),
            None => carried.lane().reset(Some(&reason)),
        }
        told
    });
    forward.ends(visit, error);
}

async fn dial_tcp(address: &HostPort) -> io::Result<Service> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for candidate in address.resolve().await? {
        match TcpStream::connect(candidate).await {
            Ok(stream) => {
                // As towards the engine: best effort.
                drop(stream.set_nodelay(true));
                drop(SockRef::from(&stream).set_tcp_keepalive(&keepalive()));
                let local = stream.local_addr()?;
                let socket = Socket::new(stream, candidate);
                return Ok(Service::Tcp { socket, local });
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// A service that the agent can reach is near; a visitor's patience is not longer.
const SERVICE_DIAL: std::time::Duration = std::time::Duration::from_secs(10);

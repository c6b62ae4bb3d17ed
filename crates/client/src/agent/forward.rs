//! Connects a visitor's stream to the private service.

use std::{io, net::SocketAddr, sync::Arc};

use rustls::{ClientConfig, crypto::aws_lc_rs};
use rustls_pki_types::ServerName;
use socket2::SockRef;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;
use transport::{
    CopyResult, Socket, TlsStream, memory::Source, pump, service_client_config,
    standing::FramedStream, unix::UnixStream,
};
use types::proxy_protocol::{MAX_HEADER, write_v1, write_v2};

use super::exchange::{ExchangeStream, StreamEnd, is_complete, is_regular_end};
use super::{host::HostRewriter, lanes::MigratingLaneStream};
use crate::agent::tap::{StreamTap, Tap, TappedStream, TlsInterceptor, show_request};
use crate::agent::target::{ForwardOptions, ServiceName};
use crate::agent::tunnel::{Connection, Observer};
use crate::tcp::keepalive;
use crate::{Destination, HostPort, ProxyProtocol, Stream, Target};

pub(crate) use crate::agent::tap::Visit;

/// Destination of the streams of one tunnel, and its observers.
pub(crate) struct Forward {
    to: Destination,
    /// The `Host` of requests, if it differs from the public name.
    host: Option<Arc<str>>,
    /// The TLS session with the service, if the agent opens it.
    tls: Option<ServiceTls>,
    observer: Option<Observer>,
    tap: Option<Arc<dyn Tap>>,
}

impl Forward {
    pub(crate) fn new(forwarding: ForwardOptions) -> Self {
        let ForwardOptions { to, observer, tap } = forwarding;
        Self {
            host: to.host().map(Arc::from),
            tls: to.service_name.as_ref().map(ServiceTls::new),
            to,
            observer,
            tap,
        }
    }

    /// Dials the service and sends the PROXY header if it is configured. The error is for the
    /// engine and the owner, and names the target.
    pub(crate) async fn dial(&self, visit: &Visit) -> Result<Service, String> {
        let dialled = timeout(SERVICE_DIAL_TIMEOUT, async {
            let mut service = dial_target(&self.to.target).await?;
            if let Some(version) = self.to.proxy_protocol {
                service.send_proxy_header(visit, version).await?;
            }
            if let Some(tls) = &self.tls {
                service = tls.open(service).await?;
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

    /// Copies both directions until they end. The host is rewritten if
    /// configured, and the tap of this visit gets the bytes as the service sees them.
    pub(crate) async fn copy_bidirectional<S: transport::Stream>(
        &self,
        visit: &Visit,
        service: Service,
        visitor: &mut S,
    ) -> CopyResult {
        match &self.host {
            None => self.copy_observed(visit, service, visitor).await,
            // Boxed, because few streams use it and the others must not reserve memory for it.
            Some(host) => {
                let mut named = HostRewriter::new(visitor, host, self.tls.is_some());
                let copied = Box::pin(self.copy_observed(visit, service, &mut named)).await;
                if copied.result.is_err() {
                    // Delivers the last bytes of the service. An error only means that the visitor
                    // has disconnected.
                    drop(named.flush().await);
                }
                copied
            }
        }
    }

    async fn copy_observed<S: transport::Stream>(
        &self,
        visit: &Visit,
        service: Service,
        visitor: &mut S,
    ) -> CopyResult {
        let source = Source::from(visit.source_ip);
        let tap = self.tap.as_deref();
        let stream_tap = tap.and_then(|tap| Some((tap.stream(visit)?, self.opener(tap))));
        // Boxed, so that the future of the usual case next to it stays small.
        match stream_tap {
            None => service.copy(source, visitor).await,
            Some((tap, None)) => {
                let name = self.tls.as_ref().map(|tls| tls.name.to_str());
                Box::pin(service.copy_tapped(source, visitor, tap, name.as_deref())).await
            }
            Some((tap, Some(opener))) => {
                Box::pin(service.copy_intercepted(source, visitor, tap, opener)).await
            }
        }
    }

    /// The interceptor for sessions of the edge. There are none if the agent opens the session.
    fn opener<'t>(&self, tap: &'t dyn Tap) -> Option<&'t TlsInterceptor> {
        tap.opener().filter(|_| self.tls.is_none())
    }

    /// Shows the tap the request of a visitor whose service was not reached. Boxed like all short
    /// futures of a stream, and without a tap nothing waits.
    async fn show_unreachable<S: transport::Stream>(
        &self,
        visit: &Visit,
        visitor: &mut S,
        error: &str,
    ) {
        let Some(tap) = self.tap.as_deref() else {
            return;
        };
        let Some(mut stream) = tap.stream(visit) else {
            return;
        };
        if let Some(tls) = &self.tls {
            // A later request to the service must use TLS as well.
            stream.opened(&tls.name.to_str());
        }
        match (&self.host, self.opener(tap)) {
            (_, Some(opener)) => {
                Box::pin(opener.show_unreachable(visitor, stream, error)).await;
            }
            (Some(host), None) => {
                let mut named = HostRewriter::new(visitor, host, self.tls.is_some());
                Box::pin(show_request(stream, &mut named, error)).await;
            }
            (None, None) => Box::pin(show_request(stream, visitor, error)).await,
        }
    }

    /// Reports a visitor that has no stream, because its service was not reached.
    pub(crate) fn report_unreachable(&self, visit: &Visit, error: &str) {
        self.report_start(visit);
        let stream = self.tap.as_deref().and_then(|tap| tap.stream(visit));
        if let Some(stream) = stream {
            stream.unreachable(error);
        }
        self.report_end(visit, Some(error.to_owned()), CopiedBytes::default());
    }

    /// Copies a stream of the engine, which may be aborted with a reason.
    async fn copy<S: transport::Stream>(
        &self,
        visit: &Visit,
        service: Service,
        stream: &mut S,
        exchanges: bool,
    ) -> StreamResult {
        let mut stream = ExchangeStream::new(stream, exchanges);
        let copied = self.copy_bidirectional(visit, service, &mut stream).await;
        let end = stream.end();
        let bytes = CopiedBytes::of(&copied);
        let (told, error) = match (end, copied.result) {
            (None, Ok(())) | (Some(StreamEnd::Complete), _) => {
                return StreamResult::complete(bytes);
            }
            (Some(StreamEnd::NotDelivered), _) => (NOT_DELIVERED.to_owned(), None),
            (Some(StreamEnd::PartlyDelivered), _) => (
                PARTLY_DELIVERED.to_owned(),
                Some(PARTLY_DELIVERED.to_owned()),
            ),
            (Some(StreamEnd::NotAnswered), _) => {
                (NOT_ANSWERED.to_owned(), Some(NOT_ANSWERED.to_owned()))
            }
            (None, Err(error)) => (
                format!("the connection to the service was lost: {}", error.kind()),
                Some(error.to_string()),
            ),
        };
        let reset = wire::Error::stream_broke(told).with_delivered(stream.delivered());
        StreamResult {
            reset: Some(reset),
            // An engine that requested the report has no response.
            awaits_verdict: exchanges && error.is_some() && end != Some(StreamEnd::NotAnswered),
            error,
            is_retried: end == Some(StreamEnd::NotDelivered),
            bytes,
        }
    }

    pub(crate) fn report_start(&self, stream: &Visit) {
        if let Some(observer) = &self.observer {
            observer(Connection::begun(&*stream.stream_id, stream.source_ip));
        }
    }

    pub(crate) fn report_end(&self, stream: &Visit, error: Option<String>, bytes: CopiedBytes) {
        if let Some(observer) = &self.observer {
            let begun = Connection::begun(&*stream.stream_id, stream.source_ip);
            let ended = begun.ended(error);
            observer(ended.with_bytes(bytes.from_visitor, bytes.to_visitor));
        }
    }
}

/// Opens the TLS sessions of one tunnel with its service.
struct ServiceTls {
    name: ServerName<'static>,
    /// Shared by all sessions, which resume earlier ones.
    config: Result<Arc<ClientConfig>, rustls::Error>,
}

impl ServiceTls {
    fn new(name: &ServiceName) -> Self {
        let provider = Arc::new(aws_lc_rs::default_provider());
        Self {
            name: name.to_server_name(),
            config: service_client_config(provider, &[b"http/1.1"]).map(Arc::new),
        }
    }

    /// Opens a session on a connection to the service.
    async fn open(&self, service: Service) -> io::Result<Service> {
        let Service::Tcp { socket, .. } = service else {
            return Err(io::Error::other("TLS needs an https:// target"));
        };
        let config = self.config.clone().map_err(io::Error::other)?;
        let opened = transport::connect(config, self.name.clone(), socket).await;
        opened.map(Service::Tls).map_err(|error| {
            let message = format!("the TLS handshake with the service failed: {error}");
            io::Error::new(error.kind(), message)
        })
    }
}

/// A connection to the private service.
pub(crate) enum Service {
    /// With the local address.
    Tcp {
        socket: Socket,
        local: SocketAddr,
    },
    /// With a session of the agent.
    Tls(TlsStream),
    Unix(UnixStream),
}

impl Service {
    /// Returns the connection itself.
    pub(crate) fn into_stream(self) -> Box<dyn transport::Stream> {
        match self {
            Self::Tcp { socket, .. } => Box::new(socket),
            Self::Tls(session) => Box::new(session),
            Self::Unix(socket) => Box::new(socket),
        }
    }

    /// Sends the PROXY header of the visitor. The visitor's port is unknown, and a Unix socket has
    /// no address at all: both are written as zero.
    async fn send_proxy_header(&mut self, visit: &Visit, version: ProxyProtocol) -> io::Result<()> {
        let source = visit.source_ip.map(|ip| SocketAddr::new(ip, 0));
        let destination = match self {
            Self::Tcp { local, .. } => *local,
            Self::Tls(_) | Self::Unix(_) => SocketAddr::from(([0, 0, 0, 0], 0)),
        };
        let mut header = Vec::with_capacity(MAX_HEADER);
        match version {
            ProxyProtocol::V1 => write_v1(source, destination, &mut header),
            ProxyProtocol::V2 => write_v2(source, destination, &mut header),
        }
        match self {
            Self::Tcp { socket, .. } => socket.write_all(&header).await,
            Self::Tls(session) => session.write_all(&header).await,
            Self::Unix(socket) => socket.write_all(&header).await,
        }
    }

    /// Copies both directions until they end. After a failure, the connection to the service is
    /// reset if the system supports it, so that half a request does not look complete to the
    /// service.
    async fn copy<S: transport::Stream>(mut self, source: Source, visitor: &mut S) -> CopyResult {
        match &mut self {
            Self::Tcp { socket, .. } => {
                // From here on a drop resets the connection, even if the agent is killed.
                socket.begin_message();
                let copied = pump(source, visitor, socket).await;
                if failure(&copied).is_none() {
                    socket.end_message();
                }
                copied
            }
            Self::Tls(session) => {
                session.get_mut().0.begin_message();
                let copied = pump(source, visitor, session).await;
                if failure(&copied).is_none() {
                    session.get_mut().0.end_message();
                }
                copied
            }
            Self::Unix(service) => pump(source, visitor, service).await,
        }
    }

    /// Like [`copy`](Self::copy), observed by a tap.
    async fn copy_tapped<S: transport::Stream>(
        mut self,
        source: Source,
        visitor: &mut S,
        mut tap: Box<dyn StreamTap>,
        name: Option<&str>,
    ) -> CopyResult {
        if let Some(name) = name {
            tap.opened(name);
        }
        let error = |copied: &CopyResult| failure(copied).map(ToString::to_string);
        match &mut self {
            Self::Tcp { socket, .. } => {
                socket.begin_message();
                let mut tapped = TappedStream::new(&mut *socket, tap);
                let copied = pump(source, visitor, &mut tapped).await;
                tapped.end(error(&copied).as_deref());
                if failure(&copied).is_none() {
                    socket.end_message();
                }
                copied
            }
            Self::Tls(session) => {
                session.get_mut().0.begin_message();
                let mut tapped = TappedStream::new(&mut *session, tap);
                let copied = pump(source, visitor, &mut tapped).await;
                tapped.end(error(&copied).as_deref());
                if failure(&copied).is_none() {
                    session.get_mut().0.end_message();
                }
                copied
            }
            Self::Unix(service) => {
                let mut tapped = TappedStream::new(service, tap);
                let copied = pump(source, visitor, &mut tapped).await;
                tapped.end(error(&copied).as_deref());
                copied
            }
        }
    }

    /// Like [`copy_tapped`](Self::copy_tapped), if the edge uses TLS with the service.
    async fn copy_intercepted<S: transport::Stream>(
        self,
        source: Source,
        visitor: &mut S,
        tap: Box<dyn StreamTap>,
        opener: &TlsInterceptor,
    ) -> CopyResult {
        match self {
            Self::Tcp { mut socket, .. } => {
                socket.begin_message();
                let copied = opener
                    .copy_decrypted(source, visitor, &mut socket, tap)
                    .await;
                if failure(&copied).is_none() {
                    socket.end_message();
                }
                copied
            }
            other => {
                let mut service = other.into_stream();
                opener
                    .copy_decrypted(source, visitor, &mut service, tap)
                    .await
            }
        }
    }
}

/// The failure of a copy. The end of the engine's last exchange is none.
fn failure(copied: &CopyResult) -> Option<&io::Error> {
    let error = copied.result.as_ref().err();
    error.filter(|error| !is_regular_end(error))
}

/// Serves an already accepted stream that has its own connection.
pub(crate) async fn serve_raw(forward: Arc<Forward>, mut stream: Stream) {
    let visit = Visit {
        stream_id: stream.stream_id().to_owned(),
        source_ip: stream.source_ip(),
    };
    forward.report_start(&visit);
    let (error, bytes) = match Box::pin(forward.dial(&visit)).await {
        Ok(service) => {
            let copied = forward
                .copy_bidirectional(&visit, service, &mut stream)
                .await;
            let bytes = CopiedBytes::of(&copied);
            (copied.result.err().map(|error| error.to_string()), bytes)
        }
        Err(error) => {
            forward.show_unreachable(&visit, &mut stream, &error).await;
            (Some(error), CopiedBytes::default())
        }
    };
    forward.report_end(&visit, error, bytes);
}

/// Serves a stream on a standing connection and returns the connection. `exchanges`: the stream
/// carries consecutive HTTP exchanges.
pub(crate) async fn serve_framed<T: transport::Stream>(
    forward: &Forward,
    visit: &Visit,
    mut framed: FramedStream<T>,
    exchanges: bool,
) -> FramedStream<T> {
    forward.report_start(visit);
    // Boxed like all short futures of a stream, so that it uses memory only while it runs.
    let ended = match Box::pin(forward.dial(visit)).await {
        Ok(service) => forward.copy(visit, service, &mut framed, exchanges).await,
        Err(error) => {
            forward.show_unreachable(visit, &mut framed, &error).await;
            StreamResult::unreachable(error)
        }
    };
    let refusal = framed.refusal().filter(|_| !ended.is_retried).cloned();
    match ended.reset {
        Some(reason) => framed.reset(Some(reason)),
        None => framed.finish(),
    }
    let mut error = reason(refusal, ended.error);
    if ended.awaits_verdict && is_complete(|cx| framed.poll_peer_end(cx)).await {
        error = None;
    }
    forward.report_end(visit, error, ended.bytes);
    framed
}

/// Serves a stream that starts on a lane.
pub(crate) async fn serve_carried(
    forward: &Forward,
    visit: &Visit,
    mut carried: MigratingLaneStream,
    exchanges: bool,
) {
    forward.report_start(visit);
    let ended = match Box::pin(forward.dial(visit)).await {
        Ok(service) => forward.copy(visit, service, &mut carried, exchanges).await,
        Err(error) => {
            forward.show_unreachable(visit, &mut carried, &error).await;
            StreamResult::unreachable(error)
        }
    };
    let on_lane = carried.lane_refusal().filter(|_| !ended.is_retried);
    let refusal = if let Some(connection) = carried.connection_mut() {
        let refusal = on_lane.or_else(|| connection.refusal());
        match ended.reset {
            Some(reason) => connection.reset(reason),
            None => connection.finish(),
        }
        refusal
    } else {
        match ended.reset {
            Some(reason) => carried.lane().reset(Some(&reason)),
            None => carried.lane().finish(),
        }
        on_lane
    };
    let mut error = reason(refusal, ended.error);
    let is_complete = ended.awaits_verdict
        && is_complete(|cx| match carried.connection_mut() {
            Some(connection) => connection.poll_peer_end(cx),
            None => carried.lane().poll_peer_end(cx),
        })
        .await;
    if is_complete {
        error = None;
    }
    forward.report_end(visit, error, ended.bytes);
}

/// The bytes that a stream has carried.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CopiedBytes {
    from_visitor: u64,
    to_visitor: u64,
}

impl CopiedBytes {
    /// The bytes of a copy from the visitor (a) to the service (b) and back.
    pub(crate) fn of(copied: &CopyResult) -> Self {
        Self {
            from_visitor: copied.a_to_b,
            to_visitor: copied.b_to_a,
        }
    }
}

/// The end of a stream.
struct StreamResult {
    /// The stream is aborted with this reason.
    reset: Option<wire::Error>,
    /// The failure, for the owner.
    error: Option<String>,
    /// The failure is none if the engine's last exchange is complete.
    awaits_verdict: bool,
    /// The service received nothing, and the engine sends the request again. A reset by the engine
    /// is not a failure.
    is_retried: bool,
    bytes: CopiedBytes,
}

/// Reasons of a reset after the service has closed its connection.
const NOT_DELIVERED: &str = "the service had closed the connection";
const PARTLY_DELIVERED: &str =
    "the service closed the connection before it had read the whole request";
const NOT_ANSWERED: &str = "the service closed the connection without a complete response";

impl StreamResult {
    fn complete(bytes: CopiedBytes) -> Self {
        Self {
            reset: None,
            error: None,
            awaits_verdict: false,
            is_retried: false,
            bytes,
        }
    }

    fn unreachable(error: String) -> Self {
        Self {
            reset: Some(wire::Error::service_unavailable(error.as_str())),
            error: Some(error),
            awaits_verdict: false,
            is_retried: false,
            bytes: CopiedBytes::default(),
        }
    }
}

/// The failure of a stream, for the owner: the engine's reason if it refused the stream.
fn reason(refusal: Option<wire::Error>, error: Option<String>) -> Option<String> {
    // The text is printed on a terminal.
    let printable = |text: &str| text.chars().filter(|letter| !letter.is_control()).collect();
    let refusal = refusal.filter(|refusal| !refusal.text().is_empty());
    refusal.map_or(error, |refusal| Some(printable(refusal.text())))
}

pub(crate) async fn dial_target(to: &Target) -> io::Result<Service> {
    match to {
        Target::Tcp(address) | Target::Tls(address) => dial_tcp(address).await,
        Target::Unix(path) => UnixStream::connect(path).await.map(Service::Unix),
    }
}

async fn dial_tcp(address: &HostPort) -> io::Result<Service> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for candidate in address.resolve().await? {
        match TcpStream::connect(candidate).await {
            Ok(stream) => {
                // The stream also works without these options.
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

/// Time limit of dialling a service. Services are near, and visitors do not wait longer.
pub(crate) const SERVICE_DIAL_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);

#[cfg(test)]
mod tests;

//! Reads the ClientHello and determines the destination of a connection.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustls::server::{Acceptor, ClientHello};
use rustls::{ProtocolVersion, ServerConfig};
use tokio_rustls::{LazyConfigAcceptor, StartHandshake};
use tracing::debug;
use transport::{Socket, TlsStream, wrap_server_session};
use types::tunnel::{Protocol, TlsMode};
use wire::handshake::{ALPN_RSTRM, ALPN_SVC, selected_process};

use super::client_auth::ClientCertRequest;
use super::routes;
use super::tls::TlsPolicy;
use crate::access::Rule;
use crate::agents::Agent;
use crate::config::TlsRoute;
use crate::core::{Core, Worker};
use crate::directory::Project;
use crate::edge::access_record::{AccessRecord, Outcome};
use crate::edge::{self, ConnectionInfo};
use crate::live::{LiveTunnel, Route};
use crate::metrics::Handshake;

/// Time limit from the first byte of a connection to the end of the handshake. Two round trips on a
/// very slow line take two seconds.
const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(10);

/// Maximum bytes of a ClientHello on the wire. Post-quantum key shares and a dozen extensions take
/// two kilobytes.
const MAX_CLIENT_HELLO_BYTES: usize = 32 * 1024;

/// Reads the ClientHello of one connection, completes the handshake, and passes the connection to a
/// new task. The memory of a task is sized for its largest state, so without a new task an idle
/// visitor would keep the memory of its handshake.
pub(super) async fn serve(socket: Socket, worker: Arc<Worker>) {
    let core = Arc::clone(&worker.core);
    let Some(in_flight) = core.handshakes.start(socket.peer().ip()) else {
        core.metrics.tls_handshake(Handshake::Crowded);
        return;
    };
    let handshake =
        tokio::time::timeout(HANDSHAKE_DEADLINE, accept_and_classify(socket, &worker)).await;
    drop(in_flight);
    let spawner = Arc::clone(&worker);
    match handshake {
        Ok(Some(ConnectionKind::Agent(stream, project))) => {
            // The agent protocol is defined over TLS 1.3 only.
            if stream.get_ref().1.protocol_version() == Some(ProtocolVersion::TLSv1_3) {
                let runtime = worker.runtime.clone();
                let agents = worker.core.agents.clone();
                let visit = worker.core.visits.token();
                agents.spawn_on(
                    crate::agents::serve(stream, project, worker, visit),
                    &runtime,
                );
            }
        }
        Ok(Some(ConnectionKind::EarlyAgent(stream))) => {
            spawner.spawn(crate::agents::refuse_until_ready(stream));
        }
        Ok(Some(ConnectionKind::Api(stream, name))) => {
            spawner.spawn(edge::serve_api(stream, name, worker));
        }
        Ok(Some(ConnectionKind::Http(stream, info))) => {
            spawner.spawn(edge::serve_http(stream, info, worker));
        }
        Ok(Some(ConnectionKind::Terminated(stream, tunnel))) => {
            spawner.spawn(async move { edge::raw::serve(stream, &tunnel, "tls", &worker).await });
        }
        Ok(Some(ConnectionKind::Passthrough(socket, tunnel))) => {
            spawner.spawn(async move { edge::raw::serve(socket, &tunnel, "tls", &worker).await });
        }
        Ok(Some(ConnectionKind::Routed(socket, route))) => {
            let routed = spawner.core.routed.clone();
            routed.spawn_on(routes::serve(socket, route, worker), &spawner.runtime);
        }
        Ok(None) => {}
        Err(_) => worker.core.metrics.tls_handshake(Handshake::TimedOut),
    }
}

enum ConnectionKind {
    Agent(TlsStream, Arc<Project>),
    /// An agent that connects before the engine has any project.
    EarlyAgent(TlsStream),
    /// With the server name of the handshake, in lower case.
    Api(TlsStream, Option<Arc<str>>),
    Http(TlsStream, ConnectionInfo),
    Terminated(TlsStream, Arc<LiveTunnel<Agent>>),
    Passthrough(Socket, Arc<LiveTunnel<Agent>>),
    /// For another server of the operator.
    Routed(Socket, Arc<TlsRoute>),
}

/// Reads the ClientHello and completes the handshake with the matching configuration. `None` if the
/// connection is refused and closed.
async fn accept_and_classify(socket: Socket, worker: &Arc<Worker>) -> Option<ConnectionKind> {
    let core = &worker.core;
    let mut start = match read_client_hello(socket).await {
        Ok(start) => start,
        Err(error) => {
            debug!(%error, "no ClientHello");
            core.metrics.tls_handshake(Handshake::NoHello);
            return None;
        }
    };
    let hello = start.client_hello();
    let agent_only = offers_only_agent_protocol(&hello);
    // Visitors do not select a process.
    if agent_only && let Some(peer) = core.handover.selected_peer(&hello) {
        let hello_bytes = start.io.recall();
        let mut socket = start.io;
        socket.unread(&hello_bytes).ok()?;
        peer.pass(socket).await;
        return None;
    }
    let server_name = hello.server_name().map(str::to_ascii_lowercase);
    let route = server_name
        .as_deref()
        .and_then(|name| core.config.tls_routes.get(name));
    if let Some(route) = route {
        let hello_bytes = start.io.recall();
        let mut socket = start.io;
        socket.unread(&hello_bytes).ok()?;
        let is_admitted = super::admit::admits_visitor(&mut socket, core);
        return is_admitted.then(|| ConnectionKind::Routed(socket, Arc::clone(route)));
    }
    let challenges = core.challenges.as_ref();
    if let Some(config) = challenges.and_then(|answers| answers.handshake_config(&hello)) {
        // The handshake is the answer, and the authority then closes the connection.
        complete_handshake(start, config, core).await.ok();
        return None;
    }
    let name = server_name.clone();
    let hello_bytes = start.io.recall();
    let Some(name) = name.filter(|name| !core.is_own_name(name)) else {
        // Without a server name, a client can still reach an engine that has only one project.
        let base = core.namespace.base().as_str();
        let project = core.project_at(server_name.as_deref().unwrap_or(base));
        if agent_only && project.is_none() && core.has_platform_snapshot() {
            debug!("an agent connection for an unknown project");
            return None;
        }
        let stream = complete_handshake(start, Arc::clone(&core.tls.base), core)
            .await
            .ok()?;
        return classify_base_host(stream, server_name, project, core);
    };
    if agent_only {
        // Agents connect to the base host only (EN-10); this name could belong to a tunnel.
        debug!("an agent connection to a name that is not the base host");
        return None;
    }
    if !super::admit::admits_visitor(&mut start.io, core) {
        return None;
    }
    let tunnel = core.any_tunnel_at(&name);
    if let Some(candidate) = &tunnel
        && candidate.view.properties.protocol == Some(Protocol::Tls)
        && let Route::Online(tunnel) = core.route(&name)
        && !core.has_lost_name(&tunnel)
        && core.serves_names()
    {
        return classify_tls_tunnel(start, hello_bytes, &tunnel, worker).await;
    }
    let policy = tunnel.as_ref().map(|tunnel| TlsPolicy::of(tunnel));
    let config = core.tls.http(policy.as_ref()).ok()?;
    let stream = match &tunnel {
        Some(tunnel) => complete_tunnel_handshake(start, config, tunnel, "http", worker).await?,
        None => complete_handshake(start, config, core).await.ok()?,
    };
    let certificate_requested =
        policy.is_some_and(|policy| policy.client_cert != ClientCertRequest::Never);
    let info = ConnectionInfo::new(&stream, name, certificate_requested);
    Some(ConnectionKind::Http(stream, info))
}

async fn read_client_hello(mut socket: Socket) -> io::Result<StartHandshake<Socket>> {
    socket.remember(MAX_CLIENT_HELLO_BYTES);
    LazyConfigAcceptor::new(Acceptor::default(), socket).await
}

/// Classifies a connection to a TLS tunnel: terminates TLS, or passes it through to the service.
async fn classify_tls_tunnel(
    start: StartHandshake<Socket>,
    hello_bytes: Vec<u8>,
    tunnel: &Arc<LiveTunnel<Agent>>,
    worker: &Arc<Worker>,
) -> Option<ConnectionKind> {
    if tunnel.view.properties.tls_mode == Some(TlsMode::Passthrough) {
        let mut socket = start.io;
        socket.unread(&hello_bytes).ok()?;
        return Some(ConnectionKind::Passthrough(socket, Arc::clone(tunnel)));
    }
    let config = worker.core.tls.terminated(&TlsPolicy::of(tunnel)).ok()?;
    let stream = complete_tunnel_handshake(start, config, tunnel, "tls", worker).await?;
    Some(ConnectionKind::Terminated(stream, Arc::clone(tunnel)))
}

/// Like [`complete_handshake`], for a tunnel. A visitor that lacks a required certificate is
/// recorded as refused.
async fn complete_tunnel_handshake(
    start: StartHandshake<Socket>,
    config: Arc<ServerConfig>,
    tunnel: &LiveTunnel<Agent>,
    kind: &'static str,
    worker: &Arc<Worker>,
) -> Option<TlsStream> {
    let source = start.io.peer().ip();
    match complete_handshake(start, config, &worker.core).await {
        Ok(stream) => Some(stream),
        Err(error) => {
            let error = error.get_ref().and_then(|error| error.downcast_ref());
            if error == Some(&rustls::Error::NoCertificatesPresented) {
                let mut record = AccessRecord::start(worker, kind, source);
                record.set_tunnel(tunnel);
                record.set_refusal(Rule::Certificate, Some("no certificate was shown".into()));
                record.set_outcome(Outcome::Refused);
            }
            None
        }
    }
}

async fn complete_handshake(
    start: StartHandshake<Socket>,
    config: Arc<ServerConfig>,
    core: &Core,
) -> io::Result<TlsStream> {
    match start.into_stream(config).await {
        Ok(stream) => {
            core.metrics.tls_handshake(Handshake::Completed);
            Ok(wrap_server_session(stream))
        }
        Err(error) => {
            debug!(%error, "a TLS handshake failed");
            core.metrics.tls_handshake(Handshake::Failed);
            Err(error)
        }
    }
}

fn classify_base_host(
    stream: TlsStream,
    server_name: Option<String>,
    project: Option<Arc<Project>>,
    core: &Core,
) -> Option<ConnectionKind> {
    let session = stream.get_ref().1;
    if !session.alpn_protocol().is_some_and(is_agent_protocol) {
        return Some(ConnectionKind::Api(stream, server_name.map(Arc::from)));
    }
    match project {
        Some(project) => Some(ConnectionKind::Agent(stream, project)),
        None if core.has_platform_snapshot() => None,
        None => Some(ConnectionKind::EarlyAgent(stream)),
    }
}

/// True if the client offers only the agent protocol.
fn offers_only_agent_protocol(hello: &ClientHello<'_>) -> bool {
    let Some(mut names) = hello.alpn() else {
        return false;
    };
    let mut is_nonempty = false;
    names.all(|name| {
        is_nonempty = true;
        is_agent_protocol(name) || selected_process(name).is_some()
    }) && is_nonempty
}

fn is_agent_protocol(name: &[u8]) -> bool {
    name == ALPN_SVC || name == ALPN_RSTRM
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    /// Reads a ClientHello that announces 60,000 bytes, of which only `bytes` are sent.
    async fn read_truncated_hello(bytes: usize) -> io::Result<StartHandshake<Socket>> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        let (stream, peer) = listener.accept().await.unwrap();
        let mut hello = vec![1, 0, 0xea, 0x60, 3, 3];
        hello.resize(bytes, 0);
        let mut sent = Vec::new();
        for record in hello.chunks(16_000) {
            let length = u16::try_from(record.len()).unwrap().to_be_bytes();
            sent.extend_from_slice(&[22, 3, 1]);
            sent.extend_from_slice(&length);
            sent.extend_from_slice(record);
        }
        client.write_all(&sent).await.unwrap();
        client.shutdown().await.unwrap();
        read_client_hello(Socket::new(stream, peer)).await
    }

    #[tokio::test]
    async fn client_hellos_have_a_size_limit() {
        let short = read_truncated_hello(32_000).await.err().unwrap();
        assert_eq!(short.kind(), io::ErrorKind::UnexpectedEof, "{short}");
        let long = read_truncated_hello(33_000).await.err().unwrap();
        assert_eq!(long.kind(), io::ErrorKind::InvalidData, "{long}");
    }
}

//! The ClientHello: where a connection wants to go.

use std::sync::Arc;
use std::time::Duration;

use rustls::server::{Acceptor, ClientHello};
use rustls::{ProtocolVersion, ServerConfig};
use tokio_rustls::{LazyConfigAcceptor, StartHandshake};
use tracing::debug;
use transport::{Socket, TlsStream, tune};
use types::tunnel::{Protocol, TlsMode};
use wire::handshake::{ALPN_RSTRM, ALPN_SVC};

use crate::agents::Agent;
use crate::core::{Core, Worker};
use crate::edge;
use crate::live::{LiveTunnel, Route};
use crate::metrics::Handshake;

/// How long a connection may take from its first byte to the end of the handshake. Two round
/// trips on the worst line take two seconds.
const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(10);

/// Longest ClientHello that is read, in bytes on the wire: post-quantum key shares and a dozen
/// extensions take two kilobytes.
const HELLO_BYTES: usize = 32 * 1024;

/// Serves one connection of the TLS listener to its end.
pub(super) async fn serve(socket: Socket, worker: Arc<Worker>) {
    let handshake = tokio::time::timeout(HANDSHAKE_DEADLINE, classify(socket, &worker));
    match handshake.await {
        Ok(Some(Class::Agent(stream))) => {
            // The agent protocol is defined over TLS 1.3 alone.
            if stream.get_ref().1.protocol_version() == Some(ProtocolVersion::TLSv1_3) {
                let runtime = worker.runtime.clone();
                let agents = worker.core.agents.clone();
                agents.spawn_on(crate::agents::serve(stream, worker), &runtime);
            }
        }
        Ok(Some(Class::Api(stream))) => edge::serve_api(stream, worker).await,
        Ok(Some(Class::Http(stream, name))) => edge::serve_http(stream, name, worker).await,
        Ok(Some(Class::Terminated(stream, tunnel))) => {
            edge::raw::serve(stream, &tunnel, "tls", &worker).await;
        }
        Ok(Some(Class::PassedThrough(socket, tunnel))) => {
            edge::raw::serve(socket, &tunnel, "tls", &worker).await;
        }
        Ok(None) => {}
        Err(_) => worker.core.metrics.tls_handshake(Handshake::TimedOut),
    }
}

enum Class {
    Agent(TlsStream),
    Api(TlsStream),
    /// With the server name that the visitor asked for, in lower case.
    Http(TlsStream, String),
    Terminated(TlsStream, Arc<LiveTunnel<Agent>>),
    PassedThrough(Socket, Arc<LiveTunnel<Agent>>),
}

/// Reads the hello and completes the handshake that belongs to it. `None`: the connection is
/// refused and closed.
async fn classify(mut socket: Socket, worker: &Worker) -> Option<Class> {
    let core = &worker.core;
    socket.remember(HELLO_BYTES);
    let acceptor = LazyConfigAcceptor::new(Acceptor::default(), socket);
    let mut start = match acceptor.await {
        Ok(start) => start,
        Err(error) => {
            debug!(%error, "no ClientHello");
            core.metrics.tls_handshake(Handshake::NoHello);
            return None;
        }
    };
    let hello = start.client_hello();
    let agent_only = asks_for_agent_protocol(&hello);
    let name = hello.server_name().map(str::to_ascii_lowercase);
    let said = start.io.recall();
    let Some(name) = name.filter(|name| name != core.namespace.base().as_str()) else {
        return finish(start, Arc::clone(&core.tls.base), core)
            .await
            .map(base_class);
    };
    if agent_only {
        // EN-10: agents use the base host; this name could be a tunnel's.
        debug!("the agent protocol on a name that is not the base host");
        return None;
    }
    let tunnel = match core.live.route(&name) {
        Route::Online(tunnel) => Some(tunnel),
        Route::Offline | Route::Unknown => None,
    };
    if let Some(tunnel) = &tunnel
        && tunnel.view.properties.protocol == Some(Protocol::Tls)
    {
        return tls_tunnel(start, said, tunnel, core).await;
    }
    let config = core
        .tls
        .http(tunnel.as_ref().map(|tunnel| &tunnel.view.properties))
        .ok()?;
    let stream = finish(start, config, core).await?;
    Some(Class::Http(stream, name))
}

/// A tunnel that carries TLS: the engine ends it, or leaves it to the service.
async fn tls_tunnel(
    start: StartHandshake<Socket>,
    said: Vec<u8>,
    tunnel: &Arc<LiveTunnel<Agent>>,
    core: &Core,
) -> Option<Class> {
    let properties = &tunnel.view.properties;
    if properties.tls_mode == Some(TlsMode::Passthrough) {
        let mut socket = start.io;
        socket.unread(&said).ok()?;
        return Some(Class::PassedThrough(socket, Arc::clone(tunnel)));
    }
    let config = core.tls.terminated(properties).ok()?;
    let stream = finish(start, config, core).await?;
    Some(Class::Terminated(stream, Arc::clone(tunnel)))
}

async fn finish(
    start: StartHandshake<Socket>,
    config: Arc<ServerConfig>,
    core: &Core,
) -> Option<TlsStream> {
    match start.into_stream(config).await {
        Ok(stream) => {
            let mut stream = TlsStream::Server(stream);
            tune(&mut stream);
            core.metrics.tls_handshake(Handshake::Completed);
            Some(stream)
        }
        Err(error) => {
            debug!(%error, "a TLS handshake failed");
            core.metrics.tls_handshake(Handshake::Failed);
            None
        }
    }
}

fn base_class(stream: TlsStream) -> Class {
    let session = stream.get_ref().1;
    if !session.alpn_protocol().is_some_and(is_agent_protocol) {
        return Class::Api(stream);
    }
    Class::Agent(stream)
}

/// Whether the client offers nothing but the agent protocol.
fn asks_for_agent_protocol(hello: &ClientHello<'_>) -> bool {
    let Some(mut names) = hello.alpn() else {
        return false;
    };
    let mut any = false;
    names.all(|name| {
        any = true;
        is_agent_protocol(name)
    }) && any
}

fn is_agent_protocol(name: &[u8]) -> bool {
    name == ALPN_SVC || name == ALPN_RSTRM
}

//! Server's side of a session: a stream of its tunnel, in the transport of the server.

use std::net::IpAddr;
use std::time::Duration;

use tokio::time::timeout;
use tokio_tungstenite::tungstenite::{self, ClientRequestBuilder, http::Uri};
use types::tunnel::{Hostname, Tunnel};

use super::wire::{self, Peer};
use crate::access::Proof;
use crate::edge::UpstreamIo;

/// Connection to the server of a session.
pub(crate) struct Server {
    pub(super) peer: Peer<'static>,
}

/// Reasons for which a server is unusable.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServerError {
    /// The server's label names an unsupported transport.
    #[error("the server uses a transport that this engine does not support")]
    Transport,
    #[error("the server's label `{EXEC_PATH}` is not a path")]
    Path,
    #[error("the server did not open a WebSocket: {0}")]
    Handshake(#[from] tungstenite::Error),
    #[error("the server did not open a WebSocket in time")]
    Deadline,
}

impl Server {
    /// Connects to the server at the other end of a stream.
    ///
    /// # Errors
    /// [`ServerError`].
    pub(crate) async fn reach(
        io: UpstreamIo,
        tunnel: &Tunnel,
        proof: Option<&Proof>,
        source: IpAddr,
    ) -> Result<Self, ServerError> {
        let labels = &tunnel.properties.labels;
        let peer = match labels.get(TRANSPORT).map(String::as_str) {
            Some("plain") => Peer::plain(io),
            Some("websocket") | None => {
                let request = request(tunnel, proof, source)?;
                let config = Some(wire::config());
                let opening = tokio_tungstenite::client_async_with_config(request, io, config);
                let opened = timeout(HANDSHAKE_TIMEOUT, opening).await;
                let (socket, _) = opened.map_err(|_| ServerError::Deadline)??;
                Peer::websocket(socket)
            }
            Some(_) => return Err(ServerError::Transport),
        };
        Ok(Self { peer })
    }
}

/// Builds the request that opens a WebSocket. The server receives the same headers about the
/// visitor as a service behind a published tunnel.
fn request(
    tunnel: &Tunnel,
    proof: Option<&Proof>,
    source: IpAddr,
) -> Result<ClientRequestBuilder, ServerError> {
    let properties = &tunnel.properties;
    let host = properties.hostname.as_ref().map(Hostname::as_str);
    // A tunnel name may contain characters that are invalid in a host.
    let path = properties.labels.get(EXEC_PATH).map_or("/", String::as_str);
    let address = format!("ws://{}{path}", host.unwrap_or(tunnel.id.as_str()));
    let address: Uri = address.parse().map_err(|_| ServerError::Path)?;
    if !path.starts_with('/') {
        return Err(ServerError::Path);
    }
    let mut request =
        ClientRequestBuilder::new(address).with_header("x-forwarded-for", source.to_string());
    if let Some(proof) = proof {
        let facts = [
            ("svc-user-id", proof.user_id()),
            ("svc-credential-id", proof.credential_id()),
            ("svc-auth-method", Some(proof.method())),
        ];
        for (name, value) in facts {
            // A value that is invalid in a header is left out, never changed.
            let value = value.filter(|value| value.bytes().all(|byte| byte.is_ascii_graphic()));
            if let Some(value) = value {
                request = request.with_header(name, value);
            }
        }
    }
    Ok(request)
}

const TRANSPORT: &str = "svc.webtty.transport";
const EXEC_PATH: &str = "svc.webtty.exec.path";

/// Time within which a server must open a WebSocket.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

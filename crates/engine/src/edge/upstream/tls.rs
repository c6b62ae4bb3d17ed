//! TLS with the service, inside its tunnel.

use std::io;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, InvalidMessage};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::connect::ConnectError;
use crate::agents::{Agent, TunnelStream};
use crate::limits::ThrottledStream;
use crate::live::LiveTunnel;

/// Time limit of a TLS or HTTP/2 handshake with a service.
pub(super) const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(10);

/// Performs a handshake with the service of a tunnel, within [`HANDSHAKE_DEADLINE`].
pub(super) async fn connect(
    stream: ThrottledStream<TunnelStream>,
    tunnel: &LiveTunnel<Agent>,
    config: &Arc<ClientConfig>,
) -> Result<TlsStream<ThrottledStream<TunnelStream>>, ConnectError> {
    let name = tunnel
        .view
        .properties
        .hostname
        .as_ref()
        .map_or("localhost", |name| name.as_str());
    let name = ServerName::try_from(name.to_owned())
        .map_err(|error| ConnectError::Tls(io::Error::other(error)))?;
    let handshake = TlsConnector::from(Arc::clone(config)).connect(name, stream);
    tokio::time::timeout(HANDSHAKE_DEADLINE, handshake.into_fallible())
        .await
        .map_err(|_| ConnectError::Deadline)?
        .map_err(|(error, mut stream)| {
            if !is_plaintext(&error) {
                return ConnectError::Tls(error);
            }
            let reason = wire::Error::invalid_response(PLAINTEXT);
            stream.get_mut().reset(&reason);
            ConnectError::Plaintext
        })
}

/// The error if the service answers a handshake without TLS.
pub(super) const PLAINTEXT: &str = "the service sent an invalid response: it does not use TLS, so \
                                    the target must begin with http://";

/// True if the service's first bytes are not TLS.
fn is_plaintext(error: &io::Error) -> bool {
    let error = error.get_ref();
    let error = error.and_then(|error| error.downcast_ref::<rustls::Error>());
    let invalid = InvalidMessage::InvalidContentType;
    error.is_some_and(|error| *error == rustls::Error::InvalidMessage(invalid))
}

pub(super) static EITHER: LazyLock<Arc<ClientConfig>> =
    LazyLock::new(|| client_config(&[b"h2", b"http/1.1"]));
pub(super) static NO_PROTOCOL: LazyLock<Arc<ClientConfig>> = LazyLock::new(|| client_config(&[]));
pub(super) static HTTP1_ONLY: LazyLock<Arc<ClientConfig>> =
    LazyLock::new(|| client_config(&[b"http/1.1"]));

fn client_config(alpn: &[&[u8]]) -> Arc<ClientConfig> {
    #[expect(
        clippy::expect_used,
        reason = "the provider has suites of both versions"
    )]
    let config = transport::service_client_config(daemon::tls::provider(), alpn)
        .expect("the provider supports both versions");
    Arc::new(config)
}

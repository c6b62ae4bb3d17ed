//! TLS interception between the edge and the service, so that a tap sees the decrypted bytes.
//!
//! In a tunnel with `upstream_tls`, the edge uses TLS with the service, and the agent carries bytes
//! that it cannot read. A [`TlsInterceptor`] sits between the two: it reads the ClientHello, opens
//! a session with the service with the same server name and protocols, and then accepts the edge's
//! session with the protocol that the service has chosen. The edge accepts any certificate, and the
//! interceptor does the same towards the service. Both sides see the same as without it, and the
//! tunnel does not change.

use std::{
    fmt, io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use rustls::{
    ClientConfig, ServerConfig,
    crypto::{CryptoProvider, aws_lc_rs},
    server::Acceptor,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf},
    time::timeout,
};
use tokio_rustls::{LazyConfigAcceptor, StartHandshake, TlsConnector, TlsStream};
use transport::{CopyResult, Stream, memory::Source, pump, service_client_config};

use super::{StreamTap, TappedStream, show_request};
use crate::trust::TlsError;

/// Intercepts TLS between edge and service (man in the middle), so that a tap can read it.
#[derive(Clone)]
pub struct TlsInterceptor {
    /// TLS server configuration for sessions with the edge. ALPN is set per session.
    edge_config: Arc<ServerConfig>,
    /// TLS client configuration for sessions with the service. ALPN is set per session.
    service_config: Arc<ClientConfig>,
}

impl TlsInterceptor {
    /// Creates an interceptor with this certificate for the edge. The certificate may have any
    /// name and any issuer.
    ///
    /// # Errors
    /// The key does not match the certificate, or cannot sign.
    pub fn new(
        certificate: CertificateDer<'static>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Self, TlsError> {
        Self::build(certificate, key).map_err(TlsError)
    }

    fn build(
        certificate: CertificateDer<'static>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Self, rustls::Error> {
        let server = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)?;
        Ok(Self {
            edge_config: Arc::new(server),
            service_config: Arc::new(service_client_config(provider(), &[])?),
        })
    }

    /// Copies in both directions between the sessions with the edge and the service, until both
    /// directions end. `tap` observes the bytes. `source` is the visitor's network (buffer limit).
    pub(crate) async fn copy_decrypted<V: Stream, S: Stream>(
        &self,
        source: Source,
        visitor: &mut V,
        service: &mut S,
        mut tap: Box<dyn StreamTap>,
    ) -> CopyResult {
        let (mut visitor, service) = match self.open(visitor, service, &mut *tap).await {
            Ok(opened) => opened,
            Err(failed) => {
                let error = match failed {
                    OpenSessionsError::Edge(error) => {
                        tap.ended(Some(&error.to_string()));
                        error
                    }
                    // The edge's session is not accepted only to read the request: the edge would
                    // repeat that.
                    OpenSessionsError::Service(error) => {
                        tap.unreachable(&error.to_string());
                        error
                    }
                };
                return CopyResult {
                    a_to_b: 0,
                    b_to_a: 0,
                    result: Err(error),
                };
            }
        };
        let mut tapped = TappedStream::new(service, tap);
        let pumped = pump(source, &mut visitor, &mut tapped).await;
        if pumped.result.is_err() {
            // The TLS session may still buffer the service's last bytes. An error only means that
            // the visitor has disconnected.
            drop(visitor.flush().await);
        }
        let error = pumped.result.as_ref().err().map(ToString::to_string);
        tapped.end(error.as_deref());
        pumped
    }

    /// Accepts the session with the edge without a service behind it, only to show the tap the
    /// request. Ends the tap with this error.
    pub(crate) async fn show_unreachable<V: Stream>(
        &self,
        visitor: &mut V,
        mut tap: Box<dyn StreamTap>,
        error: &str,
    ) {
        let Ok(edge) = accept_hello(visitor).await else {
            return tap.unreachable(error);
        };
        let hello = edge.client_hello();
        let name = hello
            .server_name()
            .unwrap_or(PLACEHOLDER_SERVER_NAME)
            .to_owned();
        let offered: Vec<_> = hello
            .alpn()
            .into_iter()
            .flatten()
            .map(<[u8]>::to_vec)
            .collect();
        // One request is expected, which HTTP/1.1 sends without a preface.
        let simple = offered.iter().find(|protocol| *protocol == b"http/1.1");
        let chosen = simple.or(offered.first()).cloned();
        let mut server = ServerConfig::clone(&self.edge_config);
        server.alpn_protocols = chosen.into_iter().collect();
        match timeout(HANDSHAKE_TIMEOUT, edge.into_stream(Arc::new(server))).await {
            Ok(Ok(mut edge)) => {
                tap.opened(&name);
                show_request(tap, &mut edge, error).await;
            }
            Ok(Err(_)) | Err(_) => tap.unreachable(error),
        }
    }

    /// Opens both sessions.
    async fn open<V: Stream, S: Stream>(
        &self,
        visitor: V,
        service: S,
        tap: &mut dyn StreamTap,
    ) -> Result<(LinkedTlsStream<V>, LinkedTlsStream<S>), OpenSessionsError> {
        let edge = accept_hello(visitor).await?;
        let hello = edge.client_hello();
        let server_name = hello.server_name();
        let name = server_name.unwrap_or(PLACEHOLDER_SERVER_NAME).to_owned();
        let mut client = ClientConfig::clone(&self.service_config);
        client.enable_sni = server_name.is_some();
        let protocols = hello.alpn().into_iter().flatten();
        client.alpn_protocols = protocols.map(<[u8]>::to_vec).collect();
        let service = handshake(client, &name, service).await;
        let service = service.map_err(OpenSessionsError::Service)?;
        let mut server = ServerConfig::clone(&self.edge_config);
        let chosen = service.get_ref().1.alpn_protocol();
        server.alpn_protocols = chosen.map(<[u8]>::to_vec).into_iter().collect();
        let edge = edge.into_stream(Arc::new(server)).await?;
        tap.opened(&name);
        Ok(LinkedTlsStream::pair(edge.into(), service))
    }
}

/// Reason why the sessions cannot be opened.
enum OpenSessionsError {
    /// The session with the edge failed.
    Edge(io::Error),
    /// The session with the service failed.
    Service(io::Error),
}

impl From<io::Error> for OpenSessionsError {
    fn from(error: io::Error) -> Self {
        Self::Edge(error)
    }
}

/// Reads the edge's `ClientHello`.
async fn accept_hello<V: Stream>(mut visitor: V) -> io::Result<StartHandshake<V>> {
    // Flushes the response to the stream request: the edge may wait for it before it sends.
    visitor.flush().await?;
    LazyConfigAcceptor::new(Acceptor::default(), visitor).await
}

impl fmt::Debug for TlsInterceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsInterceptor").finish_non_exhaustive()
    }
}

/// Opens a session with a service as the edge does: with `name` as SNI, and only `protocol` in
/// ALPN.
pub(super) async fn connect<S: Stream>(
    name: &str,
    protocol: &str,
    service: S,
) -> io::Result<TlsStream<S>> {
    let client =
        service_client_config(provider(), &[protocol.as_bytes()]).map_err(io::Error::other)?;
    handshake(client, name, service).await
}

async fn handshake<S: Stream>(
    config: ClientConfig,
    name: &str,
    service: S,
) -> io::Result<TlsStream<S>> {
    let name = ServerName::try_from(name.to_owned()).map_err(io::Error::other)?;
    let connecting = TlsConnector::from(Arc::new(config)).connect(name, service);
    let connected = match timeout(HANDSHAKE_TIMEOUT, connecting).await {
        Ok(connected) => connected,
        Err(_elapsed) => Err(io::ErrorKind::TimedOut.into()),
    };
    connected.map(Into::into).map_err(|error| {
        let message = format!("the TLS handshake with the service failed: {error}");
        io::Error::new(error.kind(), message)
    })
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

/// One of two linked TLS sessions. If one ends without a `close_notify` alert, so does the other:
/// its data may have been truncated, and the reader of the other must be able to notice it, as with
/// a single session.
struct LinkedTlsStream<T> {
    tls: TlsStream<T>,
    /// This session has ended without a `close_notify` alert.
    truncated: Arc<AtomicBool>,
    /// The other session has ended without a `close_notify` alert.
    peer_truncated: Arc<AtomicBool>,
}

impl<T> LinkedTlsStream<T> {
    fn pair<U>(tls: TlsStream<T>, other: TlsStream<U>) -> (Self, LinkedTlsStream<U>) {
        let (one, two) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let this = Self {
            tls,
            truncated: Arc::clone(&one),
            peer_truncated: Arc::clone(&two),
        };
        let other = LinkedTlsStream {
            tls: other,
            truncated: two,
            peer_truncated: one,
        };
        (this, other)
    }
}

impl<T: Stream> AsyncRead for LinkedTlsStream<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        match ready!(Pin::new(&mut this.tls).poll_read(cx, buf)) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                this.truncated.store(true, Ordering::Relaxed);
                Poll::Ready(Ok(()))
            }
            read => Poll::Ready(read),
        }
    }
}

impl<T: Stream> AsyncWrite for LinkedTlsStream<T> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().tls).poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().tls).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.peer_truncated.load(Ordering::Relaxed) {
            ready!(Pin::new(&mut this.tls).poll_flush(cx))?;
            return Pin::new(this.tls.get_mut().0).poll_shutdown(cx);
        }
        Pin::new(&mut this.tls).poll_shutdown(cx)
    }
}

/// Twice the edge's time limit for a handshake with a service, so that the edge times out first and
/// reports the timeout to the visitor.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(20);

/// A placeholder for an edge that sends no server name; it is not verified and not sent.
const PLACEHOLDER_SERVER_NAME: &str = "localhost";

#[cfg(test)]
mod tests;

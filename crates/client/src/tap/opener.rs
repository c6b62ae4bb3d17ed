//! TLS of the service's own, opened for a tap.
//!
//! Where a tunnel says `upstream_tls`, the edge speaks TLS with the service, and the agent carries
//! bytes that it cannot read. An [`Opener`] stands between the two: it reads whom and what the edge
//! asks for, has a session with the service under the same name and with the same protocols, and
//! then takes the edge's with the protocol that the service has chosen. The edge believes whatever
//! certificate it is shown, and the opener does as the edge: so neither side meets anything else
//! than without it, and the tunnel stays what it is.

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
use tokio_rustls::{LazyConfigAcceptor, TlsConnector, TlsStream};
use transport::{CopyResult, Stream, memory::Source, pump, service_client};

use super::{StreamTap, TappedStream};
use crate::trust::TlsError;

/// Lets a tap read the streams of a tunnel in which the edge speaks TLS with the service.
#[derive(Clone)]
pub struct Opener {
    /// Towards the edge, but for the protocol.
    server: Arc<ServerConfig>,
    /// Towards the service, but for the protocols.
    client: Arc<ClientConfig>,
}

impl Opener {
    /// Shows the edge this certificate; it may be of any name, and signed by anybody.
    ///
    /// # Errors
    /// The key is not that of the certificate, or of no kind that can sign.
    pub fn new(
        certificate: CertificateDer<'static>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Self, TlsError> {
        Self::configured(certificate, key).map_err(TlsError)
    }

    fn configured(
        certificate: CertificateDer<'static>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Self, rustls::Error> {
        let server = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)?;
        Ok(Self {
            server: Arc::new(server),
            client: Arc::new(service_client(provider(), &[])?),
        })
    }

    /// Carries both directions to their ends for a visitor from `source`, each out of one session and into the other, where
    /// `tap` sees them.
    pub(crate) async fn carry<V: Stream, S: Stream>(
        &self,
        source: Source,
        visitor: &mut V,
        service: &mut S,
        mut tap: Box<dyn StreamTap>,
    ) -> CopyResult {
        let (mut visitor, service) = match self.open(visitor, service, &mut *tap).await {
            Ok(opened) => opened,
            Err(error) => {
                tap.ended(Some(&error.to_string()));
                return CopyResult {
                    forth: 0,
                    back: 0,
                    result: Err(error),
                };
            }
        };
        let mut tapped = TappedStream::new(service, tap);
        let pumped = pump(source, &mut visitor, &mut tapped).await;
        if pumped.result.is_err() {
            // The session may hold what the service said before it broke off. A visitor who is not
            // there any more is no news.
            drop(visitor.flush().await);
        }
        let error = pumped.result.as_ref().err().map(ToString::to_string);
        tapped.end(error.as_deref());
        pumped
    }

    /// Makes both sessions.
    async fn open<V: Stream, S: Stream>(
        &self,
        mut visitor: V,
        service: S,
        tap: &mut dyn StreamTap,
    ) -> io::Result<(Side<V>, Side<S>)> {
        // The edge may wait for the stream's opening before it says anything.
        visitor.flush().await?;
        let edge = LazyConfigAcceptor::new(Acceptor::default(), visitor).await?;
        let hello = edge.client_hello();
        let asked = hello.server_name();
        let name = asked.unwrap_or(NO_NAME).to_owned();
        let mut client = ClientConfig::clone(&self.client);
        client.enable_sni = asked.is_some();
        let protocols = hello.alpn().into_iter().flatten();
        client.alpn_protocols = protocols.map(<[u8]>::to_vec).collect();
        let service = handshake(client, &name, service).await?;
        let mut server = ServerConfig::clone(&self.server);
        let chosen = service.get_ref().1.alpn_protocol();
        server.alpn_protocols = chosen.map(<[u8]>::to_vec).into_iter().collect();
        let edge = edge.into_stream(Arc::new(server)).await?;
        tap.opened(&name);
        Ok(Side::pair(edge.into(), service))
    }
}

impl fmt::Debug for Opener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opener").finish_non_exhaustive()
    }
}

/// A session with a service, as the edge has one: it is asked for by `name`, and offered
/// `protocol` alone.
pub(super) async fn connect<S: Stream>(
    name: &str,
    protocol: &str,
    service: S,
) -> io::Result<TlsStream<S>> {
    let client = service_client(provider(), &[protocol.as_bytes()]).map_err(io::Error::other)?;
    handshake(client, name, service).await
}

async fn handshake<S: Stream>(
    config: ClientConfig,
    name: &str,
    service: S,
) -> io::Result<TlsStream<S>> {
    let name = ServerName::try_from(name.to_owned()).map_err(io::Error::other)?;
    let connecting = TlsConnector::from(Arc::new(config)).connect(name, service);
    let connected = match timeout(HANDSHAKE, connecting).await {
        Ok(connected) => connected,
        Err(_elapsed) => Err(io::ErrorKind::TimedOut.into()),
    };
    connected.map(Into::into).map_err(|error| {
        let told = format!("the TLS handshake with the service failed: {error}");
        io::Error::new(error.kind(), told)
    })
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

/// One of two sessions that end alike. A connection that ends without TLS's own word for it may
/// have been cut: who reads on the other side must be able to see that, as if there were one
/// session.
struct Side<T> {
    tls: TlsStream<T>,
    /// This one has ended without a word.
    cut: Arc<AtomicBool>,
    /// The other one has.
    other: Arc<AtomicBool>,
}

impl<T> Side<T> {
    fn pair<U>(tls: TlsStream<T>, other: TlsStream<U>) -> (Self, Side<U>) {
        let (one, two) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let this = Self {
            tls,
            cut: Arc::clone(&one),
            other: Arc::clone(&two),
        };
        let other = Side {
            tls: other,
            cut: two,
            other: one,
        };
        (this, other)
    }
}

impl<T: Stream> AsyncRead for Side<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        match ready!(Pin::new(&mut this.tls).poll_read(cx, buf)) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                this.cut.store(true, Ordering::Relaxed);
                Poll::Ready(Ok(()))
            }
            read => Poll::Ready(read),
        }
    }
}

impl<T: Stream> AsyncWrite for Side<T> {
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
        if this.other.load(Ordering::Relaxed) {
            ready!(Pin::new(&mut this.tls).poll_flush(cx))?;
            return Pin::new(this.tls.get_mut().0).poll_shutdown(cx);
        }
        Pin::new(&mut this.tls).poll_shutdown(cx)
    }
}

/// Twice the time that an edge gives a service for its handshake: which of them is late, and what
/// the visitor is told, is for the edge to say.
const HANDSHAKE: Duration = Duration::from_secs(20);

/// Checked and sent by nobody, where the edge asks for no name.
const NO_NAME: &str = "localhost";

#[cfg(test)]
mod tests;

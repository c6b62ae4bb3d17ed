//! Target of a load: a URL, dialled over TCP or TLS.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// A URL whose host resolves here; for `https` the certificate is verified with the authorities of
/// the bench.
#[derive(Clone)]
pub(crate) struct Target {
    /// Host and port.
    pub(crate) authority: String,
    pub(crate) path: String,
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

/// TCP or TLS; a type parameter is not worthwhile in a load generator.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

impl Target {
    pub(crate) fn new(url: &str, ca_file: &str) -> Result<Self> {
        let (scheme, rest) = url.split_once("://").context("a URL has a scheme")?;
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (host, _port) = authority.rsplit_once(':').context("a URL has a port")?;
        let tls = (scheme == "https").then(|| {
            Ok::<_, anyhow::Error>((connector(ca_file)?, ServerName::try_from(host.to_owned())?))
        });
        Ok(Self {
            authority: authority.to_owned(),
            path: format!("/{path}"),
            tls: tls.transpose()?,
        })
    }

    /// A new connection.
    pub(crate) async fn dial(&self) -> Result<Box<dyn Stream>> {
        // Resolvers differ in their handling of names below `localhost` (RFC 6761, section 6.3).
        let below_localhost = |(_, port): (&str, &str)| format!("127.0.0.1:{port}");
        let split = self.authority.rsplit_once(':');
        let local = split.filter(|(host, _)| host.ends_with(".localhost"));
        let address = local.map_or_else(|| self.authority.clone(), below_localhost);
        let tcp = TcpStream::connect(address).await?;
        tcp.set_nodelay(true)?;
        Ok(match &self.tls {
            None => Box::new(tcp),
            Some((connector, name)) => Box::new(connector.connect(name.clone(), tcp).await?),
        })
    }

    /// Sends a request and reads the head of the response, which must have this status; returns the
    /// connection and the bytes after the head.
    pub(crate) async fn ask(
        &self,
        fields: &str,
        status: &str,
    ) -> Result<(Box<dyn Stream>, Vec<u8>)> {
        let mut stream = self.dial().await?;
        let head = format!(
            "GET {} HTTP/1.1\r\nHost: {}\r\n{fields}\r\n",
            self.path, self.authority
        );
        stream.write_all(head.as_bytes()).await?;
        let mut answer = Vec::new();
        loop {
            anyhow::ensure!(
                stream.read_buf(&mut answer).await? > 0 && answer.len() < MAX_HEAD,
                "no answer"
            );
            let end = answer.windows(4).position(|four| four == b"\r\n\r\n");
            let Some(end) = end else { continue };
            let rest = answer.split_off(end + 4);
            let head = String::from_utf8_lossy(&answer);
            anyhow::ensure!(
                head.split(' ').nth(1) == Some(status),
                "not {status}: {head}"
            );
            return Ok((stream, rest));
        }
    }
}

fn connector(ca_file: &str) -> Result<TlsConnector> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(ca_file)? {
        roots.add(certificate?)?;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Longer than any head with the bytes that follow it.
const MAX_HEAD: usize = 1 << 20;

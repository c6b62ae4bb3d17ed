use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{interval, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::Svc;

/// A visitor of a published name with its own connection for each request.
#[derive(Clone)]
pub struct Visitor {
    connector: TlsConnector,
    address: SocketAddr,
    hostname: String,
}

/// One request of a [`Visitor`].
#[derive(Debug)]
pub struct Visit {
    /// Start of its connection.
    pub began: Instant,
    /// The end of the answer, or of the attempt.
    pub ended: Instant,
    /// The status of the complete answer.
    pub status: Result<u16>,
}

impl Visitor {
    /// A visitor of this host name.
    ///
    /// # Errors
    /// The engine has no port or no authority.
    pub fn new(svc: &Svc, hostname: &str) -> Result<Self> {
        let (_, port) = svc.address().rsplit_once(':').context("no port")?;
        Ok(Self {
            connector: connector(svc, &["http/1.1"])?,
            address: (Ipv4Addr::LOCALHOST, port.parse()?).into(),
            hostname: hostname.to_owned(),
        })
    }

    /// A new connection after its handshake.
    ///
    /// # Errors
    /// It is refused or broken.
    pub async fn connect(&self) -> Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(self.address).await?;
        let name = ServerName::try_from(self.hostname.clone())?;
        Ok(self.connector.connect(name, stream).await?)
    }

    /// A connection with a request to upgrade it to a WebSocket. [`upgraded`](Self::upgraded) reads
    /// the answer.
    ///
    /// # Errors
    /// It is refused or broken.
    pub async fn upgrading(&self) -> Result<TlsStream<TcpStream>> {
        let mut stream = self.connect().await?;
        let host = &self.hostname;
        let request = format!(
            "GET /ws HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await?;
        stream.flush().await?;
        Ok(stream)
    }

    /// The same connection after the head of the answer.
    ///
    /// # Errors
    /// The request is refused.
    pub async fn upgraded(mut stream: TlsStream<TcpStream>) -> Result<TlsStream<TcpStream>> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(timeout(WAIT_LIMIT, stream.read_u8()).await??);
        }
        let head = String::from_utf8_lossy(&head);
        ensure!(head.starts_with("HTTP/1.1 101 "), "{head}");
        Ok(stream)
    }

    /// One request, whose answer must be complete, and that of a [`Service`](crate::Service) if it
    /// is successful.
    async fn visit(self) -> Visit {
        let began = Instant::now();
        let visiting = async {
            let mut stream = self.connect().await?;
            let host = &self.hostname;
            let request =
                format!("GET /steady HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).await?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await?;
            let status = answer
                .strip_prefix("HTTP/1.1 ")
                .and_then(|rest| rest.get(..3));
            let status = status
                .with_context(|| format!("no answer: {answer:?}"))?
                .parse::<u16>()?;
            ensure!(status != 200 || answer.contains("GET /steady "), "{answer}");
            anyhow::Ok(status)
        };
        let status = timeout(WAIT_LIMIT, visiting).await;
        let status = status
            .context("no answer in time")
            .and_then(|status| status);
        Visit {
            began,
            ended: Instant::now(),
            status,
        }
    }

    /// Sends requests at a constant rate as long as `more` returns true for their number so far,
    /// and waits for all answers.
    ///
    /// # Errors
    /// A task panics.
    pub async fn visit_while(
        self,
        period: Duration,
        mut more: impl FnMut(usize) -> bool,
    ) -> Result<Vec<Visit>> {
        // Late requests are sent immediately, so that the rate is that of the visitors, not of the
        // engine.
        let mut pace = interval(period);
        let (mut visiting, mut visits, mut count) = (JoinSet::new(), Vec::new(), 0);
        while more(count) {
            pace.tick().await;
            visiting.spawn(self.clone().visit());
            count += 1;
            while let Some(visited) = visiting.try_join_next() {
                visits.push(visited?);
            }
        }
        while let Some(visited) = visiting.join_next().await {
            visits.push(visited?);
        }
        Ok(visits)
    }
}

impl Visit {
    /// The time until the complete answer.
    pub fn duration(&self) -> Duration {
        self.ended.duration_since(self.began)
    }

    /// Checks that all have succeeded.
    ///
    /// # Errors
    /// The first failure.
    pub fn all_succeeded(visits: &[Self]) -> Result<()> {
        for visit in visits {
            match &visit.status {
                Ok(200) => {}
                other => bail!("{other:?} after {:?}", visit.duration()),
            }
        }
        Ok(())
    }
}

/// The answer of a service to [`Visitor::upgrading`] (RFC 6455 section 1.3).
pub const UPGRADED: &str = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\
    Connection: Upgrade\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

/// A client of the engine's names that offers these protocols.
///
/// # Errors
/// The authority of the engine cannot be read.
pub fn connector(svc: &Svc, protocols: &[&str]) -> Result<TlsConnector> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(svc.ca_file())?)?;
    let mut tls = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = protocols
        .iter()
        .map(|name| name.as_bytes().to_vec())
        .collect();
    Ok(TlsConnector::from(Arc::new(tls)))
}

/// Longer than any step of these tests takes.
const WAIT_LIMIT: Duration = Duration::from_mins(1);

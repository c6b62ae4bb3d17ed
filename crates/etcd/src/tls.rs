//! TLS towards the store.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

/// Files in PEM, which are read for each connection, so that a renewed certificate is used without
/// a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// Authorities for the certificates of the members.
    pub ca_file: PathBuf,
    /// Certificate and key of the engine, if the store requires a client certificate.
    pub client: Option<(PathBuf, PathBuf)>,
}

/// The reason why a file cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {problem}", .path.display())]
pub struct TlsFilesError {
    /// The file.
    pub path: PathBuf,
    /// The reason.
    pub problem: String,
}

impl TlsFilesError {
    fn new(path: &Path, problem: impl Into<String>) -> Self {
        Self {
            path: path.to_owned(),
            problem: problem.into(),
        }
    }
}

impl TlsFiles {
    /// Reads the files.
    ///
    /// # Errors
    /// A file cannot be read, or does not contain what it should.
    pub fn client_config(&self) -> Result<Arc<ClientConfig>, TlsFilesError> {
        let failed =
            |problem: rustls::Error| TlsFilesError::new(&self.ca_file, problem.to_string());
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&self.ca_file)? {
            roots.add(certificate).map_err(failed)?;
        }
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(failed)?
            .with_root_certificates(roots);
        let mut config = match &self.client {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = certificates(certificate)?;
                let pem = read(key)?;
                let private = PrivateKeyDer::from_pem_slice(&pem)
                    .map_err(|_| TlsFilesError::new(key, "no private key in PEM"))?;
                builder
                    .with_client_auth_cert(chain, private)
                    .map_err(|error| TlsFilesError::new(certificate, error.to_string()))?
            }
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Arc::new(config))
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsFilesError> {
    let pem = read(path)?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    certificates
        .ok()
        .filter(|certificates| !certificates.is_empty())
        .ok_or_else(|| TlsFilesError::new(path, "no certificates in PEM"))
}

fn read(path: &Path) -> Result<Vec<u8>, TlsFilesError> {
    let reading = || {
        let mut bytes = Vec::new();
        File::open(path)?
            .take(MAX_BYTES + 1)
            .read_to_end(&mut bytes)?;
        if bytes.len() as u64 > MAX_BYTES {
            return Err(io::Error::from(io::ErrorKind::FileTooLarge));
        }
        Ok(bytes)
    };
    reading().map_err(|error: io::Error| TlsFilesError::new(path, error.to_string()))
}

/// All authorities of a system have about 200 KiB.
const MAX_BYTES: u64 = 1024 * 1024;

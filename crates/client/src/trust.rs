//! Trusted certificate authorities, and the TLS configurations that use them.

use std::{fmt, io, path::PathBuf, sync::Arc};

use rustls::{
    ClientConfig, RootCertStore, SupportedCipherSuite,
    crypto::{CryptoProvider, aws_lc_rs, aws_lc_rs::cipher_suite},
};
use rustls_pki_types::{CertificateDer, pem::PemObject};
use rustls_platform_verifier::BuilderVerifierExt;

/// The certificate authorities that are trusted for an engine.
#[derive(Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Trust {
    /// The authorities that the operating system trusts.
    #[default]
    Platform,
    /// Only the certificates of this PEM file.
    CaFile(PathBuf),
    /// Only these certificates.
    Roots(Vec<CertificateDer<'static>>),
}

impl Trust {
    /// A TLS client configuration with these ALPN protocols, in order of preference.
    ///
    /// Only for the crates of this project, because the types belong to one version of rustls.
    ///
    /// It allows TLS 1.3 only: every peer is an engine or another program of this project, and
    /// those support it.
    ///
    /// # Errors
    /// The authorities cannot be read or used.
    #[doc(hidden)]
    pub fn client_config(&self, alpn: &[&[u8]]) -> Result<Arc<ClientConfig>, TrustError> {
        let provider = Arc::new(CryptoProvider {
            cipher_suites: CIPHERS.to_vec(),
            ..aws_lc_rs::default_provider()
        });
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(TrustError::tls)?;
        let builder = match self {
            Self::Platform => builder.with_platform_verifier().map_err(TrustError::tls)?,
            Self::CaFile(path) => {
                let pem = std::fs::read(path).map_err(|source| TrustError::Unreadable {
                    path: path.clone(),
                    source,
                })?;
                let roots = CertificateDer::pem_slice_iter(&pem)
                    .collect::<Result<Vec<_>, _>>()
                    .map_err(|_invalid| TrustError::NoCertificate { path: path.clone() })?;
                if roots.is_empty() {
                    return Err(TrustError::NoCertificate { path: path.clone() });
                }
                builder.with_root_certificates(store(roots)?)
            }
            Self::Roots(roots) => builder.with_root_certificates(store(roots.clone())?),
        };
        let mut config = builder.with_no_client_auth();
        config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
        Ok(Arc::new(config))
    }
}

impl fmt::Debug for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Platform => f.write_str("Platform"),
            Self::CaFile(path) => f.debug_tuple("CaFile").field(path).finish(),
            Self::Roots(roots) => write!(f, "Roots({})", roots.len()),
        }
    }
}

/// The authorities cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrustError {
    /// The file does not exist or cannot be read.
    #[error("cannot read the CA file {}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The file contains no certificate.
    #[error("the CA file {} holds no certificate in PEM form", path.display())]
    NoCertificate {
        /// The file.
        path: PathBuf,
    },
    /// The TLS library refuses them.
    #[error("the trusted certificates cannot be used")]
    Tls(#[source] TlsError),
}

impl TrustError {
    fn tls(error: rustls::Error) -> Self {
        Self::Tls(TlsError(error))
    }
}

/// An error of the TLS library.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct TlsError(pub(crate) rustls::Error);

fn store(roots: Vec<CertificateDer<'static>>) -> Result<RootCertStore, TrustError> {
    let mut store = RootCertStore::empty();
    for root in roots {
        store.add(root).map_err(TrustError::tls)?;
    }
    Ok(store)
}

/// AES-128-GCM is first: the engine follows the client's order, and this cipher costs the fewest
/// cycles per byte.
static CIPHERS: [SupportedCipherSuite; 3] = [
    cipher_suite::TLS13_AES_128_GCM_SHA256,
    cipher_suite::TLS13_AES_256_GCM_SHA384,
    cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_names_a_file_without_certificates() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ca.pem");
        let trust = Trust::CaFile(path.clone());
        assert!(matches!(
            trust.client_config(&[]),
            Err(TrustError::Unreadable { .. })
        ));
        std::fs::write(&path, "no certificate").unwrap();
        let error = trust.client_config(&[]).unwrap_err();
        assert!(
            matches!(&error, TrustError::NoCertificate { .. }),
            "{error}"
        );
        assert!(error.to_string().contains("ca.pem"), "{error}");
    }
}

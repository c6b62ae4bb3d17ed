//! Mutual authentication of engines with certificates of the cluster's own authority.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{ClientConfig, RootCertStore, ServerConfig, version};
use transport::TlsStream;
use wire::cluster::ALPN;

use super::member::ClusterError;
use super::names::{engine_name, has_name};

/// The files of an engine's certificate, in PEM. `svc cluster init` creates them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterFiles {
    /// The certificate of the cluster's authority. No other authority is trusted.
    pub authority: PathBuf,
    /// The certificate of this engine.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

/// The configurations of both sides.
#[derive(Debug)]
pub(super) struct PeerTls {
    pub(super) client: Arc<ClientConfig>,
    pub(super) server: Arc<ServerConfig>,
}

impl PeerTls {
    /// Reads the files.
    ///
    /// # Errors
    /// [`ClusterError`]; the certificate must have the name of this engine.
    pub(super) fn load(files: &ClusterFiles, name: String) -> Result<Self, ClusterError> {
        let mut roots = RootCertStore::empty();
        for root in certificates(&files.authority)? {
            roots
                .add(root)
                .map_err(|error| unusable(&files.authority, &error))?;
        }
        let chain = certificates(&files.certificate)?;
        if !chain.first().is_some_and(|leaf| has_name(leaf, &name)) {
            return Err(ClusterError::Name {
                path: files.certificate.clone(),
                name,
            });
        }
        let key = PrivateKeyDer::from_pem_file(&files.key)
            .map_err(|error| unusable(&files.key, &error))?;
        Self::new(roots, chain, key).map_err(|error| ClusterError::Tls(error.to_string()))
    }

    fn new(
        roots: RootCertStore,
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Self, Box<dyn std::error::Error>> {
        let provider = daemon::tls::provider();
        let roots = Arc::new(roots);
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider));
        let verifier = verifier.build()?;
        let mut server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&version::TLS13])?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain.clone(), key.clone_key())?;
        server.alpn_protocols = vec![ALPN.to_vec()];
        // A resumed session would be one without a new proof of the key.
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        let mut client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&version::TLS13])?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key)?;
        client.alpn_protocols = vec![ALPN.to_vec()];
        client.resumption = Resumption::disabled();
        Ok(Self {
            client: Arc::new(client),
            server: Arc::new(server),
        })
    }
}

/// Returns true if the peer negotiated the protocol between engines, and its verified certificate
/// is the one of this engine.
pub(super) fn is_engine(stream: &TlsStream, cluster: &str, engine: &str) -> bool {
    let session = stream.get_ref().1;
    let certificates = session.peer_certificates().unwrap_or_default();
    session.alpn_protocol() == Some(ALPN)
        && certificates
            .first()
            .is_some_and(|leaf| has_name(leaf, &engine_name(cluster, engine)))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, ClusterError> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let read = read.map_err(|error| unusable(path, &error))?;
    if read.is_empty() {
        return Err(unusable(path, &"there is no certificate in it"));
    }
    Ok(read)
}

fn unusable(path: &Path, problem: &dyn std::fmt::Display) -> ClusterError {
    ClusterError::File {
        path: path.to_owned(),
        problem: problem.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    /// A self-signed certificate, which is its own authority.
    fn files(folder: &Path, name: &str) -> ClusterFiles {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let files = ClusterFiles {
            authority: folder.join("ca.pem"),
            certificate: folder.join("engine.pem"),
            key: folder.join("engine.key"),
        };
        std::fs::write(&files.authority, certificate.pem()).unwrap();
        std::fs::write(&files.certificate, certificate.pem()).unwrap();
        std::fs::write(&files.key, key.serialize_pem()).unwrap();
        files
    }

    #[test]
    fn a_certificate_of_another_engine_or_cluster_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let own = engine_name("prod", "engine-1");
        let files = files(folder.path(), &own);
        assert!(PeerTls::load(&files, own.clone()).is_ok());
        for other in [
            engine_name("prod", "engine-2"),
            engine_name("test", "engine-1"),
        ] {
            let refused = PeerTls::load(&files, other.clone());
            assert!(
                matches!(&refused, Err(ClusterError::Name { name, .. }) if *name == other),
                "{refused:?}"
            );
        }
    }

    #[test]
    fn a_file_that_cannot_be_used_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let own = engine_name("prod", "engine-1");
        let files = files(folder.path(), &own);
        for path in [&files.authority, &files.certificate, &files.key] {
            let before = std::fs::read(path).unwrap();
            std::fs::write(path, "nothing").unwrap();
            let refused = PeerTls::load(&files, own.clone()).unwrap_err();
            let expected = path.display().to_string();
            assert!(refused.to_string().contains(&expected), "{refused}");
            std::fs::write(path, before).unwrap();
        }
    }
}

//! An authority that issues certificates for tests.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};

/// A certificate authority that only the clients created here trust.
pub struct TestCa {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate with its key.
pub struct IssuedCertificate {
    /// The certificate in PEM.
    pub cert_pem: String,
    /// Its key in PEM.
    pub key_pem: String,
}

impl TestCa {
    /// Creates a new authority.
    pub fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("parameters without names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // Different from the name in certificates: OpenSSL treats a certificate with the same
        // issuer and subject as self-signed.
        params
            .distinguished_name
            .push(DnType::CommonName, "Authority of tests");
        let key = KeyPair::generate().expect("a generated key");
        Self {
            issuer: CertifiedIssuer::self_signed(params, key).expect("an authority"),
        }
    }

    /// The authority's certificate in PEM, for a CA file.
    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// The authority's certificate.
    pub fn certificate(&self) -> CertificateDer<'static> {
        CertificateDer::from(self.issuer.der().to_vec())
    }

    /// Issues a certificate for DNS names (including wildcards) and addresses.
    pub fn issue(&self, names: &[&str]) -> IssuedCertificate {
        let names: Vec<String> = names.iter().copied().map(String::from).collect();
        let key = KeyPair::generate().expect("a generated key");
        let cert = CertificateParams::new(names)
            .and_then(|params| params.signed_by(&key, &self.issuer))
            .expect("names of a certificate");
        IssuedCertificate {
            cert_pem: cert.pem(),
            key_pem: key.serialize_pem(),
        }
    }

    /// Configuration of a server with a certificate for `names`.
    pub fn server(&self, names: &[&str], alpns: &[&str]) -> Arc<ServerConfig> {
        let names: Vec<String> = names.iter().copied().map(String::from).collect();
        let key = KeyPair::generate().expect("a generated key");
        let cert = CertificateParams::new(names)
            .and_then(|params| params.signed_by(&key, &self.issuer))
            .expect("names of a certificate");
        let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key in DER");
        let mut config =
            ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
                .with_safe_default_protocol_versions()
                .expect("versions of the provider")
                .with_no_client_auth()
                .with_single_cert(vec![cert.der().clone()], key)
                .expect("a certificate with its key");
        config.alpn_protocols = protocols(alpns);
        Arc::new(config)
    }

    /// Configuration of a client that trusts only this authority.
    pub fn client(&self, alpns: &[&str]) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate()).expect("a root certificate");
        let mut config =
            ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
                .with_safe_default_protocol_versions()
                .expect("versions of the provider")
                .with_root_certificates(roots)
                .with_no_client_auth();
        config.alpn_protocols = protocols(alpns);
        Arc::new(config)
    }
}

impl Default for TestCa {
    fn default() -> Self {
        Self::new()
    }
}

impl IssuedCertificate {
    /// Writes `cert.pem` and `key.pem` into a directory and returns both paths.
    pub fn write_to(&self, directory: &Path) -> (PathBuf, PathBuf) {
        let paths = (directory.join("cert.pem"), directory.join("key.pem"));
        std::fs::write(&paths.0, &self.cert_pem).expect("a directory that can be written");
        std::fs::write(&paths.1, &self.key_pem).expect("a directory that can be written");
        paths
    }
}

fn protocols(alpns: &[&str]) -> Vec<Vec<u8>> {
    alpns.iter().map(|alpn| alpn.as_bytes().to_vec()).collect()
}

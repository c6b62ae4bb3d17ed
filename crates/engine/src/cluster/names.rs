//! Names in the certificates of engines.

use rustls::client::verify_server_name;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::ParsedCertificate;

/// The part of a name in the certificates of engines that is the same in all clusters. It is not
/// resolvable, so that no public authority issues a certificate for it.
const DOMAIN: &str = "svc-cluster.internal";

/// The domain of the names in the certificates of a cluster. Its authority signs no other names.
pub fn cluster_domain(cluster: &str) -> String {
    format!("{cluster}.{DOMAIN}")
}

/// The name in the certificate of an engine.
pub fn engine_name(cluster: &str, engine: &str) -> String {
    format!("{engine}.{}", cluster_domain(cluster))
}

/// Returns true if the certificate has the name.
pub(crate) fn has_name(certificate: &CertificateDer<'_>, name: &str) -> bool {
    let (Ok(parsed), Ok(name)) = (
        ParsedCertificate::try_from(certificate),
        ServerName::try_from(name),
    ) else {
        return false;
    };
    verify_server_name(&parsed, &name).is_ok()
}

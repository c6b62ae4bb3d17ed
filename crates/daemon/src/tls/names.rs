//! Which names a certificate must have (EN-10).

use rustls::client::verify_server_name;
use rustls::server::ParsedCertificate;
use rustls_pki_types::{CertificateDer, ServerName};

/// The names that an engine under `base_host` needs and `cert` lacks: `base_host` itself, where
/// agents connect, and `*.t.<base_host>`, where published names live. Empty when all is well; both
/// when the certificate cannot be read. Start, `--check` and `doctor` warn about each (EN-10).
pub fn warn_missing_names(cert: &CertificateDer<'_>, base_host: &str) -> Vec<String> {
    // A wildcard is proven by a name below it: then the matching rules are those of the visitors'
    // TLS libraries, and a certificate that lists its names one by one is warned about.
    let probe = format!("a.t.{base_host}");
    let parsed = ParsedCertificate::try_from(cert);
    let covers = |name: &str| {
        let (Ok(parsed), Ok(name)) = (&parsed, ServerName::try_from(name)) else {
            return false;
        };
        verify_server_name(parsed, &name).is_ok()
    };
    let mut missing = Vec::new();
    if !covers(base_host) {
        missing.push(base_host.to_owned());
    }
    if !covers(&probe) {
        missing.push(format!("*.t.{base_host}"));
    }
    missing
}

#[cfg(test)]
mod tests {
    use rcgen::{CertifiedKey, generate_simple_self_signed};

    use super::*;

    fn missing(names: &[&str]) -> Vec<String> {
        let names = names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let CertifiedKey { cert, .. } = generate_simple_self_signed(names).unwrap();
        warn_missing_names(cert.der(), "tunnel.example.com")
    }

    /// EN-10.
    #[test]
    fn en_10_both_names_are_needed() {
        assert!(missing(&["tunnel.example.com", "*.t.tunnel.example.com"]).is_empty());
        assert_eq!(missing(&["tunnel.example.com"]), ["*.t.tunnel.example.com"]);
        assert_eq!(missing(&["*.t.tunnel.example.com"]), ["tunnel.example.com"]);
    }

    /// EN-10.
    #[test]
    fn en_10_a_wildcard_covers_one_label_only() {
        assert_eq!(
            missing(&["*.example.com", "*.tunnel.example.com"]),
            ["*.t.tunnel.example.com"],
        );
    }

    /// EN-10.
    #[test]
    fn en_10_a_broken_certificate_has_no_name() {
        let broken = CertificateDer::from(vec![0x30, 0x03, 1, 2, 3]);
        assert_eq!(
            warn_missing_names(&broken, "h.example"),
            ["h.example", "*.t.h.example"],
        );
    }
}

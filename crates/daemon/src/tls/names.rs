//! Required names of a certificate (EN-10).

use std::net::IpAddr;

use rustls::client::verify_server_name;
use rustls::server::ParsedCertificate;
use rustls_pki_types::{CertificateDer, ServerName};
use x509_parser::extensions::GeneralName;
use x509_parser::parse_x509_certificate;

/// The names that an engine under `base_host` needs and `cert` lacks: `base_host` itself, for
/// agents, and `*.t.<base_host>`, for published names. Empty if none is missing; both if the
/// certificate cannot be parsed. Start, `--check` and `doctor` warn about each (EN-10).
pub fn warn_missing_names(cert: &CertificateDer<'_>, base_host: &str) -> Vec<String> {
    // A wildcard is checked with a name below it. The matching rules are then those of the
    // visitors' TLS libraries, and a certificate that lists its names individually causes a
    // warning.
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

/// Checks that a new certificate has the names of the previous one: each of `needed` that the
/// previous one has. If `needed` is empty, one common name is enough.
///
/// # Errors
/// A name that it lacks.
pub(super) fn replaces(
    new: &CertificateDer<'_>,
    before: &CertificateDer<'_>,
    needed: &[String],
) -> Result<(), String> {
    if needed.is_empty() {
        let all = names_of(before);
        return match all.first() {
            Some(first) if !all.iter().any(|name| covers(new, name)) => Err(first.clone()),
            _ => Ok(()),
        };
    }
    let lacks = |name: &&String| covers(before, name) && !covers(new, name);
    needed
        .iter()
        .find(lacks)
        .map_or(Ok(()), |name| Err(name.clone()))
}

/// True if a certificate is valid for a name, or for names below it if it starts with `*.`.
pub fn covers(certificate: &CertificateDer<'_>, name: &str) -> bool {
    let probe = name.strip_prefix("*.").map(|rest| format!("a.{rest}"));
    let probe = probe.as_deref().unwrap_or(name);
    let (Ok(parsed), Ok(name)) = (
        ParsedCertificate::try_from(certificate),
        ServerName::try_from(probe),
    ) else {
        return false;
    };
    verify_server_name(&parsed, &name).is_ok()
}

/// The names of a certificate; none if it cannot be parsed.
pub fn names_of(certificate: &CertificateDer<'_>) -> Vec<String> {
    let Ok((_, parsed)) = parse_x509_certificate(certificate) else {
        return Vec::new();
    };
    let Ok(Some(alternative)) = parsed.subject_alternative_name() else {
        return Vec::new();
    };
    let names = alternative.value.general_names.iter();
    names
        .filter_map(|name| match name {
            GeneralName::DNSName(name) => Some((*name).to_owned()),
            GeneralName::IPAddress(bytes) => {
                let v4 = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
                let v6 = <[u8; 16]>::try_from(*bytes).map(IpAddr::from);
                v4.or(v6).ok().map(|ip| ip.to_string())
            }
            _ => None,
        })
        .collect()
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

    #[test]
    fn a_new_certificate_keeps_the_needed_names() {
        let make = |names: &[&str]| {
            let names = names.iter().map(ToString::to_string).collect::<Vec<_>>();
            let CertifiedKey { cert, .. } = generate_simple_self_signed(names).unwrap();
            cert.der().clone()
        };
        let (both, base) = (["h.example", "*.t.h.example"], ["h.example"]);
        let other = ["other.example"];
        let address = ["192.0.2.1"];
        let needed: Vec<_> = both.iter().map(ToString::to_string).collect();
        for (before, new, needed, missing) in [
            (&both[..], &both[..], &needed[..], None),
            (&both, &base, &needed, Some("*.t.h.example")),
            (&base, &base, &needed, None),
            (&base, &both, &needed, None),
            (&both, &other, &needed, Some("h.example")),
            (&both, &base, &[], None),
            (&both, &other, &[], Some("h.example")),
            (&address, &address, &[], None),
            (&address, &base, &[], Some("192.0.2.1")),
        ] {
            let judged = replaces(&make(new), &make(before), needed);
            assert_eq!(judged.err().as_deref(), missing, "{before:?} {new:?}");
        }
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

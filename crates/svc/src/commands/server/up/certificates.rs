//! The development CA and the certificates of the engine and the relay.
//!
//! The CA is created once and kept, so that it must be imported only once. Its name constraints
//! allow only names under `localhost` and loopback addresses (RFC 5280 section 4.2.1.10), so a
//! leaked key cannot be used against other sites. The other certificates are signed again at each
//! start. Only the relay's has an IP address: BoringSSL, which gRPC uses in most languages, refuses a
//! certificate with an address if its CA has a constraint on addresses.

use std::{
    net::{IpAddr, Ipv4Addr},
    path::{Path, PathBuf},
};

use rcgen::{
    BasicConstraints, CertificateParams, CidrSubnet, DnType, ExtendedKeyUsagePurpose,
    GeneralSubtree, IsCa, Issuer, KeyPair, KeyUsagePurpose, NameConstraints, SanType,
};

use crate::commands::server::signing::{cannot_make, issue, read, valid_for, write};
use crate::failure::Failure;

/// Paths of the certificate files.
#[derive(Debug)]
pub(crate) struct Certificates {
    /// The CA's certificate.
    pub(crate) ca: PathBuf,
    /// The engine's certificate.
    pub(crate) cert: PathBuf,
    /// The engine's key.
    pub(crate) key: PathBuf,
    /// The relay's certificate.
    pub(crate) relay_cert: PathBuf,
    /// The relay's key.
    pub(crate) relay_key: PathBuf,
}

impl Certificates {
    /// Creates the missing files in `directory`, for an engine with the host name `host`.
    pub(crate) fn in_directory(directory: &Path, host: &str) -> Result<Self, Failure> {
        let files = Self {
            ca: directory.join("ca.pem"),
            cert: directory.join("tls.pem"),
            key: directory.join("tls.key"),
            relay_cert: directory.join("turn.pem"),
            relay_key: directory.join("turn.key"),
        };
        let issuer = files.authority(&directory.join("ca.key"))?;
        // The second name covers the projects of a managed engine.
        let names = vec![host.to_owned(), format!("*.{host}"), format!("*.t.{host}")];
        let engine = server_params(host, names).map_err(cannot_make)?;
        issue(&engine, &issuer, &files.cert, &files.key)?;
        let mut relay = server_params(host, vec![host.to_owned()]).map_err(cannot_make)?;
        // Clients address the relay by its IP address.
        let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
        relay.subject_alt_names.push(SanType::IpAddress(loopback));
        issue(&relay, &issuer, &files.relay_cert, &files.relay_key)?;
        Ok(files)
    }

    /// The stored CA, or a new one.
    fn authority(&self, key_file: &Path) -> Result<Issuer<'static, KeyPair>, Failure> {
        match (read(&self.ca)?, read(key_file)?) {
            (Some(cert), Some(key)) => KeyPair::from_pem(&key)
                .and_then(|key| Issuer::from_ca_cert_pem(&cert, key))
                .map_err(|error| {
                    Failure::from_error(
                        &format!("cannot use the CA in {}", self.ca.display()),
                        error,
                    )
                    .hint("remove ca.pem and ca.key; a new CA is then created")
                }),
            (None, None) => {
                let key = KeyPair::generate().map_err(cannot_make)?;
                let params = authority_params();
                let cert = params.self_signed(&key).map_err(cannot_make)?;
                write(key_file, &key.serialize_pem())?;
                write(&self.ca, &cert.pem())?;
                Ok(Issuer::new(params, key))
            }
            (Some(_), None) | (None, Some(_)) => {
                let directory = key_file.parent().unwrap_or(Path::new(".")).display();
                Err(
                    Failure::usage(format!("{directory} has only one of ca.pem and ca.key"))
                        .hint("restore the missing file, or remove the other one"),
                )
            }
        }
    }
}

fn authority_params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params
        .distinguished_name
        .push(DnType::CommonName, "svc development CA");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.name_constraints = Some(NameConstraints {
        permitted_subtrees: vec![
            GeneralSubtree::DnsName("localhost".to_owned()),
            GeneralSubtree::IpAddress(CidrSubnet::from_v4_prefix([127, 0, 0, 0], 8)),
        ],
        excluded_subtrees: Vec::new(),
    });
    valid_for(&mut params, AUTHORITY_DAYS);
    params
}

fn server_params(host: &str, names: Vec<String>) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name.push(DnType::CommonName, host);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    valid_for(&mut params, ENGINE_DAYS);
    Ok(params)
}

/// Ten years, so that users do not have to import it again.
const AUTHORITY_DAYS: i64 = 3650;

/// The maximum that browsers accept (Baseline Requirements, section 6.3.2).
const ENGINE_DAYS: i64 = 397;

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use rustls::{
        RootCertStore,
        client::verify_server_cert_signed_by_trust_anchor,
        pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
        server::ParsedCertificate,
    };

    use super::*;

    /// True if a TLS client accepts the engine's certificate for this name.
    fn vouches(files: &Certificates, name: &str) -> bool {
        vouches_with(files, &files.cert, name)
    }

    fn vouches_with(files: &Certificates, cert: &Path, name: &str) -> bool {
        let ca = CertificateDer::from_pem_file(&files.ca).unwrap();
        let cert = CertificateDer::from_pem_file(cert).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(ca).unwrap();
        let parsed = ParsedCertificate::try_from(&cert).unwrap();
        let algorithms =
            rustls::crypto::aws_lc_rs::default_provider().signature_verification_algorithms;
        verify_server_cert_signed_by_trust_anchor(
            &parsed,
            &roots,
            &[],
            UnixTime::now(),
            algorithms.all,
        )
        .is_ok()
            && rustls::client::verify_server_name(&parsed, &ServerName::try_from(name).unwrap())
                .is_ok()
    }

    #[test]
    fn the_certificate_covers_the_base_and_published_names() {
        let dir = tempfile::tempdir().unwrap();
        let files = Certificates::in_directory(dir.path(), "engine.localhost").unwrap();
        for name in [
            "engine.localhost",
            "abcd1234.engine.localhost",
            "demo.t.engine.localhost",
        ] {
            assert!(vouches(&files, name), "{name}");
        }
        assert!(!vouches(&files, "other.localhost"));
    }

    #[test]
    fn only_the_certificate_of_the_relay_has_an_address() {
        let dir = tempfile::tempdir().unwrap();
        let files = Certificates::in_directory(dir.path(), "engine.localhost").unwrap();
        assert!(!vouches(&files, "127.0.0.1"));
        assert!(vouches_with(&files, &files.relay_cert, "127.0.0.1"));
        assert!(vouches_with(&files, &files.relay_cert, "engine.localhost"));
    }

    #[test]
    fn the_ca_is_created_once_and_is_limited_to_localhost() {
        let dir = tempfile::tempdir().unwrap();
        let files = Certificates::in_directory(dir.path(), "engine.localhost").unwrap();
        let first = fs::read(&files.ca).unwrap();
        let again = Certificates::in_directory(dir.path(), "engine.localhost").unwrap();
        assert_eq!(fs::read(&again.ca).unwrap(), first);
        assert!(vouches(&again, "demo.t.engine.localhost"));
        let foreign = Certificates::in_directory(dir.path(), "bank.example").unwrap();
        assert!(!vouches(&foreign, "bank.example"));
    }

    #[test]
    fn keys_are_readable_only_by_their_owner() {
        let dir = tempfile::tempdir().unwrap();
        Certificates::in_directory(dir.path(), "engine.localhost").unwrap();
        for name in ["ca.key", "tls.key", "turn.key"] {
            let mode = fs::metadata(dir.path().join(name))
                .unwrap()
                .permissions()
                .mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
    }

    #[test]
    fn half_a_ca_is_not_replaced_silently() {
        let dir = tempfile::tempdir().unwrap();
        Certificates::in_directory(dir.path(), "engine.localhost").unwrap();
        fs::remove_file(dir.path().join("ca.key")).unwrap();
        assert!(Certificates::in_directory(dir.path(), "engine.localhost").is_err());
    }
}

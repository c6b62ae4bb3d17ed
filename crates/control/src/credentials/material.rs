//! Key material of a credential: a token of the platform, a key, or a certificate.

use api::control::credentials::CredentialKind;
use aws_lc_rs::digest::{SHA256, digest};
use credentials::Keyring;
use jiff::Timestamp;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, SubjectPublicKeyInfoDer};
use types::problem::Problem;
use x509_parser::prelude::{FromDer as _, SubjectPublicKeyInfo, X509Certificate};

use crate::http_api::problem::{HandlerResult, bad};

/// Validated key material.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Material {
    /// The platform issues the token.
    Token,
    /// The public key of an application, in PEM.
    PublicKey(String),
    /// One client certificate.
    Certificate { pem: String, fingerprint: [u8; 32] },
    /// The certificate authority of client certificates.
    Issuer { pem: String, fingerprint: [u8; 32] },
}

/// Submitted key material, in PEM.
#[derive(Clone, Copy, Debug)]
pub(super) struct SubmittedMaterial<'a> {
    pub(super) public_key: Option<&'a str>,
    pub(super) certificate: Option<&'a str>,
    pub(super) issuer: Option<&'a str>,
}

impl Material {
    /// Accepts the field that the kind requires, and refuses the others.
    pub(super) fn of(
        kind: CredentialKind,
        sent: SubmittedMaterial<'_>,
        now: Timestamp,
    ) -> HandlerResult<Self> {
        let of_kinds = [
            ("publicKeyPem", sent.public_key, CredentialKind::App),
            ("certificatePem", sent.certificate, CredentialKind::Mtls),
            ("issuerPem", sent.issuer, CredentialKind::Mtls),
        ];
        for (field, value, of) in of_kinds {
            if value.is_some() && kind != of {
                let kind = kind_word(kind);
                return Err(bad(
                    field,
                    format!("{field} does not belong to type {kind}"),
                ));
            }
        }
        match (kind, sent.certificate, sent.issuer) {
            (CredentialKind::Pat, ..) => Ok(Self::Token),
            (CredentialKind::App, ..) => match sent.public_key {
                Some(pem) => public_key(pem),
                None => Err(bad("publicKeyPem", "publicKeyPem is required")),
            },
            (CredentialKind::Mtls, Some(pem), None) => Ok(Self::Certificate {
                fingerprint: certificate("certificatePem", pem, false, now)?,
                pem: pem.to_owned(),
            }),
            (CredentialKind::Mtls, None, Some(pem)) => Ok(Self::Issuer {
                fingerprint: certificate("issuerPem", pem, true, now)?,
                pem: pem.to_owned(),
            }),
            (CredentialKind::Mtls, ..) => Err(bad(
                "certificatePem",
                "either certificatePem or issuerPem is required",
            )),
        }
    }
}

/// RFC 5480 section 2.1.1 and RFC 8410 section 3: identifiers of the keys for ES256, ES512 and
/// `EdDSA`.
const EC_PUBLIC_KEY: &str = "1.2.840.10045.2.1";
const P_256: &str = "1.2.840.10045.3.1.7";
const P_521: &str = "1.3.132.0.35";
const ED25519: &str = "1.3.101.112";

fn public_key(pem: &str) -> HandlerResult<Material> {
    let field = "publicKeyPem";
    let unusable = || {
        bad(
            field,
            "not a single PUBLIC KEY of P-256, P-521 or Ed25519 in PEM",
        )
    };
    let sections: Vec<_> = SubjectPublicKeyInfoDer::pem_slice_iter(pem.as_bytes()).collect();
    let [Ok(der)] = sections.as_slice() else {
        return Err(unusable());
    };
    let (_, key) = SubjectPublicKeyInfo::from_der(der).map_err(|_| unusable())?;
    let curve = key
        .algorithm
        .parameters
        .as_ref()
        .and_then(|parameters| parameters.as_oid().ok());
    let curve = curve.map(|oid| oid.to_id_string());
    let offered = match key.algorithm.algorithm.to_id_string().as_str() {
        EC_PUBLIC_KEY => matches!(curve.as_deref(), Some(P_256 | P_521)),
        ED25519 => true,
        _ => false,
    };
    // The keyring, which verifies signatures later, must accept the key as well.
    if !offered || Keyring::new().with_pem(pem).is_err() {
        return Err(unusable());
    }
    Ok(Material::PublicKey(pem.to_owned()))
}

/// SHA-256 of one certificate that is currently valid.
fn certificate(field: &str, pem: &str, is_issuer: bool, now: Timestamp) -> HandlerResult<[u8; 32]> {
    let unusable = || bad(field, format!("{field} is not a single certificate in PEM"));
    let sections: Vec<_> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    let [Ok(der)] = sections.as_slice() else {
        return Err(unusable());
    };
    let (rest, parsed) = X509Certificate::from_der(der).map_err(|_| unusable())?;
    if !rest.is_empty() {
        return Err(unusable());
    }
    if parsed.validity().not_after.timestamp() <= now.as_second() {
        return Err(bad(field, format!("{field} has expired")));
    }
    if is_issuer && !parsed.is_ca() {
        return Err(bad(
            field,
            "issuerPem is not the certificate of an authority",
        ));
    }
    let fingerprint = digest(&SHA256, der);
    <[u8; 32]>::try_from(fingerprint.as_ref()).map_err(|_| Problem::internal().into())
}

/// The kind as a word in messages.
const fn kind_word(kind: CredentialKind) -> &'static str {
    match kind {
        CredentialKind::Pat => "pat",
        CredentialKind::App => "app",
        CredentialKind::Mtls => "mtls",
    }
}

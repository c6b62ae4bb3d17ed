//! A certificate chain and its key, read from two PEM files.

use std::path::{Path, PathBuf};

use rustls::crypto::CryptoProvider;
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use x509_parser::parse_x509_certificate;

use super::names;

/// Paths of a certificate chain and its private key, both PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertFiles {
    /// The chain, the server's own certificate first.
    pub cert: PathBuf,
    /// The private key: PKCS#8, PKCS#1 or SEC 1.
    pub key: PathBuf,
}

/// Reason why a pair of files is not a usable certificate. No variant contains data of either file.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read; a retry may help.
    #[error("{} cannot be read: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A file contains no usable PEM.
    #[error("{} {problem}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// Description of the error, as the end of a sentence.
        problem: String,
    },
    /// The library refuses the chosen protocol versions; never caused by a file.
    #[error("TLS cannot be configured: {0}")]
    Configuration(rustls::Error),
    /// Both files are valid, but do not match.
    #[error("the key in {} does not belong to the certificate in {}", key.display(), cert.display())]
    KeyMismatch {
        /// The certificate's file.
        cert: PathBuf,
        /// The key's file.
        key: PathBuf,
    },
    /// The pair is valid, but clients would refuse it.
    #[error("the certificate in {} {problem}", path.display())]
    Unfit {
        /// The certificate's file.
        path: PathBuf,
        /// The reason.
        problem: RejectionReason,
    },
}

/// Reason why clients would refuse a valid certificate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RejectionReason {
    /// It has expired.
    #[error("has expired")]
    Expired,
    /// It is not valid yet. The check is repeated until it is valid.
    #[error("is not valid yet")]
    NotYet,
    /// It lacks this name, which the current certificate has.
    #[error("is not for {0}")]
    Names(String),
}

/// A checked pair: the key can sign, and matches this certificate.
pub(super) struct Pair {
    pub(super) certified: CertifiedKey,
    /// `notBefore` of the server's own certificate in seconds since 1970.
    pub(super) not_before: i64,
    /// `notAfter` of the server's own certificate in seconds since 1970.
    pub(super) not_after: i64,
}

impl Pair {
    /// Reads and checks both files.
    pub(super) fn read(files: &CertFiles, provider: &CryptoProvider) -> Result<Self, TlsError> {
        let content = |path: &Path, problem: String| TlsError::Content {
            path: path.to_owned(),
            problem,
        };
        let chain = CertificateDer::pem_slice_iter(&read(&files.cert)?)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| content(&files.cert, pem_problem(&error)))?;
        let Some(end_entity) = chain.first() else {
            return Err(content(&files.cert, "contains no certificate".to_owned()));
        };
        let (not_before, not_after) = parse_x509_certificate(end_entity)
            .map(|(_, parsed)| {
                let validity = parsed.validity();
                (
                    validity.not_before.timestamp(),
                    validity.not_after.timestamp(),
                )
            })
            .map_err(|error| {
                content(
                    &files.cert,
                    format!("contains an invalid certificate: {error}"),
                )
            })?;
        let key = PrivateKeyDer::from_pem_slice(&read(&files.key)?)
            .map_err(|error| content(&files.key, pem_problem(&error)))?;
        let certified =
            CertifiedKey::from_der(chain, key, provider).map_err(|error| match error {
                rustls::Error::InconsistentKeys(_) => TlsError::KeyMismatch {
                    cert: files.cert.clone(),
                    key: files.key.clone(),
                },
                error => content(&files.key, format!("contains no usable key: {error}")),
            })?;
        Ok(Self {
            certified,
            not_before,
            not_after,
        })
    }

    /// Checks that the pair may replace the certificate `before`, at `now` (Unix seconds).
    pub(super) fn replaces(
        &self,
        before: &CertifiedKey,
        needed: &[String],
        now: i64,
    ) -> Result<(), RejectionReason> {
        if self.not_after <= now {
            return Err(RejectionReason::Expired);
        }
        if self.not_before > now {
            return Err(RejectionReason::NotYet);
        }
        match (self.certified.cert.first(), before.cert.first()) {
            (Some(end_entity), Some(before)) => {
                names::replaces(end_entity, before, needed).map_err(RejectionReason::Names)
            }
            _ => Ok(()),
        }
    }
}

/// A larger PEM file is something else; a long chain with a large key has 20 KiB.
const MAX_PEM_BYTES: u64 = 1024 * 1024;

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    crate::files::read_bounded(path, MAX_PEM_BYTES).map_err(|source| TlsError::Read {
        path: path.to_owned(),
        source,
    })
}

/// The library's message without the offending text.
fn pem_problem(error: &pem::Error) -> String {
    match error {
        pem::Error::NoItemsFound => "contains no PEM section of the right kind".to_owned(),
        pem::Error::MissingSectionEnd { .. } => "ends within a PEM section".to_owned(),
        _ => "is not valid PEM".to_owned(),
    }
}

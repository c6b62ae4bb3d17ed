//! Check of a certificate chain that an authority returned, before it replaces anything. It has no
//! IO and no clock.

use std::sync::Arc;
use std::time::Duration;

use daemon::tls::covers;
use rustls::RootCertStore;
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::CryptoProvider;
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use x509_parser::parse_x509_certificate;

use crate::schedule::Validity;

/// A checked certificate with its key.
#[derive(Debug)]
pub struct IssuedCertificate {
    certified: Arc<CertifiedKey>,
    validity: Validity,
    names: Vec<String>,
    /// It had expired by the clock of this machine when it was read.
    was_expired: bool,
}

/// Reason why a chain is not used. The texts contain nothing of the key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChainError {
    /// It is not PEM, or has too many certificates.
    #[error("it is not a chain of 1 to {MAX_CERTIFICATES} certificates in PEM")]
    Format,
    /// A certificate cannot be parsed.
    #[error("it contains an invalid certificate")]
    Certificate,
    /// A certificate is not followed by its issuer.
    #[error("its certificates are not in the order of their issuers")]
    Order,
    /// A certificate is not signed by its issuer, or not for servers.
    #[error("its certificates are not signed by their issuers, or not for servers")]
    Signature,
    /// The key is not that of the certificate.
    #[error("the certificate is for another key")]
    Key,
    /// It lacks a name.
    #[error("the certificate is not for {0}")]
    Name(String),
    /// It has expired.
    #[error("the certificate has expired; check the clock of this machine")]
    Expired,
    /// It is not valid yet.
    #[error("the certificate is not valid yet; check the clock of this machine")]
    NotYet,
}

impl IssuedCertificate {
    /// Checks a chain in PEM with its key: it is for `names` (`*.name` for those below one), and it
    /// is valid at `now` (seconds since 1970).
    ///
    /// # Errors
    /// [`ChainError`]: nothing may be replaced by it.
    pub fn check(
        chain: &str,
        key: &str,
        names: &[String],
        now: i64,
        provider: &CryptoProvider,
    ) -> Result<Self, ChainError> {
        let issued = Self::parse(chain, key, names, provider)?;
        issued.check_time(now)?;
        Ok(issued)
    }

    /// The same without the time of day.
    ///
    /// # Errors
    /// [`ChainError`], except those of the time.
    pub fn parse(
        chain: &str,
        key: &str,
        names: &[String],
        provider: &CryptoProvider,
    ) -> Result<Self, ChainError> {
        let chain = CertificateDer::pem_slice_iter(chain.as_bytes())
            .take(MAX_CERTIFICATES + 1)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|_| ChainError::Format)?;
        if chain.is_empty() || chain.len() > MAX_CERTIFICATES {
            return Err(ChainError::Format);
        }
        issuers_follow(&chain)?;
        let leaf = chain.first().ok_or(ChainError::Format)?;
        for name in names {
            if !covers(leaf, name) {
                return Err(ChainError::Name(name.clone()));
            }
        }
        let validity = validity(leaf)?;
        signatures_follow(&chain, validity.not_before, provider)?;
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|_| ChainError::Key)?;
        let certified =
            CertifiedKey::from_der(chain, key, provider).map_err(|_| ChainError::Key)?;
        Ok(Self {
            certified: Arc::new(certified),
            validity,
            names: names.to_vec(),
            was_expired: false,
        })
    }

    /// Checks the validity of the certificate at `now` (seconds since 1970).
    ///
    /// # Errors
    /// [`ChainError::Expired`] or [`ChainError::NotYet`].
    pub(crate) fn check_time(&self, now: i64) -> Result<(), ChainError> {
        if self.validity.not_after <= now {
            return Err(ChainError::Expired);
        }
        if self.validity.not_before > now {
            return Err(ChainError::NotYet);
        }
        Ok(())
    }

    /// The same certificate, which had expired by the clock of this machine when it was read.
    pub(crate) fn expired(self) -> Self {
        Self {
            was_expired: true,
            ..self
        }
    }

    /// True if it had expired by the clock of this machine when it was read from the disk. The clock
    /// may be ahead: the certificate is better than none, and worse than any other one.
    pub fn was_expired(&self) -> bool {
        self.was_expired
    }

    /// The chain with its key, for handshakes.
    pub fn certified(&self) -> &Arc<CertifiedKey> {
        &self.certified
    }

    /// Validity of the certificate.
    pub fn validity(&self) -> Validity {
        self.validity
    }

    /// Names for which it was ordered.
    pub fn names(&self) -> &[String] {
        &self.names
    }
}

fn issuers_follow(chain: &[CertificateDer<'_>]) -> Result<(), ChainError> {
    let mut issuer: Option<Vec<u8>> = None;
    for certificate in chain {
        let (rest, parsed) =
            parse_x509_certificate(certificate).map_err(|_| ChainError::Certificate)?;
        if !rest.is_empty() {
            return Err(ChainError::Certificate);
        }
        if issuer.is_some_and(|issuer| issuer != parsed.subject().as_raw()) {
            return Err(ChainError::Order);
        }
        issuer = Some(parsed.issuer().as_raw().to_vec());
    }
    Ok(())
}

/// Checks the chain as a client does that trusts its last certificate. Its signatures do not depend
/// on the clock of this machine, so the time is that of the issuance, in seconds since 1970.
fn signatures_follow(
    chain: &[CertificateDer<'_>],
    issued_at: i64,
    provider: &CryptoProvider,
) -> Result<(), ChainError> {
    let (leaf, issuers) = chain.split_first().ok_or(ChainError::Format)?;
    // The issuer of a certificate alone is known to the clients only.
    let Some((last, intermediates)) = issuers.split_last() else {
        return Ok(());
    };
    let mut roots = RootCertStore::empty();
    roots
        .add(last.clone())
        .map_err(|_| ChainError::Certificate)?;
    let leaf = ParsedCertificate::try_from(leaf).map_err(|_| ChainError::Certificate)?;
    let issued_at = Duration::from_secs(u64::try_from(issued_at).unwrap_or_default());
    verify_server_cert_signed_by_trust_anchor(
        &leaf,
        &roots,
        intermediates,
        UnixTime::since_unix_epoch(issued_at),
        provider.signature_verification_algorithms.all,
    )
    .map_err(|_| ChainError::Signature)
}

fn validity(certificate: &CertificateDer<'_>) -> Result<Validity, ChainError> {
    let (_, parsed) = parse_x509_certificate(certificate).map_err(|_| ChainError::Certificate)?;
    let validity = parsed.validity();
    Ok(Validity {
        not_before: validity.not_before.timestamp(),
        not_after: validity.not_after.timestamp(),
    })
}

/// Chains of public authorities have two to four certificates.
const MAX_CERTIFICATES: usize = 10;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rcgen::{
        BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd,
    };

    use super::*;

    /// 2030-06-01.
    const NOW: i64 = 1_906_502_400;

    struct Authority {
        issuer: Issuer<'static, KeyPair>,
        pem: String,
    }

    fn authority() -> Authority {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
            .distinguished_name
            .push(DnType::CommonName, "an authority");
        let pem = params.self_signed(&key).unwrap().pem();
        Authority {
            issuer: Issuer::new(params, key),
            pem,
        }
    }

    /// The certificate of 2030 for these names, and its key.
    fn issue(authority: &Authority, names: &[&str]) -> (String, String) {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(names).unwrap();
        params.not_before = date_time_ymd(2030, 1, 1);
        params.not_after = date_time_ymd(2031, 1, 1);
        let certificate = params.signed_by(&key, &authority.issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    fn check(chain: &str, key: &str, names: &[&str], now: i64) -> Result<(), ChainError> {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        IssuedCertificate::check(chain, key, &names, now, &provider).map(drop)
    }

    #[test]
    fn a_chain_is_checked_against_names_key_and_time() {
        let authority = authority();
        let both = ["h.example", "*.t.h.example"];
        let (leaf, key) = issue(&authority, &both);
        let (_, other_key) = issue(&authority, &both);
        let chain = format!("{leaf}{}", authority.pem);
        // Another authority of the same name has not signed the certificate.
        let unsigned = format!("{leaf}{}", self::authority().pem);
        let reversed = format!("{}{leaf}", authority.pem);
        let many = leaf.repeat(MAX_CERTIFICATES + 1);
        let year = 365 * 86_400;
        let missing = |name: &str| Err(ChainError::Name(name.to_owned()));
        for (chain, key, names, now, expected) in [
            (&chain, &key, &both[..], NOW, Ok(())),
            (&leaf, &key, &both[..1], NOW, Ok(())),
            (&chain, &other_key, &both, NOW, Err(ChainError::Key)),
            (&chain, &chain, &both, NOW, Err(ChainError::Key)),
            (
                &chain,
                &key,
                &["other.example"],
                NOW,
                missing("other.example"),
            ),
            (&chain, &key, &["*.h.example"], NOW, missing("*.h.example")),
            (&chain, &key, &both, NOW + year, Err(ChainError::Expired)),
            (&chain, &key, &both, NOW - year, Err(ChainError::NotYet)),
            (&reversed, &key, &both, NOW, Err(ChainError::Order)),
            (&unsigned, &key, &both, NOW, Err(ChainError::Signature)),
            (&String::new(), &key, &both, NOW, Err(ChainError::Format)),
            (&key, &key, &both, NOW, Err(ChainError::Format)),
            (&many, &key, &both, NOW, Err(ChainError::Format)),
        ] {
            assert_eq!(
                check(chain, key, names, now),
                expected,
                "{names:?} at {now}"
            );
        }
    }

    proptest! {
        #[test]
        fn any_text_is_refused(chain in ".{0,200}", inner in "[A-Za-z0-9+/=\n]{0,200}") {
            let pem = format!("-----BEGIN CERTIFICATE-----\n{inner}\n-----END CERTIFICATE-----\n");
            for text in [chain, pem] {
                prop_assert!(check(&text, "", &["h.example"], NOW).is_err());
            }
        }
    }
}

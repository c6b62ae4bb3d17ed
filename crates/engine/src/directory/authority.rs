//! Certificate authorities of client certificates, parsed once, and the validity of certificates.

use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, TrustAnchor, UnixTime};
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};
use x509_parser::parse_x509_certificate;

/// An authority whose certificates its credential accepts.
#[derive(Debug)]
pub struct Authority {
    anchor: TrustAnchor<'static>,
    validity: Validity,
}

/// Validity of a certificate (RFC 5280, 4.1.2.5): both ends are included, in Unix seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    from: i64,
    until: i64,
}

/// The certificates that a visitor sent in the handshake, parsed once for all authorities.
pub struct Chain<'c> {
    certificates: &'c [CertificateDer<'c>],
    end_entity: EndEntityCert<'c>,
    /// Issuer of each certificate, as a name in DER.
    issuers: Vec<Box<[u8]>>,
}

impl<'c> Chain<'c> {
    /// Reads the visitor's own certificate and the ones that were sent after it. `None`: there is
    /// none that could be verified.
    pub fn read(certificates: &'c [CertificateDer<'c>]) -> Option<Self> {
        let end_entity = EndEntityCert::try_from(certificates.first()?).ok()?;
        let read = certificates.iter().map(EndEntityCert::try_from);
        let issuers = read.filter_map(|one| Some(one.ok()?.issuer().into()));
        Some(Self {
            certificates,
            end_entity,
            issuers: issuers.collect(),
        })
    }
}

impl Authority {
    /// Reads the single certificate of an authority, PEM. `None` if it cannot be used.
    pub(super) fn parse(pem: &str) -> Option<Self> {
        let der = CertificateDer::from_pem_slice(pem.as_bytes()).ok()?;
        Some(Self {
            anchor: anchor_from_trusted_cert(&der).ok()?.to_owned(),
            validity: Validity::of(&der)?,
        })
    }

    /// Checks that a visitor's chain leads to this authority at `now` (Unix seconds), and returns
    /// its validity. Each certificate on the way has to be valid, and one with a declared purpose
    /// has to be for client authentication.
    pub fn vouches_for(&self, chain: &Chain<'_>, now: i64) -> Option<Validity> {
        // A visitor determines the number of paths between its certificates. So there is no search
        // for an authority that none of them names as an issuer.
        let mut issuers = chain.issuers.iter().map(|issuer| &**issuer);
        if !issuers.any(|issuer| issuer == self.anchor.subject.as_ref()) {
            return None;
        }
        let (end_entity, intermediates) = chain.certificates.split_first()?;
        let seconds = u64::try_from(now).ok()?;
        let path = chain.end_entity.verify_for_usage(
            daemon::tls::provider()
                .signature_verification_algorithms
                .all,
            std::slice::from_ref(&self.anchor),
            intermediates,
            UnixTime::since_unix_epoch(Duration::from_secs(seconds)),
            KeyUsage::client_auth(),
            None,
            None,
        );
        let path = path.ok()?;
        // The library does not check the validity of the authority itself.
        let mut validity = self.validity.and(Validity::of(end_entity)?);
        for between in path.intermediate_certificates() {
            validity = validity.and(Validity::of(&between.der())?);
        }
        Some(validity)
    }
}

impl Validity {
    /// Validity of a certificate. `None` if it cannot be parsed.
    pub fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let (_, parsed) = parse_x509_certificate(certificate).ok()?;
        let validity = parsed.validity();
        Some(Self {
            from: validity.not_before.timestamp(),
            until: validity.not_after.timestamp(),
        })
    }

    /// The time in which both are valid.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            from: self.from.max(other.from),
            until: self.until.min(other.until),
        }
    }

    /// Returns true if it is valid at `now` (Unix seconds).
    pub fn contains(self, now: i64) -> bool {
        (self.from..=self.until).contains(&now)
    }

    /// Always valid.
    #[cfg(test)]
    pub(crate) const ALWAYS: Self = Self {
        from: i64::MIN,
        until: i64::MAX,
    };
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

    use super::*;

    fn named(name: &str, ca: bool) -> CertificateParams {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        if ca {
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        }
        params
    }

    /// Certificates with one name form a maze: each may have issued each other. There is no search
    /// for authorities that the maze does not name, however many there are.
    #[test]
    fn a_maze_without_a_known_issuer_is_not_searched() {
        let key = || KeyPair::generate().unwrap();
        let anchor = named("anchor", true).self_signed(&key()).unwrap();
        let authority = Authority::parse(&anchor.pem()).unwrap();
        let issuer = Issuer::new(named("same", true), key());
        let own = named("own", false).signed_by(&key(), &issuer).unwrap();
        let namesakes = (0..8).map(|_| named("same", true).self_signed(&key()).unwrap());
        let shown: Vec<_> = std::iter::once(own)
            .chain(namesakes)
            .map(|one| one.der().clone())
            .collect();
        let chain = Chain::read(&shown).unwrap();
        let now = jiff::Timestamp::now().as_second();
        // Seconds for each of them if the library were called.
        let started = std::time::Instant::now();
        assert!((0..1000).all(|_| authority.vouches_for(&chain, now).is_none()));
        assert!(
            started.elapsed() < Duration::from_secs(30),
            "{:?}",
            started.elapsed()
        );
    }

    #[test]
    fn an_authority_is_found_through_an_intermediate() {
        let key = || KeyPair::generate().unwrap();
        let (root, between) = (key(), key());
        let anchor = named("anchor", true).self_signed(&root).unwrap();
        let authority = Authority::parse(&anchor.pem()).unwrap();
        let root = Issuer::new(named("anchor", true), root);
        let middle = named("between", true).signed_by(&between, &root).unwrap();
        let middle_issues = Issuer::new(named("between", true), between);
        let own = named("own", false)
            .signed_by(&key(), &middle_issues)
            .unwrap();
        let now = jiff::Timestamp::now().as_second();
        let vouches = |shown: &[CertificateDer<'_>]| {
            authority
                .vouches_for(&Chain::read(shown).unwrap(), now)
                .is_some()
        };
        assert!(vouches(&[own.der().clone(), middle.der().clone()]));
        assert!(!vouches(&[own.der().clone()]));
    }
}

//! The states of the certificates of a process, for reports to its operator.

use std::sync::Arc;

use daemon::tls::{ReloadingCert, names_of};

use crate::manager::Certificate;

/// The certificates of a process. Clones share them.
#[derive(Clone, Debug)]
pub struct CertificateStates {
    pub(crate) files: Option<Arc<ReloadingCert>>,
    pub(crate) ordered: Option<OrderedNames>,
}

/// An ordered certificate with the names of its orders.
#[derive(Clone, Debug)]
pub(crate) struct OrderedNames {
    pub(crate) names: Arc<[String]>,
    pub(crate) certificate: Certificate,
}

/// State of one certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateState {
    /// Its source.
    pub source: CertificateSource,
    /// Its names, or those that are ordered.
    pub names: Vec<String>,
    /// Its last second, in seconds since 1970; `None` until there is one.
    pub expires_at: Option<i64>,
    /// Reason of the last failure, without anything secret; `None` after a success.
    pub problem: Option<String>,
    /// Time of the next attempt after a failure, in seconds since 1970.
    pub next_attempt: Option<i64>,
}

/// Source of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateSource {
    /// Two files.
    Files,
    /// An authority.
    Authority,
}

impl CertificateStates {
    /// The current states: files first, then the authority.
    pub fn all(&self) -> Vec<CertificateState> {
        let files = self.files.as_deref().map(of_files);
        let ordered = self.ordered.as_ref().map(OrderedNames::state);
        files.into_iter().chain(ordered).collect()
    }
}

fn of_files(files: &ReloadingCert) -> CertificateState {
    let leaf = files.certificate();
    CertificateState {
        source: CertificateSource::Files,
        names: leaf.as_ref().map(names_of).unwrap_or_default(),
        expires_at: Some(files.not_after()),
        problem: files.problem(),
        next_attempt: None,
    }
}

impl OrderedNames {
    fn state(&self) -> CertificateState {
        let issued = self.certificate.current();
        let names = issued.as_ref().map(|issued| issued.names().to_vec());
        CertificateState {
            source: CertificateSource::Authority,
            names: names.unwrap_or_else(|| self.names.to_vec()),
            expires_at: issued.map(|issued| issued.validity().not_after),
            problem: self.certificate.problem(),
            next_attempt: self.certificate.next_attempt(),
        }
    }
}

#[cfg(test)]
mod tests {
    use daemon::tls::CertFiles;
    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    #[test]
    fn both_sources_are_listed_with_the_reason_of_a_failure() {
        let directory = tempfile::tempdir().unwrap();
        let files = CertFiles {
            cert: directory.path().join("cert.pem"),
            key: directory.path().join("key.pem"),
        };
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["engine.example.com".to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(2100, 1, 1);
        let pem = params.self_signed(&key).unwrap().pem();
        std::fs::write(&files.cert, pem).unwrap();
        std::fs::write(&files.key, key.serialize_pem()).unwrap();
        let loaded = ReloadingCert::load(files.clone(), daemon::tls::provider()).unwrap();
        let states = CertificateStates {
            files: Some(Arc::new(loaded)),
            ordered: Some(OrderedNames {
                names: ["*.t.engine.example.com".to_owned()].into(),
                certificate: Certificate::default(),
            }),
        };
        let from_files = CertificateState {
            source: CertificateSource::Files,
            names: vec!["engine.example.com".to_owned()],
            expires_at: Some(4_102_444_800),
            problem: None,
            next_attempt: None,
        };
        let ordered = CertificateState {
            source: CertificateSource::Authority,
            names: vec!["*.t.engine.example.com".to_owned()],
            expires_at: None,
            problem: None,
            next_attempt: None,
        };
        assert_eq!(states.all(), [from_files.clone(), ordered]);

        // A replacement that cannot be used: the certificate stays, with the reason.
        std::fs::write(&files.cert, "no certificate").unwrap();
        let reloading = states.files.as_ref().unwrap();
        reloading.check_files(std::time::Instant::now(), 1_700_000_000);
        let all = states.all();
        let [now, _] = &all[..] else {
            panic!("two certificates");
        };
        assert_eq!(
            (&now.names, now.expires_at),
            (&from_files.names, from_files.expires_at)
        );
        let problem = now.problem.as_deref().unwrap();
        assert!(problem.contains("cert.pem"), "{problem}");
    }
}

//! The state directory of one certificate, read by another part of the program while its owner runs.

use std::path::Path;

use crate::chain::IssuedCertificate;
use crate::manager::last_problem;
use crate::order::{CERTIFICATE_FILE, CertificateFile, account_url, stored};
use crate::store::StateFolder;

/// Contents of a state directory, for messages to the operator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredStatus {
    /// The certificate, if there is one.
    pub certificate: Option<StoredCertificate>,
    /// Reason of the last failed order, with the text of the authority; `None` after a success.
    pub problem: Option<String>,
    /// URL of the account at the authority.
    pub account: Option<String>,
}

/// A certificate in a state directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredCertificate {
    /// URL of the directory of its authority.
    pub directory: String,
    /// Its names, as they were ordered.
    pub names: Vec<String>,
    /// Its last second, in seconds since 1970.
    pub expires_at: i64,
    /// The certificate and its issuers, PEM.
    pub chain: String,
}

impl StoredStatus {
    /// Reads a directory. A part that is missing or damaged counts as absent, because its owner
    /// replaces it.
    #[must_use]
    pub fn read(state_dir: &Path) -> Self {
        let folder = StateFolder::existing(state_dir);
        let file = stored::<CertificateFile>(&folder, CERTIFICATE_FILE);
        Self {
            certificate: file.ok().flatten().and_then(StoredCertificate::of),
            problem: last_problem(state_dir),
            account: account_url(&folder),
        }
    }
}

impl StoredCertificate {
    fn of(file: CertificateFile) -> Option<Self> {
        let provider = daemon::tls::provider();
        let issued = IssuedCertificate::parse(&file.chain, &file.key, &file.names, &provider);
        Some(Self {
            expires_at: issued.ok()?.validity().not_after,
            directory: file.directory,
            names: file.names,
            chain: file.chain,
        })
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    #[test]
    fn an_empty_or_damaged_directory_has_nothing() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(
            StoredStatus::read(directory.path()),
            StoredStatus::default()
        );
        for name in ["certificate.json", "account.json"] {
            std::fs::write(directory.path().join(name), "{").unwrap();
        }
        assert_eq!(
            StoredStatus::read(directory.path()),
            StoredStatus::default()
        );
        let absent = directory.path().join("absent");
        assert_eq!(StoredStatus::read(&absent), StoredStatus::default());
    }

    #[test]
    fn the_parts_of_a_directory_are_reported() {
        let directory = tempfile::tempdir().unwrap();
        let names = vec!["engine.example.com".to_owned()];
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(names.clone()).unwrap();
        params.not_after = rcgen::date_time_ymd(2100, 1, 1);
        let chain = params.self_signed(&key).unwrap().pem();
        let file = CertificateFile {
            directory: "https://ca.example/directory".to_owned(),
            names: names.clone(),
            chain: chain.clone(),
            key: key.serialize_pem(),
        };
        let write = |name: &str, text: &str| {
            std::fs::write(directory.path().join(name), text).unwrap();
        };
        write(CERTIFICATE_FILE, &serde_json::to_string(&file).unwrap());
        write("problem.txt", "rateLimited: too many certificates");
        write(
            "account.json",
            r#"{"credentials": {"id": "https://ca.example/acct/1"}}"#,
        );
        let status = StoredStatus::read(directory.path());
        let certificate = status.certificate.unwrap();
        assert_eq!(certificate.directory, "https://ca.example/directory");
        assert_eq!(certificate.names, names);
        assert_eq!(certificate.chain, chain);
        assert_eq!(certificate.expires_at, 4_102_444_800);
        let problem = status.problem.unwrap();
        assert!(problem.contains("too many certificates"), "{problem}");
        assert_eq!(status.account.unwrap(), "https://ca.example/acct/1");
    }
}

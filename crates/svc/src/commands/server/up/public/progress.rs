//! Progress of the orders of certificates, read from the state directories of the parts.

use std::path::{Path, PathBuf};
use std::time::Duration;

use acme::StoredStatus;
use jiff::Timestamp;

use super::super::ready::CertificateInfo;
use super::files::{Layout, platform_host, turn_host};
use crate::output::{self, Format};

/// The names of a certificate, its authority, and the directory of its state.
#[derive(Debug)]
pub(super) struct IssuedNames {
    names: Vec<String>,
    /// URL of the authority's directory.
    authority: String,
    directory: PathBuf,
}

/// Messages about orders on standard error, each one once.
#[derive(Debug)]
pub(super) struct Progress {
    is_quiet: bool,
    /// The last message of each certificate, by its first name.
    last: Vec<(String, String)>,
}

impl IssuedNames {
    /// The certificates of a public server: of engine, relay and platform.
    pub(super) fn of_server(host: &str, layout: &Layout, authority: &str) -> [Self; 3] {
        let of_engine = vec![host.to_owned(), format!("*.t.{host}"), format!("*.{host}")];
        [
            Self::new(of_engine, authority, &layout.engine),
            Self::new(vec![turn_host(host)], authority, &layout.relay),
            Self::new(vec![platform_host(host)], authority, &layout.platform),
        ]
    }

    /// A certificate with its state directory.
    pub(super) fn new(names: Vec<String>, authority: &str, directory: &Path) -> Self {
        Self {
            names,
            authority: authority.to_owned(),
            directory: directory.to_owned(),
        }
    }

    /// The last failure of an order, with its first name.
    pub(super) fn problem(&self) -> Option<String> {
        let problem = StoredStatus::read(&self.directory).problem?;
        let name = self.names.first()?;
        Some(format!("{name}: {}", output::plain(&problem)))
    }

    /// The certificate, if it is from the authority, has all names and has not expired.
    pub(super) fn info(&self) -> Option<CertificateInfo> {
        self.info_of(StoredStatus::read(&self.directory), Timestamp::now())
    }

    fn info_of(&self, status: StoredStatus, now: Timestamp) -> Option<CertificateInfo> {
        let stored = status.certificate?;
        let has_all = self.names.iter().all(|name| stored.names.contains(name));
        let end = Timestamp::from_second(stored.expires_at).ok()?;
        // One from the authority for tests is replaced by the next order.
        let is_current = stored.directory == self.authority && end > now;
        (has_all && is_current).then(|| CertificateInfo {
            names: stored.names,
            expires_at: end.to_string(),
        })
    }

    /// True if there is a certificate, and the state as a user reads it.
    fn state(&self, now: Timestamp) -> (bool, String) {
        let status = StoredStatus::read(&self.directory);
        let problem = status.problem.clone();
        match (self.info_of(status, now), problem) {
            (Some(info), _) => (true, format!("issued, until {}", info.expires_at)),
            (None, Some(problem)) => {
                let text = output::plain(&problem);
                (false, format!("failed, and is tried again: {text}"))
            }
            (None, None) => (false, "ordered…".to_owned()),
        }
    }
}

impl Progress {
    pub(super) fn new(format: Format) -> Self {
        Self {
            is_quiet: format == Format::Json,
            last: Vec::new(),
        }
    }

    /// Waits until all certificates exist, and shows the state of each one when it changes.
    pub(super) async fn wait(&mut self, wanted: &[IssuedNames]) {
        loop {
            let mut is_complete = true;
            for certificate in wanted {
                let (is_issued, text) = certificate.state(Timestamp::now());
                is_complete &= is_issued;
                self.show(&certificate.names, &text);
            }
            if is_complete {
                return;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    fn show(&mut self, names: &[String], text: &str) {
        let names = names.join(", ");
        let known = self.last.iter_mut().find(|(of, _)| *of == names);
        match known {
            Some((_, last)) if last.as_str() == text => return,
            Some((_, last)) => text.clone_into(last),
            None => self.last.push((names.clone(), text.to_owned())),
        }
        // A failure is worth a message in the log of a service as well.
        if !self.is_quiet || text.starts_with("failed") {
            output::message(&format!("certificate for {names}: {text}"));
        }
    }
}

/// The issuers of the stored certificates, PEM.
pub(super) fn issuers(directories: &[&Path]) -> String {
    let stored = directories
        .iter()
        .filter_map(|directory| StoredStatus::read(directory).certificate);
    let issuers = stored.filter_map(|certificate| last_of_chain(&certificate.chain));
    issuers.collect()
}

fn last_of_chain(chain: &str) -> Option<String> {
    let start = chain.rfind(BEGIN)?;
    let mut last = chain.get(start..)?.trim_end().to_owned();
    last.push('\n');
    Some(last)
}

const BEGIN: &str = "-----BEGIN CERTIFICATE-----";

/// Interval between polls of the state. An order takes seconds.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use acme::StoredCertificate;

    use super::*;

    const AUTHORITY: &str = "https://ca.example/directory";

    fn stored(names: &[&str], expires_at: i64) -> StoredStatus {
        StoredStatus {
            certificate: Some(StoredCertificate {
                directory: AUTHORITY.to_owned(),
                names: names.iter().map(|name| (*name).to_owned()).collect(),
                expires_at,
                chain: String::new(),
            }),
            ..StoredStatus::default()
        }
    }

    #[test]
    fn a_certificate_counts_with_all_names_until_it_expires() {
        let layout = Layout::new(Path::new("/nonexistent"));
        let [engine, _, _] = IssuedNames::of_server("e.example", &layout, AUTHORITY);
        let all = ["e.example", "*.t.e.example", "*.e.example"];
        let now = Timestamp::from_second(1_000).unwrap();
        let info = engine.info_of(stored(&all, 2_000), now).unwrap();
        assert_eq!(info.expires_at, "1970-01-01T00:33:20Z");
        assert!(engine.info_of(stored(&all, 1_000), now).is_none());
        assert!(engine.info_of(stored(&all[..2], 2_000), now).is_none());
        assert!(engine.info_of(StoredStatus::default(), now).is_none());
        let [other, _, _] = IssuedNames::of_server("e.example", &layout, "https://other.example");
        assert!(other.info_of(stored(&all, 2_000), now).is_none());
    }

    #[test]
    fn a_failed_order_shows_the_text_of_the_authority() {
        let directory = tempfile::tempdir().unwrap();
        let names = vec!["e.example".to_owned()];
        let host = IssuedNames::new(names, AUTHORITY, directory.path());
        let now = Timestamp::UNIX_EPOCH;
        assert_eq!(host.state(now), (false, "ordered…".to_owned()));
        let problem = directory.path().join("problem.txt");
        std::fs::write(problem, "rateLimited: too many\u{1b}[31m").unwrap();
        let (is_issued, text) = host.state(now);
        assert!(!is_issued && text.contains("too many"), "{text}");
        assert!(!text.contains('\u{1b}'), "{text}");
    }

    #[test]
    fn the_last_certificate_of_a_chain_is_its_issuer() {
        let chain = format!("{BEGIN}\nA\n{BEGIN}\nB\n\n");
        assert_eq!(last_of_chain(&chain).unwrap(), format!("{BEGIN}\nB\n"));
        assert!(last_of_chain("").is_none());
    }
}

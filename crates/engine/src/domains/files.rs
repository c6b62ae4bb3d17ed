//! Certificates of domains from files. One task checks the files of all domains: a check at each
//! handshake, as for the engine's own files, would cost a thread for each of thousands of domains.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use daemon::tls::{CHECK_INTERVAL, CertFiles, ReloadingCert, TlsError};
use rustls::sign::CertifiedKey;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;

/// The certificate in two files. Domains may share it.
#[derive(Debug)]
pub struct DomainFiles {
    certificate: ReloadingCert,
    /// A handshake has used it since the last check.
    is_used: AtomicBool,
}

impl DomainFiles {
    /// Reads the files for these domains (or `*.name`): a new certificate must have each of their
    /// names that the previous one has.
    ///
    /// # Errors
    /// There is no usable certificate.
    pub(super) fn load(files: CertFiles, domains: Vec<String>) -> Result<Self, TlsError> {
        let provider = daemon::tls::provider();
        Ok(Self {
            certificate: ReloadingCert::load_for_domains(files, provider, domains)?,
            is_used: AtomicBool::new(false),
        })
    }

    /// The certificate of a handshake.
    pub(super) fn current(&self) -> Arc<CertifiedKey> {
        // A write by each of the cores would make them wait for each other.
        if !self.is_used.load(Ordering::Relaxed) {
            self.is_used.store(true, Ordering::Relaxed);
        }
        self.certificate.current()
    }
}

/// The files of all domains, which are checked in turn.
#[derive(Debug)]
pub(super) struct FileChecks {
    all: Box<[Arc<DomainFiles>]>,
    /// Index of the next one.
    next: usize,
}

impl FileChecks {
    pub(super) fn new(all: Box<[Arc<DomainFiles>]>) -> Self {
        Self { all, next: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Checks the files that handshakes use, until `stop`. Changed files are read again.
    pub(super) async fn check_periodically(self, clock: Arc<dyn Clock>, stop: CancellationToken) {
        let mut ticks = interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut checks = self;
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = ticks.tick() => {}
            }
            let unix = clock.now().as_second();
            // A file system that hangs only blocks this check.
            let checking = tokio::task::spawn_blocking(move || {
                checks.check(Instant::now(), unix);
                checks
            });
            match checking.await {
                Ok(checked) => checks = checked,
                Err(_) => return,
            }
        }
    }

    /// Checks files that were used since their last check, at most [`CHECKS_AT_ONCE`].
    fn check(&mut self, now: Instant, unix: i64) {
        let mut left = CHECKS_AT_ONCE;
        for _ in 0..self.all.len() {
            let Some(files) = self.all.get(self.next).filter(|_| left > 0) else {
                return;
            };
            self.next = (self.next + 1) % self.all.len();
            if files.is_used.swap(false, Ordering::Relaxed) {
                files.certificate.check_files(now, unix);
                left -= 1;
            }
        }
    }
}

/// Longer than the least interval between two checks of one certificate, so that none is left out.
const INTERVAL: Duration = CHECK_INTERVAL.saturating_mul(2);

/// A check costs some ten microseconds, and with a changed file a tenth of a millisecond. The files
/// of 10,000 domains are checked within 20 seconds.
const CHECKS_AT_ONCE: usize = 1_000;

#[cfg(test)]
mod tests {
    use std::path::Path;

    use rcgen::generate_simple_self_signed;
    use tempfile::TempDir;

    use super::*;

    fn write(directory: &Path, name: &str) -> CertFiles {
        let made = generate_simple_self_signed([name.to_owned()]).unwrap();
        let files = CertFiles {
            cert: directory.join(format!("{name}.pem")),
            key: directory.join(format!("{name}.key")),
        };
        std::fs::write(&files.cert, made.cert.pem()).unwrap();
        std::fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
        files
    }

    /// EN-12.
    #[test]
    fn en_12_files_that_handshakes_use_are_read_again() {
        let directory = TempDir::new().unwrap();
        let names = ["a.example.com", "b.example.com"];
        let all: Vec<_> = names
            .iter()
            .map(|name| {
                let files = write(directory.path(), name);
                Arc::new(DomainFiles::load(files, vec![(*name).to_owned()]).unwrap())
            })
            .collect();
        let mut checks = FileChecks::new(all.clone().into());
        let before: Vec<_> = all.iter().map(|files| files.current()).collect();
        let mut now = Instant::now();
        let mut check = |checks: &mut FileChecks| {
            now += INTERVAL;
            checks.check(now, 0x7000_0000);
        };
        check(&mut checks);
        for name in names {
            write(directory.path(), name);
        }
        let is_changed =
            |index: usize| !Arc::ptr_eq(&all[index].certificate.current(), &before[index]);
        check(&mut checks);
        assert!(
            !is_changed(0) && !is_changed(1),
            "no handshake has used them"
        );
        all[1].current();
        check(&mut checks);
        assert!(!is_changed(0) && is_changed(1));
        all[0].current();
        check(&mut checks);
        assert!(is_changed(0));
    }
}

//! A certificate that is reloaded when its files change (EN-12).

use std::fmt;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, ArcSwapOption};
use parking_lot::{Mutex, MutexGuard};
use rustls::crypto::CryptoProvider;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls_pki_types::CertificateDer;

use super::domain_expiry::export_domain_expiry;
use super::names::names_of;
use super::pair::{CertFiles, Pair, RejectionReason, TlsError};
use crate::clock::{Clock as _, SystemClock};

/// Counts changes of the files by `outcome`: `ok` (in use) or `error` (the old one stays in use).
pub const RELOADS_METRIC: &str = "svc_certificate_reloads_total";
/// Expiry of the current certificate, in seconds since 1970. The label `name` is the first name of the
/// certificate that was read first, so that each pair of files has one series.
pub const EXPIRY_METRIC: &str = "svc_certificate_expiry_timestamp_seconds";

/// The static certificate provider (EN-12): serves the certificate in its two files.
///
/// A handshake triggers a check of the files, at most once in [`CHECK_INTERVAL`], and a later
/// handshake uses the result. A separate thread checks the files, so a hanging file system does not
/// delay handshakes. Changed files are read. A pair that is invalid, does not match, has expired,
/// is not valid yet or lacks names of the current one is not used, and is tried again when the
/// files change again. Replacing one file after the other is therefore safe in either order, and so
/// is swapping a symbolic link anywhere on the path. It polls instead of using a file watcher,
/// because a watcher can miss changes.
pub struct ReloadingCert(Arc<ReloadState>);

struct ReloadState {
    files: CertFiles,
    /// Names that a new certificate must have if the previous one has them.
    needed: Vec<String>,
    /// The certificate is that of the custom domains in `needed`, and not that of the process.
    is_of_domains: bool,
    /// The first name of the certificate that was read first.
    first_name: String,
    provider: Arc<CryptoProvider>,
    current: ArcSwap<CurrentCert>,
    check: Mutex<FileCheck>,
    /// Last error of the files, which is read without waiting for a check.
    problem: ArcSwapOption<String>,
    /// A thread is checking the files.
    is_checking: AtomicBool,
    /// Time of the next check, in milliseconds after `created_at`: handshakes only read this.
    next_check: AtomicU64,
    created_at: Instant,
    reloads: AtomicU64,
    failures: AtomicU64,
}

struct CurrentCert {
    certified: Arc<CertifiedKey>,
    not_after: i64,
}

/// Result of the last check.
struct FileCheck {
    /// `None` if the files could not be read for a reason that is not visible in their state.
    stamp: Option<Stamp>,
    /// True if `stamp` was confirmed by a second read.
    confirmed: bool,
    /// Last error of the files, so that a lasting failure counts once.
    last_error: Option<String>,
}

impl ReloadingCert {
    /// Reads the pair for the first time.
    ///
    /// # Errors
    /// There is no usable pair: at start there is no old one to keep, so the process ends.
    pub fn load(files: CertFiles, provider: Arc<CryptoProvider>) -> Result<Self, TlsError> {
        Self::load_for(files, provider, Vec::new())
    }

    /// The same for a server with these names (`*.name` for those below one): a new certificate
    /// must have each of them that the previous one has.
    ///
    /// # Errors
    /// As [`ReloadingCert::load`].
    pub fn load_for(
        files: CertFiles,
        provider: Arc<CryptoProvider>,
        needed: Vec<String>,
    ) -> Result<Self, TlsError> {
        Self::load_as(files, provider, needed, false)
    }

    /// The same for custom domains (or `*.name`), whose expiry has series of its own.
    ///
    /// # Errors
    /// As [`ReloadingCert::load`].
    pub fn load_for_domains(
        files: CertFiles,
        provider: Arc<CryptoProvider>,
        domains: Vec<String>,
    ) -> Result<Self, TlsError> {
        Self::load_as(files, provider, domains, true)
    }

    fn load_as(
        files: CertFiles,
        provider: Arc<CryptoProvider>,
        needed: Vec<String>,
        is_of_domains: bool,
    ) -> Result<Self, TlsError> {
        let stamp = Stamp::of(&files);
        let pair = Pair::read(&files, &provider)?;
        let not_after = pair.not_after;
        let first = pair.certified.cert.first();
        let mut names = first.map(names_of).unwrap_or_default();
        names.truncate(1);
        let state = ReloadState {
            files,
            needed,
            is_of_domains,
            first_name: names.pop().unwrap_or_default(),
            provider,
            current: ArcSwap::from_pointee(pair.into()),
            check: Mutex::new(FileCheck {
                stamp: Some(stamp),
                confirmed: false,
                last_error: None,
            }),
            problem: ArcSwapOption::empty(),
            is_checking: AtomicBool::new(false),
            next_check: AtomicU64::new(0),
            created_at: Instant::now(),
            reloads: AtomicU64::new(0),
            failures: AtomicU64::new(0),
        };
        state.export_expiry(not_after);
        Ok(Self(Arc::new(state)))
    }

    /// The current certificate. Reads no file.
    pub fn current(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.0.current.load().certified)
    }

    /// Checks the files, if a check is due at `now`; `unix` is the time of day in seconds since
    /// 1970. Blocks for as long as the file system does.
    pub fn check_files(&self, now: Instant, unix: i64) {
        if let Some(mut last_check) = self.0.lock_check(now) {
            self.0.check_locked(&mut last_check, unix);
        }
    }

    /// Starts a check of the files, if one is due, and does not wait for it.
    fn check_in_background(&self, now: Instant) {
        if !self.0.is_due(now) || self.0.is_checking.swap(true, Ordering::AcqRel) {
            return;
        }
        let this = Arc::clone(&self.0);
        let thread = std::thread::Builder::new().name("certificate".to_owned());
        let looking = thread.spawn(move || {
            if let Some(mut last_check) = this.lock_check(now) {
                this.check_locked(&mut last_check, SystemClock.now().as_second());
            }
            this.is_checking.store(false, Ordering::Release);
        });
        if looking.is_err() {
            // No thread could be started; a later handshake tries again.
            self.0.is_checking.store(false, Ordering::Release);
        }
    }

    /// The server's own certificate in the current chain.
    pub fn certificate(&self) -> Option<CertificateDer<'static>> {
        self.0.current.load().certified.cert.first().cloned()
    }

    /// Expiry of the current certificate, in seconds since 1970.
    pub fn not_after(&self) -> i64 {
        self.0.current.load().not_after
    }

    /// Reason why the current files are not used, while the previous certificate stays in use.
    pub fn problem(&self) -> Option<String> {
        let problem = self.0.problem.load_full();
        problem.map(|problem| String::clone(&problem))
    }

    /// Number of changes of the files that were applied.
    pub fn reloads(&self) -> u64 {
        self.0.reloads.load(Ordering::Relaxed)
    }

    /// Number of changes of the files that were refused.
    pub fn failures(&self) -> u64 {
        self.0.failures.load(Ordering::Relaxed)
    }
}

impl ReloadState {
    fn is_due(&self, now: Instant) -> bool {
        let elapsed = millis(now.saturating_duration_since(self.created_at));
        elapsed >= self.next_check.load(Ordering::Relaxed)
    }

    /// The lock for a check, if one is due and no other thread is checking.
    fn lock_check(&self, now: Instant) -> Option<MutexGuard<'_, FileCheck>> {
        if !self.is_due(now) {
            return None;
        }
        // Tested again under the lock, because the previous holder may just have checked.
        let last_check = self.check.try_lock().filter(|_| self.is_due(now))?;
        let elapsed = millis(now.saturating_duration_since(self.created_at));
        let next = elapsed.saturating_add(millis(CHECK_INTERVAL));
        self.next_check.store(next, Ordering::Relaxed);
        Some(last_check)
    }

    fn check_locked(&self, last_check: &mut FileCheck, unix: i64) {
        // Taken before reading, so that a write during the read is detected in the next check.
        let stamp = Stamp::of(&self.files);
        let changed = last_check.stamp.as_ref() != Some(&stamp);
        if !changed && last_check.confirmed {
            return;
        }
        // A write directly after the last check may have the same time stamp, because file times
        // are coarse. A stamp is therefore trusted only after a second read.
        last_check.confirmed = !changed;
        match self.read(unix) {
            Ok(pair) => {
                last_check.stamp = Some(stamp);
                last_check.last_error = None;
                self.problem.store(None);
                self.activate(pair);
            }
            Err(error) => {
                // A file that exists but cannot be read (no descriptors, a hanging disk) may become
                // readable without a change. A certificate may also become valid over time.
                let transient = match &error {
                    TlsError::Read { .. } => stamp.is_complete(),
                    TlsError::Unfit { problem, .. } => *problem == RejectionReason::NotYet,
                    _ => false,
                };
                last_check.stamp = (!transient).then_some(stamp);
                let error = error.to_string();
                if (changed && !transient) || last_check.last_error.as_ref() != Some(&error) {
                    self.failures.fetch_add(1, Ordering::Relaxed);
                    metrics::counter!(RELOADS_METRIC, "outcome" => "error").increment(1);
                    tracing::warn!(
                        %error,
                        "the new certificate was refused, the old one stays in use"
                    );
                    self.problem.store(Some(Arc::new(error.clone())));
                    last_check.last_error = Some(error);
                }
            }
        }
    }

    /// Reads the pair, and compares it with the current one. An unchanged pair is accepted, even if
    /// it has expired.
    fn read(&self, unix: i64) -> Result<Pair, TlsError> {
        let pair = Pair::read(&self.files, &self.provider)?;
        let before = self.current.load();
        if pair.certified.cert == before.certified.cert {
            return Ok(pair);
        }
        let judged = pair.replaces(&before.certified, &self.needed, unix);
        judged.map_err(|problem| TlsError::Unfit {
            path: self.files.cert.clone(),
            problem,
        })?;
        Ok(pair)
    }

    fn activate(&self, pair: Pair) {
        // The same chain has the same key: the files were touched, or the old ones were restored.
        if pair.certified.cert == self.current.load().certified.cert {
            return;
        }
        self.export_expiry(pair.not_after);
        self.current.store(Arc::new(pair.into()));
        self.reloads.fetch_add(1, Ordering::Relaxed);
        metrics::counter!(RELOADS_METRIC, "outcome" => "ok").increment(1);
        tracing::info!(cert.file = %self.files.cert.display(), "a new certificate is in use");
    }

    fn export_expiry(&self, not_after: i64) {
        if self.is_of_domains {
            for domain in &self.needed {
                export_domain_expiry(domain, Some(not_after));
            }
            return;
        }
        #[expect(
            clippy::cast_precision_loss,
            reason = "seconds stay exact in 53 bits for ever"
        )]
        let seconds = not_after as f64;
        metrics::gauge!(EXPIRY_METRIC, "name" => self.first_name.clone()).set(seconds);
    }
}

impl ResolvesServerCert for ReloadingCert {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.check_in_background(Instant::now());
        Some(self.current())
    }
}

impl fmt::Debug for ReloadingCert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReloadingCert")
            .field("files", &self.0.files)
            .finish_non_exhaustive()
    }
}

impl From<Pair> for CurrentCert {
    fn from(
        Pair {
            certified,
            not_after,
            ..
        }: Pair,
    ) -> Self {
        Self {
            certified: Arc::new(certified),
            not_after,
        }
    }
}

/// Minimum interval between checks: four system calls per second are negligible, four for each of
/// thousands of handshakes are not, and a delay of a second does not matter.
pub const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Identity of both files. It differs if either file is replaced or changed.
#[derive(PartialEq, Eq)]
struct Stamp([Option<FileStamp>; 2]);

/// One file; `None` in [`Stamp`] is a missing file.
#[derive(PartialEq, Eq)]
struct FileStamp {
    /// The file after resolving all symbolic links, including those of its directories.
    target: PathBuf,
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    /// Changes even if a tool preserves the modification time, and on a change of permissions.
    changed: (i64, i64),
}

impl Stamp {
    fn of(files: &CertFiles) -> Self {
        Self([FileStamp::of(&files.cert), FileStamp::of(&files.key)])
    }

    fn is_complete(&self) -> bool {
        self.0.iter().all(Option::is_some)
    }
}

impl FileStamp {
    fn of(path: &Path) -> Option<Self> {
        let target = fs::canonicalize(path).ok()?;
        let metadata: Metadata = fs::metadata(&target).ok()?;
        Some(Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
            target,
        })
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use rcgen::generate_simple_self_signed;
    use tempfile::TempDir;

    use super::*;
    use crate::tls::provider;

    /// Writes a new pair and returns its certificate.
    fn write(files: &CertFiles) -> CertificateDer<'static> {
        let made = generate_simple_self_signed(["a".to_owned()]).unwrap();
        fs::write(&files.cert, made.cert.pem()).unwrap();
        fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
        made.cert.der().clone()
    }

    /// EN-12.
    #[test]
    fn en_12_a_change_with_an_equal_stamp_is_detected_in_the_next_check() {
        let dir = TempDir::new().unwrap();
        let files = CertFiles {
            cert: dir.path().join("c"),
            key: dir.path().join("k"),
        };
        write(&files);
        let served = ReloadingCert::load(files.clone(), provider()).unwrap();
        let mut now = Instant::now();
        for _ in 0..2 {
            // A check detects a change ...
            let seen = write(&files);
            now += CHECK_INTERVAL;
            served.check_files(now, 0x7000_0000);
            assert_eq!(served.current().cert[0], seen);
            // ... and another follows within the tick of a coarse clock: the stamps are equal.
            let unseen = write(&files);
            served.0.check.lock().stamp = Some(Stamp::of(&files));
            now += CHECK_INTERVAL;
            served.check_files(now, 0x7000_0000);
            assert_eq!(served.current().cert[0], unseen);
        }
    }
}

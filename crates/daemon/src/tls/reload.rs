//! The certificate that follows its files (EN-12).

use std::fmt;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use rustls::crypto::CryptoProvider;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls_pki_types::CertificateDer;

use super::pair::{CertFiles, Pair, TlsError};

/// Counts changes of the files by `outcome`: `ok` (in service) or `error` (the old one stays).
pub const RELOADS_METRIC: &str = "svc_certificate_reloads_total";
/// When the certificate in service expires, in seconds since 1970.
pub const EXPIRY_METRIC: &str = "svc_certificate_expiry_timestamp_seconds";

/// The static certificate provider (EN-12): serves what its two files hold.
///
/// A handshake looks at the files, at most once in [`CHECK_INTERVAL`], and reads them where they
/// changed; a pair that does not parse or does not belong together leaves the old one in service
/// and is tried again when the files change again. So replacing one file, then the other, is safe
/// in either order, and so is swapping a symbolic link anywhere on the path. There is no watcher
/// thread: a watch can be lost, a look cannot.
pub struct ReloadingCert {
    files: CertFiles,
    provider: Arc<CryptoProvider>,
    current: ArcSwap<InService>,
    look: Mutex<Look>,
    /// When the next look is due, in milliseconds after `born`: handshakes read this alone.
    next_look: AtomicU64,
    born: Instant,
    reloads: AtomicU64,
    failures: AtomicU64,
}

struct InService {
    certified: Arc<CertifiedKey>,
    not_after: i64,
}

/// What the last look saw.
struct Look {
    /// `None` when the files could not be read for a reason that is not in their state.
    seen: Option<Stamp>,
    /// Whether `seen` was read a second time.
    confirmed: bool,
    /// Why the files were refused last, so that a lasting failure counts once.
    refused: Option<String>,
}

impl ReloadingCert {
    /// Reads the pair for the first time.
    ///
    /// # Errors
    /// There is no usable pair: at start there is no old one to keep, so the process ends.
    pub fn load(files: CertFiles, provider: Arc<CryptoProvider>) -> Result<Self, TlsError> {
        let seen = Stamp::of(&files);
        let pair = Pair::read(&files, &provider)?;
        export_expiry(pair.not_after);
        Ok(Self {
            files,
            provider,
            current: ArcSwap::from_pointee(pair.into()),
            look: Mutex::new(Look {
                seen: Some(seen),
                confirmed: false,
                refused: None,
            }),
            next_look: AtomicU64::new(0),
            born: Instant::now(),
            reloads: AtomicU64::new(0),
            failures: AtomicU64::new(0),
        })
    }

    /// The certificate for a handshake at `now`, after looking at the files where a look is due.
    pub fn current(&self, now: Instant) -> Arc<CertifiedKey> {
        let elapsed = millis(now.saturating_duration_since(self.born));
        let due = || elapsed >= self.next_look.load(Ordering::Relaxed);
        // Whoever holds the lock is looking; nobody waits for a disk in a handshake. Asked again
        // under the lock: the one before may just have looked.
        if due()
            && let Some(mut look) = self.look.try_lock()
            && due()
        {
            let next = elapsed.saturating_add(millis(CHECK_INTERVAL));
            self.next_look.store(next, Ordering::Relaxed);
            self.look_at_files(&mut look);
        }
        Arc::clone(&self.current.load().certified)
    }

    /// The server's own certificate that is in service.
    pub fn certificate(&self) -> Option<CertificateDer<'static>> {
        self.current.load().certified.cert.first().cloned()
    }

    /// When the certificate in service expires, in seconds since 1970.
    pub fn not_after(&self) -> i64 {
        self.current.load().not_after
    }

    /// How many changes of the files were taken into service.
    pub fn reloads(&self) -> u64 {
        self.reloads.load(Ordering::Relaxed)
    }

    /// How many changes of the files were refused.
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    fn look_at_files(&self, look: &mut Look) {
        // Taken before reading: a write during the read differs from it, and is seen next time.
        let stamp = Stamp::of(&self.files);
        let changed = look.seen.as_ref() != Some(&stamp);
        if !changed && look.confirmed {
            return;
        }
        // What was written right after the last look may bear the time of what that look read:
        // file times are coarse. So a stamp is believed when it outlived a second reading.
        look.confirmed = !changed;
        match Pair::read(&self.files, &self.provider) {
            Ok(pair) => {
                look.seen = Some(stamp);
                look.refused = None;
                self.take_into_service(pair);
            }
            Err(error) => {
                // A file that is there and cannot be read (no descriptors, a disk that hangs) may
                // be readable later without any change to it.
                let transient = matches!(error, TlsError::Read { .. }) && stamp.is_complete();
                look.seen = (!transient).then_some(stamp);
                let error = error.to_string();
                if (changed && !transient) || look.refused.as_ref() != Some(&error) {
                    self.failures.fetch_add(1, Ordering::Relaxed);
                    metrics::counter!(RELOADS_METRIC, "outcome" => "error").increment(1);
                    tracing::warn!(
                        %error,
                        "the new certificate is refused, the old one stays in service"
                    );
                    look.refused = Some(error);
                }
            }
        }
    }

    fn take_into_service(&self, pair: Pair) {
        // The same chain has the same key: the files were touched, or the old ones came back.
        if pair.certified.cert == self.current.load().certified.cert {
            return;
        }
        export_expiry(pair.not_after);
        self.current.store(Arc::new(pair.into()));
        self.reloads.fetch_add(1, Ordering::Relaxed);
        metrics::counter!(RELOADS_METRIC, "outcome" => "ok").increment(1);
        tracing::info!(cert.file = %self.files.cert.display(), "a new certificate is in service");
    }
}

impl ResolvesServerCert for ReloadingCert {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current(Instant::now()))
    }
}

impl fmt::Debug for ReloadingCert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReloadingCert")
            .field("files", &self.files)
            .finish_non_exhaustive()
    }
}

impl From<Pair> for InService {
    fn from(
        Pair {
            certified,
            not_after,
        }: Pair,
    ) -> Self {
        Self {
            certified: Arc::new(certified),
            not_after,
        }
    }
}

/// Files are looked at no more often than this: four system calls a second are free, four for
/// each of thousands of handshakes are not, and nobody notices a certificate a second late.
pub const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Everything that changes when somebody replaces either file by any means.
#[derive(PartialEq, Eq)]
struct Stamp([Option<FileStamp>; 2]);

/// One file: `None` above is a file that is not there.
#[derive(PartialEq, Eq)]
struct FileStamp {
    /// The file behind all symbolic links, those of its directories too.
    target: PathBuf,
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    /// Moves where a tool preserves the modification time, and on a change of permissions.
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

fn export_expiry(not_after: i64) {
    #[expect(
        clippy::cast_precision_loss,
        reason = "seconds stay exact in 53 bits for ever"
    )]
    metrics::gauge!(EXPIRY_METRIC).set(not_after as f64);
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
    fn en_12_a_change_that_leaves_no_trace_is_seen_at_the_next_look() {
        let dir = TempDir::new().unwrap();
        let files = CertFiles {
            cert: dir.path().join("c"),
            key: dir.path().join("k"),
        };
        write(&files);
        let served = ReloadingCert::load(files.clone(), provider()).unwrap();
        let mut now = Instant::now();
        for _ in 0..2 {
            // A look sees a change ...
            let seen = write(&files);
            now += CHECK_INTERVAL;
            assert_eq!(served.current(now).cert[0], seen);
            // ... and another follows within the tick of a coarse clock: the stamps are equal.
            let unseen = write(&files);
            served.look.lock().seen = Some(Stamp::of(&files));
            now += CHECK_INTERVAL;
            assert_eq!(served.current(now).cert[0], unseen);
        }
    }
}

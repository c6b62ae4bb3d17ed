//! The certificate that follows its files (EN-12).

use std::fmt;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use parking_lot::{Mutex, MutexGuard};
use rustls::crypto::CryptoProvider;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls_pki_types::CertificateDer;

use super::pair::{CertFiles, Pair, TlsError, Unfit};
use crate::clock::{Clock as _, SystemClock};

/// Counts changes of the files by `outcome`: `ok` (in service) or `error` (the old one stays).
pub const RELOADS_METRIC: &str = "svc_certificate_reloads_total";
/// When the certificate in service expires, in seconds since 1970.
pub const EXPIRY_METRIC: &str = "svc_certificate_expiry_timestamp_seconds";

/// The static certificate provider (EN-12): serves what its two files hold.
///
/// A handshake has the files looked at, at most once in [`CHECK_INTERVAL`], and a later one gets what
/// was found: a thread of its own looks, so a file system that hangs holds up no handshake. Files
/// that changed are read; a pair that does not parse, does not belong together, has expired, is not
/// valid yet or lacks names of the one in service leaves that one in service and is tried again
/// when the files change again. So replacing one file, then the other, is safe in either order, and
/// so is swapping a symbolic link anywhere on the path. There is no watcher: a watch can be lost, a
/// look cannot.
pub struct ReloadingCert(Arc<Reloading>);

struct Reloading {
    files: CertFiles,
    /// Names that a new certificate may not lack where the one before has them.
    needed: Vec<String>,
    provider: Arc<CryptoProvider>,
    current: ArcSwap<InService>,
    look: Mutex<Look>,
    /// A thread looks at the files.
    is_looking: AtomicBool,
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
        Self::load_for(files, provider, Vec::new())
    }

    /// The same for a server of these names (`*.name` for those below one): no new certificate may
    /// lack one that the certificate before it has.
    ///
    /// # Errors
    /// As [`ReloadingCert::load`].
    pub fn load_for(
        files: CertFiles,
        provider: Arc<CryptoProvider>,
        needed: Vec<String>,
    ) -> Result<Self, TlsError> {
        let seen = Stamp::of(&files);
        let pair = Pair::read(&files, &provider)?;
        export_expiry(pair.not_after);
        Ok(Self(Arc::new(Reloading {
            files,
            needed,
            provider,
            current: ArcSwap::from_pointee(pair.into()),
            look: Mutex::new(Look {
                seen: Some(seen),
                confirmed: false,
                refused: None,
            }),
            is_looking: AtomicBool::new(false),
            next_look: AtomicU64::new(0),
            born: Instant::now(),
            reloads: AtomicU64::new(0),
            failures: AtomicU64::new(0),
        })))
    }

    /// The certificate in service. Reads no file.
    pub fn current(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.0.current.load().certified)
    }

    /// Looks at the files, where a look is due at `now`; `unix` is the time of day in seconds since
    /// 1970. Blocks for as long as the file system does.
    pub fn look(&self, now: Instant, unix: i64) {
        if let Some(mut look) = self.0.take_look(now) {
            self.0.look_at_files(&mut look, unix);
        }
    }

    /// Has the files looked at, where a look is due, and does not wait for it.
    fn look_in_background(&self, now: Instant) {
        if !self.0.is_due(now) || self.0.is_looking.swap(true, Ordering::AcqRel) {
            return;
        }
        let this = Arc::clone(&self.0);
        let thread = std::thread::Builder::new().name("certificate".to_owned());
        let looking = thread.spawn(move || {
            if let Some(mut look) = this.take_look(now) {
                this.look_at_files(&mut look, SystemClock.now().as_second());
            }
            this.is_looking.store(false, Ordering::Release);
        });
        if looking.is_err() {
            // No thread to be had now; a later handshake asks again.
            self.0.is_looking.store(false, Ordering::Release);
        }
    }

    /// The server's own certificate that is in service.
    pub fn certificate(&self) -> Option<CertificateDer<'static>> {
        self.0.current.load().certified.cert.first().cloned()
    }

    /// When the certificate in service expires, in seconds since 1970.
    pub fn not_after(&self) -> i64 {
        self.0.current.load().not_after
    }

    /// How many changes of the files were taken into service.
    pub fn reloads(&self) -> u64 {
        self.0.reloads.load(Ordering::Relaxed)
    }

    /// How many changes of the files were refused.
    pub fn failures(&self) -> u64 {
        self.0.failures.load(Ordering::Relaxed)
    }
}

impl Reloading {
    fn is_due(&self, now: Instant) -> bool {
        let elapsed = millis(now.saturating_duration_since(self.born));
        elapsed >= self.next_look.load(Ordering::Relaxed)
    }

    /// The right to look, where a look is due and nobody else looks.
    fn take_look(&self, now: Instant) -> Option<MutexGuard<'_, Look>> {
        if !self.is_due(now) {
            return None;
        }
        // Asked again under the lock: the one before may just have looked.
        let look = self.look.try_lock().filter(|_| self.is_due(now))?;
        let elapsed = millis(now.saturating_duration_since(self.born));
        let next = elapsed.saturating_add(millis(CHECK_INTERVAL));
        self.next_look.store(next, Ordering::Relaxed);
        Some(look)
    }

    fn look_at_files(&self, look: &mut Look, unix: i64) {
        // Taken before reading: a write during the read differs from it, and is seen next time.
        let stamp = Stamp::of(&self.files);
        let changed = look.seen.as_ref() != Some(&stamp);
        if !changed && look.confirmed {
            return;
        }
        // What was written right after the last look may bear the time of what that look read:
        // file times are coarse. So a stamp is believed when it outlived a second reading.
        look.confirmed = !changed;
        match self.read(unix) {
            Ok(pair) => {
                look.seen = Some(stamp);
                look.refused = None;
                self.take_into_service(pair);
            }
            Err(error) => {
                // A file that is there and cannot be read (no descriptors, a disk that hangs) may
                // be readable later without any change to it. A certificate becomes valid, too.
                let transient = match &error {
                    TlsError::Read { .. } => stamp.is_complete(),
                    TlsError::Unfit { problem, .. } => *problem == Unfit::NotYet,
                    _ => false,
                };
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

    /// Reads the pair, and judges it by the one in service. The same one may be there, however old.
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
        self.look_in_background(Instant::now());
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

impl From<Pair> for InService {
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
            served.look(now, 0x7000_0000);
            assert_eq!(served.current().cert[0], seen);
            // ... and another follows within the tick of a coarse clock: the stamps are equal.
            let unseen = write(&files);
            served.0.look.lock().seen = Some(Stamp::of(&files));
            now += CHECK_INTERVAL;
            served.look(now, 0x7000_0000);
            assert_eq!(served.current().cert[0], unseen);
        }
    }
}

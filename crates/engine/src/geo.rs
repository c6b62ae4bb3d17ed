//! The country of an address, from a file in the `MaxMind` database format that is read again when
//! it changes.

use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use maxminddb::{PathElement, Reader};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use types::tunnel::Country;

/// The countries of addresses. A lookup takes no lock; the file is in memory.
#[derive(Debug)]
pub(crate) struct Countries {
    file: PathBuf,
    current: ArcSwap<Reader<Vec<u8>>>,
}

/// Errors that make a file unusable.
#[derive(Debug, thiserror::Error)]
pub enum GeoError {
    /// The file cannot be read.
    #[error("cannot be read: {0}")]
    Unreadable(#[from] std::io::Error),
    /// The file has another format.
    #[error("is not a MaxMind database: {0}")]
    NotADatabase(String),
}

/// Interval between two checks of the file. A country that is outdated by a second does no harm.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

impl Countries {
    /// Reads the file for the first time. It blocks.
    ///
    /// # Errors
    /// The file cannot be used.
    pub(crate) fn load(file: &Path) -> Result<Self, GeoError> {
        Ok(Self {
            current: ArcSwap::from_pointee(read(file)?),
            file: file.to_owned(),
        })
    }

    /// The country of an address. `None` if the file does not contain the address, and for
    /// special-purpose addresses such as private ones.
    pub(crate) fn country_of(&self, address: IpAddr) -> Option<Country> {
        let address = address.to_canonical();
        if is_special_purpose(address) {
            return None;
        }
        let reader = self.current.load();
        let found = reader.lookup(address).ok()?;
        let path = [PathElement::Key("country"), PathElement::Key("iso_code")];
        let code: Option<&str> = found.decode_path(&path).ok()?;
        code?.parse().ok()
    }

    /// Checks the file periodically until `stop` is cancelled, and starts to use a new one. A file
    /// that cannot be used leaves the old one in use.
    pub(crate) async fn reload_periodically(self: Arc<Self>, stop: CancellationToken) {
        let mut ticks = interval(CHECK_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last_check = FileCheck::default();
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = ticks.tick() => {}
            }
            let countries = Arc::clone(&self);
            let checking = tokio::task::spawn_blocking(move || {
                countries.check_file(&mut last_check);
                last_check
            });
            last_check = checking.await.unwrap_or_default();
        }
    }

    fn check_file(&self, last_check: &mut FileCheck) {
        // Taken before reading: a write during the read changes the stamp and is noticed by the
        // next check.
        let stamp = FileStamp::of(&self.file);
        let changed = last_check.stamp != stamp;
        if !changed && last_check.confirmed {
            return;
        }
        // File times are coarse: a write right after a check may have the same time. So a stamp is
        // trusted only if a second read found the same one.
        last_check.confirmed = !changed;
        last_check.stamp = stamp;
        match read(&self.file) {
            Ok(reader) => {
                last_check.failure_was_logged = false;
                let build = reader.metadata().build_epoch;
                if self.current.load().metadata().build_epoch != build {
                    info!(
                        file = %self.file.display(), build,
                        "a new geolocation database is in use"
                    );
                }
                self.current.store(Arc::new(reader));
            }
            Err(error) => {
                if changed || !last_check.failure_was_logged {
                    let file = self.file.display();
                    warn!(
                        %file, %error,
                        "the geolocation database was not reloaded, the old one stays in use"
                    );
                }
                last_check.failure_was_logged = true;
            }
        }
    }
}

/// The result of the last check.
#[derive(Debug, Default)]
struct FileCheck {
    stamp: Option<FileStamp>,
    /// True if the file with this stamp was read a second time.
    confirmed: bool,
    failure_was_logged: bool,
}

/// The file's attributes. Any way of replacing the file changes at least one of them.
#[derive(Debug, PartialEq, Eq)]
struct FileStamp {
    device_and_inode: (u64, u64),
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileStamp {
    /// `None` if there is no file.
    fn of(path: &Path) -> Option<Self> {
        let metadata = fs::metadata(path).ok()?;
        Some(Self {
            device_and_inode: (metadata.dev(), metadata.ino()),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        })
    }
}

fn read(file: &Path) -> Result<Reader<Vec<u8>>, GeoError> {
    let reader = Reader::from_source(fs::read(file)?);
    reader.map_err(|error| GeoError::NotADatabase(error.to_string()))
}

/// True for special-purpose addresses that have no country, regardless of the file: private,
/// shared, loopback, link-local, unspecified and multicast ones (RFC 6890).
fn is_special_purpose(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            let [first, second, ..] = address.octets();
            let shared = first == 100 && (64..128).contains(&second);
            address.is_private()
                || address.is_loopback()
                || address.is_link_local()
                || address.is_unspecified()
                || address.is_multicast()
                || shared
        }
        IpAddr::V6(address) => {
            address.is_loopback()
                || address.is_unspecified()
                || address.is_multicast()
                || address.is_unique_local()
                || address.is_unicast_link_local()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Paris, San Francisco, New Zealand with only a country, and a record of another shape, in the
    /// ranges for documentation.
    const PLACES: &str = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../control/tests/fixtures/places.mmdb"
    );

    #[test]
    fn addresses_have_the_countries_of_the_file() {
        let countries = Countries::load(Path::new(PLACES)).unwrap();
        for (address, country) in [
            ("192.0.2.9", Some("FR")),
            ("::ffff:192.0.2.9", Some("FR")),
            ("2001:db8:1::9", Some("FR")),
            ("198.51.100.9", Some("US")),
            ("203.0.113.9", Some("NZ")),
            ("127.0.0.1", None),
            ("::1", None),
            ("10.0.0.1", None),
            ("100.64.0.1", None),
            ("192.0.0.9", None),
            ("2001:db8:2::9", None),
        ] {
            let expected = country.map(|code| code.parse().unwrap());
            assert_eq!(
                countries.country_of(address.parse().unwrap()),
                expected,
                "{address}"
            );
        }
    }

    #[test]
    fn private_addresses_have_no_country() {
        for address in [
            "127.0.0.1",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.1.1",
            "100.127.0.1",
            "0.0.0.0",
            "224.0.0.1",
            "::",
            "::1",
            "fd00::1",
            "fe80::1",
            "ff02::1",
        ] {
            assert!(is_special_purpose(address.parse().unwrap()), "{address}");
        }
        for address in ["192.0.2.1", "100.128.0.1", "172.32.0.1", "2001:db8::1"] {
            assert!(!is_special_purpose(address.parse().unwrap()), "{address}");
        }
    }

    #[test]
    fn a_broken_file_leaves_the_old_one_in_use() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("places.mmdb");
        let first = fs::read(PLACES).unwrap();
        fs::write(&file, &first).unwrap();
        let countries = Countries::load(&file).unwrap();
        let country = || {
            let country = countries.country_of("192.0.2.9".parse().unwrap());
            country.map(|country| country.to_string())
        };
        let mut last_check = FileCheck::default();
        for bytes in [b"garbage".as_slice(), b""] {
            fs::write(&file, bytes).unwrap();
            countries.check_file(&mut last_check);
            assert_eq!(country().as_deref(), Some("FR"));
        }
        fs::remove_file(&file).unwrap();
        countries.check_file(&mut last_check);
        assert_eq!(country().as_deref(), Some("FR"));
        let has_code = String::from_utf8_lossy(&first).contains("BFR");
        assert!(has_code, "the file contains the code as a two-byte string");
        let position = first.windows(3).position(|bytes| bytes == b"BFR").unwrap();
        let mut second = first;
        second[position + 1..position + 3].copy_from_slice(b"BE");
        fs::write(&file, second).unwrap();
        countries.check_file(&mut last_check);
        assert_eq!(country().as_deref(), Some("BE"));
    }

    #[test]
    fn a_file_of_another_format_is_refused() {
        let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"));
        assert!(matches!(
            Countries::load(path),
            Err(GeoError::NotADatabase(_))
        ));
        let missing = Countries::load(Path::new("/nonexistent/places.mmdb"));
        assert!(matches!(missing, Err(GeoError::Unreadable(_))));
    }
}

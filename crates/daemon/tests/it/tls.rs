//! EN-12: the certificate follows its files.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use daemon::tls::{CHECK_INTERVAL, CertFiles, ReloadingCert, TlsError, provider};
use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use rustls::{CipherSuite, ClientConfig, ClientConnection, RootCertStore, ServerConfig};
use rustls_pki_types::CertificateDer;
use tempfile::TempDir;

/// One certificate with its key, and their PEM texts.
struct Pem {
    der: CertificateDer<'static>,
    cert: String,
    key: String,
}

impl Pem {
    fn new() -> Self {
        Self::made("host.example", 2020, 2040)
    }

    /// A certificate for a name, from the first day of a year to that of another.
    fn made(name: &str, from: i32, to: i32) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        params.not_before = date_time_ymd(from, 1, 1);
        params.not_after = date_time_ymd(to, 1, 1);
        let cert = params.self_signed(&key).unwrap();
        Self {
            der: cert.der().clone(),
            cert: cert.pem(),
            key: key.serialize_pem(),
        }
    }

    fn write(&self, dir: &Path) {
        write(dir.join("cert.pem"), &self.cert);
        write(dir.join("key.pem"), &self.key);
    }
}

/// The time of day of these tests, 2026, in seconds since 1970.
const TODAY: i64 = 1_790_000_000;

/// A served pair of files, and a clock that moves one check interval with each handshake.
struct TlsServer {
    dir: TempDir,
    cert: ReloadingCert,
    now: Instant,
    /// The time of day.
    unix: i64,
}

impl TlsServer {
    fn new(first: &Pem) -> Self {
        let dir = TempDir::new().unwrap();
        first.write(dir.path());
        let cert = ReloadingCert::load(files(dir.path()), provider()).unwrap();
        Self {
            dir,
            cert,
            now: Instant::now(),
            unix: TODAY,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The certificate of the next handshake that may check the files.
    fn next(&mut self) -> CertificateDer<'static> {
        self.now += CHECK_INTERVAL;
        self.at(self.now)
    }

    fn at(&self, now: Instant) -> CertificateDer<'static> {
        self.cert.check_files(now, self.unix);
        self.cert.current().cert[0].clone()
    }
}

/// Writes in place. Each text has another length, because these tests move the clock and not the
/// file times, so two writes may have the same time.
fn write(path: PathBuf, text: &str) {
    static WRITTEN: AtomicUsize = AtomicUsize::new(0);
    let padding = "\n".repeat(WRITTEN.fetch_add(1, Ordering::Relaxed));
    fs::write(path, format!("{text}{padding}")).unwrap();
}

fn files(dir: &Path) -> CertFiles {
    CertFiles {
        cert: dir.join("cert.pem"),
        key: dir.join("key.pem"),
    }
}

/// EN-12.
#[test]
fn en_12_the_handshake_after_a_change_uses_the_new_certificate() {
    let (old, new) = (Pem::new(), Pem::new());
    let mut served = TlsServer::new(&old);
    assert_eq!(served.next(), old.der);
    new.write(served.dir.path());
    assert_eq!(served.next(), new.der);
    assert_eq!(served.cert.certificate(), Some(new.der));
    assert_eq!((served.cert.reloads(), served.cert.failures()), (1, 0));
}

/// EN-12.
#[test]
fn en_12_files_are_checked_once_a_second() {
    let (old, new) = (Pem::new(), Pem::new());
    let mut served = TlsServer::new(&old);
    served.next();
    new.write(served.dir.path());
    assert_eq!(served.at(served.now + CHECK_INTERVAL.mul_f32(0.9)), old.der);
    assert_eq!(served.at(served.now + CHECK_INTERVAL), new.der);
}

/// EN-12.
#[test]
fn en_12_broken_files_leave_the_old_certificate_and_are_retried_when_changed() {
    let (old, new) = (Pem::new(), Pem::new());
    let mut served = TlsServer::new(&old);
    served.next();
    let half = &new.cert[..new.cert.len() / 2];
    let cut = new.cert.replacen("MII", "MIJ", 1);
    for (failures, broken) in (1..).zip(["", "not a certificate", half, &cut, &new.key]) {
        write(served.path("cert.pem"), broken);
        for _ in 0..3 {
            assert_eq!(served.next(), old.der, "{broken}");
            assert_eq!(
                served.cert.failures(),
                failures,
                "tried once for each change: {broken}"
            );
        }
    }
    new.write(served.dir.path());
    assert_eq!(served.next(), new.der);
}

/// EN-12.
#[test]
fn en_12_a_two_step_write_is_safe_in_either_order() {
    let (first, second, third) = (Pem::new(), Pem::new(), Pem::new());
    let mut served = TlsServer::new(&first);
    write(served.path("cert.pem"), &second.cert);
    assert_eq!(
        served.next(),
        first.der,
        "the key does not belong to it yet"
    );
    write(served.path("key.pem"), &second.key);
    assert_eq!(served.next(), second.der);
    write(served.path("key.pem"), &third.key);
    assert_eq!(served.next(), second.der);
    write(served.path("cert.pem"), &third.cert);
    assert_eq!(served.next(), third.der);
    assert_eq!((served.cert.reloads(), served.cert.failures()), (2, 2));
}

/// EN-12.
#[test]
fn en_12_a_pair_that_clients_would_refuse_leaves_the_old_certificate_and_is_reported() {
    let old = Pem::new();
    let mut served = TlsServer::new(&old);
    served.next();
    for (failures, (name, from, to)) in (1..).zip([
        ("host.example", 2020, 2025),
        ("host.example", 2030, 2040),
        ("other.example", 2020, 2040),
    ]) {
        Pem::made(name, from, to).write(served.dir.path());
        for _ in 0..3 {
            assert_eq!(served.next(), old.der, "{name} {from} {to}");
            assert_eq!(served.cert.failures(), failures, "reported once");
        }
    }
    assert_eq!(served.cert.reloads(), 0);
    let new = Pem::new();
    new.write(served.dir.path());
    assert_eq!(served.next(), new.der);
}

/// EN-12.
#[test]
fn en_12_a_not_yet_valid_certificate_is_served_once_it_becomes_valid() {
    let old = Pem::new();
    let mut served = TlsServer::new(&old);
    served.next();
    let early = Pem::made("host.example", 2030, 2040);
    early.write(served.dir.path());
    assert_eq!(served.next(), old.der);
    // Four and a half years, and no file has changed.
    served.unix += 142_000_000;
    assert_eq!(served.next(), early.der);
}

/// EN-12: a file system that hangs delays no handshake, and starts no second check.
#[test]
fn en_12_files_that_hang_delay_no_handshake() {
    let old = Pem::new();
    let served = TlsServer::new(&old);
    // Opening a pipe blocks until it has a writer, like a mount that hangs.
    fs::remove_file(served.path("cert.pem")).unwrap();
    let made = std::process::Command::new("mkfifo")
        .arg(served.path("cert.pem"))
        .status();
    assert!(made.unwrap().success());
    let config = Arc::new(
        ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(served.cert)),
    );
    for _ in 0..3 {
        assert_eq!(handshake(&config, &old), old.der);
    }
    // Releases the blocked check.
    drop(fs::write(served.dir.path().join("cert.pem"), &old.cert));
}

/// EN-12.
#[test]
fn en_12_a_missing_file_leaves_the_old_certificate() {
    let (old, new) = (Pem::new(), Pem::new());
    let mut served = TlsServer::new(&old);
    fs::remove_file(served.path("key.pem")).unwrap();
    assert_eq!(served.next(), old.der);
    assert_eq!(served.next(), old.der);
    assert_eq!(served.cert.failures(), 1);
    new.write(served.dir.path());
    assert_eq!(served.next(), new.der);
}

/// EN-12.
#[test]
fn en_12_a_temporarily_unreadable_file_is_read_later_without_a_change() {
    let (old, new) = (Pem::new(), Pem::new());
    let mut served = TlsServer::new(&old);
    served.next();
    // A directory instead of the file exists but cannot be read, like a file without a free
    // descriptor.
    fs::remove_file(served.path("key.pem")).unwrap();
    fs::create_dir(served.path("key.pem")).unwrap();
    for _ in 0..3 {
        assert_eq!(served.next(), old.der);
        assert_eq!(
            served.cert.failures(),
            1,
            "a lasting failure is reported once"
        );
    }
    fs::remove_dir(served.path("key.pem")).unwrap();
    new.write(served.dir.path());
    assert_eq!(served.next(), new.der);
}

/// EN-12.
#[test]
fn en_12_swapped_links_are_followed() {
    let (old, new) = (Pem::new(), Pem::new());
    let dir = TempDir::new().unwrap();
    let path = |name: &str| dir.path().join(name);
    // The layout of a mounted secret: the files are links through another link, which is swapped.
    for (version, pem) in [("v1", &old), ("v2", &new)] {
        fs::create_dir(path(version)).unwrap();
        pem.write(&path(version));
    }
    symlink("v1", path("data")).unwrap();
    symlink("data/cert.pem", path("cert.pem")).unwrap();
    symlink("data/key.pem", path("key.pem")).unwrap();
    let cert = ReloadingCert::load(files(dir.path()), provider()).unwrap();
    let start = Instant::now();
    let at = |now| {
        cert.check_files(now, TODAY);
        cert.current().cert[0].clone()
    };
    assert_eq!(at(start), old.der);
    symlink("v2", path("data.new")).unwrap();
    fs::rename(path("data.new"), path("data")).unwrap();
    assert_eq!(at(start + CHECK_INTERVAL), new.der);
    symlink("v1/cert.pem", path("next")).unwrap();
    fs::rename(path("next"), path("cert.pem")).unwrap();
    assert_eq!(at(start + 2 * CHECK_INTERVAL), new.der, "half a swap");
}

/// EN-12.
#[test]
fn en_12_a_replacement_with_the_same_time_is_seen() {
    let (old, new) = (Pem::new(), Pem::new());
    let mut served = TlsServer::new(&old);
    served.next();
    for (name, text) in [("cert.pem", &new.cert), ("key.pem", &new.key)] {
        let modified = fs::metadata(served.path(name)).unwrap().modified().unwrap();
        write(served.path("next"), text);
        fs::File::options()
            .write(true)
            .open(served.path("next"))
            .and_then(|file| file.set_modified(modified))
            .unwrap();
        fs::rename(served.path("next"), served.path(name)).unwrap();
    }
    assert_eq!(served.next(), new.der);
}

#[test]
fn a_first_pair_that_is_broken_is_an_error_that_names_the_file() {
    let (one, other) = (Pem::new(), Pem::new());
    let dir = TempDir::new().unwrap();
    let load = || ReloadingCert::load(files(dir.path()), provider()).unwrap_err();
    assert!(matches!(load(), TlsError::Read { .. }));
    one.write(dir.path());
    write(dir.path().join("key.pem"), &other.key);
    assert!(matches!(load(), TlsError::KeyMismatch { .. }));
    write(
        dir.path().join("key.pem"),
        "-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n",
    );
    let error = load();
    assert!(matches!(error, TlsError::Content { .. }));
    assert!(error.to_string().contains("key.pem"));
    assert!(!error.to_string().contains("c2VjcmV0"));
}

#[test]
fn expiry_is_that_of_the_servers_own_certificate() {
    let served = TlsServer::new(&Pem::new());
    assert_eq!(served.cert.not_after(), 2_208_988_800);
}

#[test]
fn touching_the_files_does_not_change_the_certificate() {
    let pem = Pem::new();
    let mut served = TlsServer::new(&pem);
    served.next();
    pem.write(served.dir.path());
    assert_eq!(served.next(), pem.der);
    assert_eq!((served.cert.reloads(), served.cert.failures()), (0, 0));
}

/// A client that trusts only this certificate, after its handshake.
fn handshaken(server: &Arc<ServerConfig>, trusted: &Pem) -> ClientConnection {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.der.clone()).unwrap();
    // A client with another cipher preference.
    let client =
        ClientConfig::builder_with_provider(rustls::crypto::aws_lc_rs::default_provider().into())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
    let name = "host.example".try_into().unwrap();
    let mut client = ClientConnection::new(Arc::new(client), name).unwrap();
    let mut server = rustls::ServerConnection::new(Arc::clone(server)).unwrap();
    while client.is_handshaking() || server.is_handshaking() {
        let mut wire = Vec::new();
        client.write_tls(&mut wire).unwrap();
        server.read_tls(&mut wire.as_slice()).unwrap();
        server.process_new_packets().unwrap();
        let mut wire = Vec::new();
        server.write_tls(&mut wire).unwrap();
        client.read_tls(&mut wire.as_slice()).unwrap();
        client.process_new_packets().unwrap();
    }
    client
}

/// The certificate that a handshake receives.
fn handshake(server: &Arc<ServerConfig>, trusted: &Pem) -> CertificateDer<'static> {
    let client = handshaken(server, trusted);
    client.peer_certificates().unwrap()[0].clone()
}

#[test]
fn a_handshake_gets_the_certificate_and_our_first_cipher() {
    let pem = Pem::new();
    let served = TlsServer::new(&pem);
    let mut server = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(served.cert));
    server.ignore_client_order = true;
    let client = handshaken(&Arc::new(server), &pem);
    assert_eq!(client.peer_certificates(), Some(&[pem.der][..]));
    let suite = client.negotiated_cipher_suite().unwrap().suite();
    assert_eq!(suite, CipherSuite::TLS13_AES_128_GCM_SHA256);
}

#[test]
fn concurrent_handshakes_never_wait_for_a_check() {
    let served = TlsServer::new(&Pem::new());
    std::thread::scope(|scope| {
        for offset in 0..8 {
            let served = &served;
            scope.spawn(move || {
                for second in 0..200 {
                    served.at(served.now + Duration::from_millis(second * 1000 + offset));
                }
            });
        }
    });
    assert_eq!((served.cert.reloads(), served.cert.failures()), (0, 0));
}

//! Orders of a process whose clock is wrong. The authority is Pebble, which accepts every validation
//! here, or cannot be reached.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicI64, Ordering};

use serde_json::Value;

use super::tests::{IN_2030, IN_2032, settings, store_certificate};
use super::*;

/// Pebble. It is killed when the value is dropped.
struct Pebble {
    process: Child,
    directory: String,
}

impl Pebble {
    fn start(directory: &Path) -> Self {
        let program = std::env::var_os("SVC_TEST_PEBBLE")
            .expect("SVC_TEST_PEBBLE is not set: run `cargo xtask test`");
        let mut process = Command::new(program)
            .arg(directory)
            // Nothing listens there, because no validation is made.
            .args(["1", "1"])
            .env("PEBBLE_VA_ALWAYS_VALID", "1")
            .env("PEBBLE_VA_NOSLEEP", "1")
            .env("PEBBLE_WFE_NONCEREJECT", "0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let output = process.stdout.take().unwrap();
        BufReader::new(output).read_line(&mut line).unwrap();
        let addresses: Value = serde_json::from_str(&line).unwrap();
        Self {
            process,
            directory: addresses["directory"].as_str().unwrap().to_owned(),
        }
    }
}

impl Drop for Pebble {
    fn drop(&mut self) {
        // It may have ended already.
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

/// The key in a file of the state directory.
fn key(state_dir: &Path, name: &str) -> String {
    let file = std::fs::read(state_dir.join(name)).unwrap();
    let file: Value = serde_json::from_slice(&file).unwrap();
    file["key"].as_str().unwrap().to_owned()
}

/// A manager, and its clock in seconds since 1970.
fn manager_at(seconds: i64, settings: Settings) -> (Manager, Arc<AtomicI64>) {
    let time = Arc::new(AtomicI64::new(seconds));
    let clock = Arc::clone(&time);
    let clock: WallClock = Arc::new(move || clock.load(Ordering::Relaxed));
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    (Manager::open(settings, provider, clock).unwrap(), time)
}

#[tokio::test]
async fn an_order_continues_when_the_clock_is_corrected() {
    let directory = tempfile::tempdir().unwrap();
    let pebble = Pebble::start(directory.path());
    let state_dir = directory.path().join("state");
    let settings = Settings {
        directory: pebble.directory.clone(),
        ca_file: Some(directory.path().join("ca.pem")),
        ..settings(&state_dir)
    };
    // 2001-09-09, when no certificate of the authority was valid.
    let (mut manager, time) = manager_at(1_000_000_000, settings);

    let error = manager.step(0).await.err().unwrap();
    assert!(
        matches!(error, OrderError::Chain(ChainError::NotYet)),
        "{error}"
    );
    let text = error.to_string();
    assert!(text.contains("check the clock of this machine"), "{text}");
    assert!(manager.certificate().current().is_none());
    let ordered = key(&state_dir, "order.json");

    time.store(jiff::Timestamp::now().as_second(), Ordering::Relaxed);
    assert!(matches!(manager.step(1).await, Ok(StepEnd::Idle(_))));
    assert!(manager.certificate().current().is_some());
    assert_eq!(key(&state_dir, CERTIFICATE_FILE), ordered, "no other order");
    assert!(!state_dir.join("order.json").exists());
}

/// The process starts with a clock ahead of the expiry. It serves the certificate, cannot order another
/// one, and orders none after the clock was corrected.
#[tokio::test]
async fn a_certificate_that_expired_only_by_a_clock_ahead_stays_in_use() {
    let directory = tempfile::tempdir().unwrap();
    store_certificate(directory.path());
    let (mut manager, time) = manager_at(IN_2032, settings(directory.path()));
    let certificate = manager.certificate();
    let served = certificate.current().unwrap();
    // Nothing listens at the address of the authority.
    assert!(manager.step(0).await.is_err());
    let current = certificate.current().unwrap();
    assert_eq!(current.certified().cert, served.certified().cert);

    time.store(IN_2030, Ordering::Relaxed);
    assert!(matches!(manager.step(1).await, Ok(StepEnd::Idle(_))));
    let current = certificate.current().unwrap();
    assert_eq!(current.certified().cert, served.certified().cert);
    assert!(!current.was_expired() && !manager.renewal.is_outdated);
    assert!(manager.wait().await.is_some(), "no renewal is due");
}

/// The corrected clock is within the last third of the lifetime, so the certificate counts as valid
/// and is renewed.
#[tokio::test]
async fn a_certificate_that_did_not_expire_is_renewed_when_it_is_time() {
    let directory = tempfile::tempdir().unwrap();
    store_certificate(directory.path());
    let (mut manager, time) = manager_at(IN_2032, settings(directory.path()));
    // 2030-12-15
    time.store(1_923_523_200, Ordering::Relaxed);
    assert!(manager.step(0).await.is_err(), "an order is due");
    let current = manager.certificate().current().unwrap();
    assert!(!current.was_expired() && !manager.renewal.is_outdated);
}

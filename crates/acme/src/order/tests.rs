//! The state of an order between two processes.

use serde_json::json;

use super::*;
use crate::manager::tests::settings;

const DIRECTORY: &str = "http://127.0.0.1:1/directory";
const NAME: &str = "h.example";

/// Returns true if the next process continues the order of these files.
fn continues(order: &OrderFile, key_of_certificate: &str) -> bool {
    let directory = tempfile::tempdir().unwrap();
    let folder = StateFolder::open(directory.path()).unwrap();
    let lock = folder.try_lock().unwrap().unwrap();
    let now: WallClock = Arc::new(|| 0_i64);
    let client = AuthorityClient::new(DIRECTORY, None, Arc::clone(&now)).unwrap();
    let settings = settings(directory.path());
    let attempt = OrderAttempt {
        settings: &settings,
        folder: &folder,
        lock: &lock,
        challenges: &Arc::default(),
        provider: &Arc::new(rustls::crypto::aws_lc_rs::default_provider()),
        client: &client,
        now: &now,
        failures: 0,
    };
    let certificate = json!({
        "directory": DIRECTORY,
        "names": [NAME],
        "chain": "",
        "key": key_of_certificate,
    });
    attempt.store(CERTIFICATE_FILE, &certificate).unwrap();
    attempt.store(ORDER_FILE, order).unwrap();
    attempt.stored_order().unwrap().is_some()
}

fn order() -> OrderFile {
    OrderFile {
        directory: DIRECTORY.to_owned(),
        names: vec![NAME.to_owned()],
        url: "http://127.0.0.1:1/order".to_owned(),
        key: "key of the order".to_owned(),
    }
}

#[test]
fn an_order_continues_only_for_the_same_authority_and_names() {
    assert!(continues(&order(), "other key"));
    let elsewhere = OrderFile {
        directory: "http://127.0.0.1:2/directory".to_owned(),
        ..order()
    };
    let other_names = OrderFile {
        names: vec!["other.example".to_owned()],
        ..order()
    };
    let not_placed = OrderFile {
        url: String::new(),
        ..order()
    };
    for order in [elsewhere, other_names, not_placed] {
        assert!(
            !continues(&order, "other key"),
            "{} {}",
            order.directory,
            order.url
        );
    }
}

/// A process that ends between the two files has stored the certificate, and still has the order.
#[test]
fn an_order_whose_certificate_is_stored_does_not_replace_the_next_renewal() {
    assert!(!continues(&order(), "key of the order"));
}

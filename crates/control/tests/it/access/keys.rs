//! Signing keys that several processes share, and their rotation.

use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use control::StartError;
use control::app::App;
use control::keys::{KeyError, LEAD, Rotation};
use daemon::clock::ManualClock;
use http::Method;
use jiff::Timestamp;
use serde_json::{Value, json};
use store::signing_keys::{self, Status};
use store::{credentials, platform_secrets};

use crate::node;
use crate::support::{START, TestControl, configuration};

async fn jwks(control: &TestControl) -> Vec<String> {
    let path = "/.well-known/jwks.json";
    let answer = control.send(Method::GET, path, None, None).await;
    assert_eq!(answer.status, 200);
    let keys = answer.json()["keys"].as_array().unwrap().clone();
    let kid = |key: &Value| key["kid"].as_str().unwrap().to_owned();
    keys.iter().map(kid).collect()
}

fn signer(control: &TestControl) -> String {
    control.app.keys.signing().kid().unwrap().to_owned()
}

async fn keep(control: &TestControl) {
    let now = control.now();
    control
        .app
        .keys
        .maintain(&control.app.store, now)
        .await
        .unwrap();
}

async fn whoami(control: &TestControl, token: &str) -> u16 {
    control.get("/api/whoami", token).await.status
}

#[tokio::test]
async fn two_processes_on_one_database_have_the_same_keys() {
    for [first, second] in TestControl::pairs("").await {
        assert_eq!(jwks(&first).await, jwks(&second).await);
        assert_eq!(signer(&first), signer(&second));
        let turn = |control: &TestControl| control.app.keys.turn_secret().clone();
        assert!(turn(&first) == turn(&second) && turn(&first).expose().len() >= 32);
        let relay = |control: &TestControl| {
            let key = control.app.keys.turn_relay("engine.example").unwrap();
            (key.public_hex().clone(), key.private_der().clone())
        };
        assert!(relay(&first) == relay(&second));
        let derived = |control: &TestControl| control.app.keys.derive("a").unwrap();
        assert_eq!(derived(&first), derived(&second));
        assert_ne!(derived(&first), first.app.keys.derive("b").unwrap());
        let ada = first.person("ada").await;
        assert_eq!(whoami(&second, &ada.token).await, 200);
        let minted = second.delegated(&ada, json!({"permissions": null})).await;
        assert_eq!(whoami(&first, &minted).await, 200);
        // The second directory contains none of them.
        assert!(!second.app.config.data_dir.join("platform.secret").exists());
    }
}

#[tokio::test]
async fn processes_that_start_at_the_same_time_have_the_same_keys() {
    let directory = tempfile::tempdir().unwrap();
    let secret = directory.path().join("secret");
    std::fs::write(&secret, "0123456789abcdef0123456789abcdef").unwrap();
    let url = crate::postgres::new_database().await;
    let start = |_| {
        let directory = tempfile::tempdir().unwrap();
        let mut config = configuration(directory.path(), Some(&url), "");
        config.secret_file = Some(secret.clone());
        let clock = Arc::new(ManualClock::at(START.parse().unwrap()));
        tokio::spawn(TestControl::opened(config, clock, directory))
    };
    let starting: Vec<_> = (0..4).map(start).collect();
    let mut all = Vec::new();
    for started in starting {
        let control = started.await.unwrap().unwrap();
        let keys = &control.app.keys;
        let relay = keys.turn_relay("engine.example").unwrap();
        let turn = keys.turn_secret().clone();
        all.push((jwks(&control).await, relay.public_hex().clone(), turn));
    }
    assert!(all.windows(2).all(|pair| pair[0] == pair[1]));
    assert_eq!(all[0].0.len(), 1);
}

#[tokio::test]
async fn a_process_without_the_secret_tells_the_operator_to_copy_it() {
    for [first, _] in TestControl::pairs("").await {
        let clock = || Arc::clone(&first.clock);
        let (config, directory) = first.config_beside();
        let path = config.data_dir.join("platform.secret");
        let refused = TestControl::opened(config, clock(), directory).await;
        let error = refused.err().unwrap();
        let text = error.to_string();
        assert!(matches!(error, StartError::Key(KeyError::Content { .. })));
        assert!(
            text.contains("copy the file") && text.contains("platform.secret_file"),
            "{text}"
        );
        assert!(!path.exists(), "a useless secret file would be in the way");

        let (mut config, directory) = first.config_beside();
        let other = directory.path().join("other");
        std::fs::write(&other, "fedcba9876543210fedcba9876543210").unwrap();
        config.secret_file = Some(other);
        let refused = TestControl::opened(config, clock(), directory).await;
        let text = refused.err().unwrap().to_string();
        assert!(
            text.contains("not the secret that encrypted the database"),
            "{text}"
        );

        let (mut config, directory) = first.config_beside();
        config.secret_file = Some(directory.path().join("absent"));
        let refused = TestControl::opened(config, clock(), directory).await;
        assert!(matches!(
            refused.err(),
            Some(StartError::Key(KeyError::File { .. }))
        ));
    }
}

/// The database contains no key in clear, and other users cannot read the secret file.
#[tokio::test]
async fn the_database_alone_cannot_sign() {
    let control = TestControl::start("").await;
    let mode = |path: &str| {
        let path = control.directory().join(path);
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    };
    assert_eq!(mode("data/platform.secret"), 0o600);
    assert_eq!(mode("data"), 0o700);
    let mut read = control.app.store.read().await.unwrap();
    let rows = signing_keys::all(&mut read).await.unwrap();
    let relay = platform_secrets::by_name(&mut read, "turn-relay/engine.example").await;
    let relay = relay.unwrap().unwrap().sealed.0;
    let private = control.app.keys.turn_relay("engine.example").unwrap();
    let private = private.private_der().expose();
    assert!(!relay.windows(16).any(|part| part == &private[8..24]));
    let sealed = &rows[0].sealed_private_key.0;
    for clear in [&b"PRIVATE KEY"[..], &[0x30, 0x2e, 0x02, 0x01]] {
        assert!(!sealed.windows(clear.len()).any(|part| part == clear));
    }
    // A key is sealed for its own row, so it cannot be opened under another id.
    let mut tx = control.app.store.begin().await.unwrap();
    let mut moved = rows[0].clone();
    moved.kid = "other".to_owned();
    moved.status = Status::Next;
    assert!(signing_keys::insert(&mut tx, &moved).await.unwrap());
    let now = control.now();
    let kid = &rows[0].kid;
    assert!(
        signing_keys::rotate(&mut tx, kid, "other", now)
            .await
            .unwrap()
    );
    tx.commit().await.unwrap();
    drop(read);
    let refused = control.app.keys.reload(&control.app.store).await;
    assert!(matches!(refused, Err(KeyError::Sealed { .. })));
    assert_eq!(&signer(&control), kid, "the known key stays");
}

/// A key is first published, then signs, then only verifies, and is then deleted.
#[tokio::test]
async fn a_key_is_public_before_and_after_it_signs() {
    for [first, second] in TestControl::pairs("keys: {rotate_days: 0}").await {
        let ada = first.person("ada").await;
        let old = signer(&first);
        let path = "/.well-known/jwks.json";
        let tag = |answer: crate::support::Answer| answer.header("etag").to_owned();
        let before = tag(first.send(Method::GET, path, None, None).await);
        let rotation = rotate(&first.app).await.unwrap();
        assert_eq!(rotation.signs_from, first.now() + LEAD);
        assert_eq!(
            rotate(&second.app).await.unwrap(),
            rotation,
            "one rotation at a time"
        );
        let next = rotation.kid;
        assert_eq!(jwks(&first).await.len(), 2);
        assert!(jwks(&first).await.contains(&next));
        let after = tag(first.send(Method::GET, path, None, None).await);
        assert_ne!(before, after, "caches see that it changed");

        first.clock.advance(LEAD.as_secs() - 1);
        keep(&first).await;
        assert_eq!(signer(&first), old, "it is public and does not sign yet");
        first.clock.advance(1);
        keep(&first).await;
        assert_eq!(signer(&first), next);
        assert_eq!(
            whoami(&first, &ada.token).await,
            200,
            "the old one verifies"
        );
        // The second process has not read the database yet. Its signatures are valid, and it reads
        // the new key later.
        assert_eq!(signer(&second), old);
        let late = second.delegated(&ada, json!({"permissions": null})).await;
        assert_eq!(whoami(&first, &late).await, 200);
        keep(&second).await;
        assert_eq!(signer(&second), next);

        // The private half of the old key is deleted everywhere.
        let mut read = first.app.store.read().await.unwrap();
        let rows = signing_keys::all(&mut read).await.unwrap();
        let row = rows.iter().find(|row| row.kid == old).unwrap();
        assert_eq!(
            (row.status, row.sealed_private_key.0.len()),
            (Status::Retired, 0)
        );
        drop(read);

        // It stays for as long as a personal token that it signed is valid, here without an end.
        first.clock.advance(400 * 24 * 3600);
        keep(&first).await;
        assert_eq!(whoami(&first, &ada.token).await, 200);
        assert_eq!(jwks(&first).await.len(), 2);
        let now = first.now();
        let mut tx = first.app.store.begin().await.unwrap();
        credentials::revoke_all(&mut tx, ada.user, now)
            .await
            .unwrap();
        tx.commit().await.unwrap();
        first.clock.advance(3600);
        keep(&first).await;
        assert_eq!(jwks(&first).await, [next]);
    }
}

/// Tokens that are not stored are valid for an hour. Their key outlives them.
#[tokio::test]
async fn a_key_is_deleted_when_its_last_token_has_expired() {
    let control = TestControl::start("keys: {rotate_days: 0}").await;
    let old = signer(&control);
    rotate(&control.app).await.unwrap();
    control.clock.advance(LEAD.as_secs());
    keep(&control).await;
    control.clock.advance(7199);
    keep(&control).await;
    assert!(jwks(&control).await.contains(&old));
    control.clock.advance(1);
    keep(&control).await;
    assert!(!jwks(&control).await.contains(&old));
}

/// A personal access token without expiry keeps the key that signed it.
#[tokio::test]
async fn the_number_of_keys_is_limited() {
    let control = TestControl::start("keys: {rotate_days: 0}").await;
    for number in 1..32 {
        control.person(&format!("p{number}")).await;
        rotate(&control.app).await.unwrap();
        control.clock.advance(LEAD.as_secs());
        keep(&control).await;
        assert_eq!(jwks(&control).await.len(), number + 1);
    }
    let refused = rotate(&control.app).await;
    assert!(matches!(refused, Err(KeyError::TooMany)), "{refused:?}");
    assert_eq!(jwks(&control).await.len(), 32);
}

/// A token of another process's new key is accepted before the next scheduled read of the database.
/// Unknown key ids trigger a read at a limited rate.
#[tokio::test]
async fn an_unknown_key_triggers_a_rate_limited_read() {
    for [first, second] in TestControl::pairs("").await {
        let ada = first.person("ada").await;
        rotate(&first.app).await.unwrap();
        first.clock.advance(LEAD.as_secs());
        keep(&first).await;
        let new = first.delegated(&ada, json!({"permissions": null})).await;
        let nobodys = TestControl::start("").await;
        let eve = nobodys.person("eve").await;
        assert_eq!(whoami(&second, &eve.token).await, 401);
        // That read has loaded the new key as well.
        assert_eq!(whoami(&second, &new).await, 200);
        // Within seconds no request triggers another read.
        let key_set = second.app.keys.key_set();
        for (seconds, looks) in [(9, false), (1, true)] {
            first.clock.advance(seconds);
            assert_eq!(whoami(&second, &eve.token).await, 401);
            let looked = !Arc::ptr_eq(&key_set, &second.app.keys.key_set());
            assert_eq!(looked, looks);
        }
    }
}

/// However many processes find a rotation due, one new key is created.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_rotate_automatically_and_once() {
    for [first, second] in TestControl::pairs("keys: {rotate_days: 1}").await {
        let old = signer(&first);
        let at_once = async || {
            tokio::join!(keep(&first), keep(&second));
            (jwks(&first).await.len(), jwks(&second).await.len())
        };
        first.clock.advance(23 * 3600 - 1);
        assert_eq!(at_once().await, (1, 1));
        first.clock.advance(1);
        at_once().await;
        assert_eq!(at_once().await, (2, 2));
        first.clock.advance(3600);
        at_once().await;
        assert_eq!(at_once().await, (2, 2));
        assert_eq!(signer(&first), signer(&second));
        assert_ne!(signer(&first), old);
        // Then nothing happens for a day.
        first.clock.advance(22 * 3600);
        at_once().await;
        assert_eq!(at_once().await, (1, 1));
    }
}

/// Keys of the configuration sign as before, and are never rotated.
#[tokio::test]
async fn keys_in_files_sign_in_their_order() {
    let control = TestControl::start("").await;
    let ada = control.person("ada").await;
    let former = signer(&control);
    let file = control.directory().join("own.pem");
    let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    std::fs::write(&file, pair.serialize_pem()).unwrap();
    let (mut config, directory) = control.config_beside();
    config.signing_keys = vec![file];
    config.secret_file = Some(control.app.config.data_dir.join("platform.secret"));
    let clock = Arc::clone(&control.clock);
    let other = TestControl::opened(config, clock, directory).await.unwrap();
    assert_ne!(signer(&other), former);
    assert_eq!(jwks(&other).await, [signer(&other), former]);
    assert_eq!(whoami(&other, &ada.token).await, 200);
    assert!(matches!(
        rotate(&other.app).await,
        Err(KeyError::Configured)
    ));
    keep(&other).await;
    let ecdsa = control.directory().join("ecdsa.pem");
    let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    std::fs::write(&ecdsa, pair.serialize_pem()).unwrap();
    let mut config = other.app.config.clone();
    config.signing_keys = vec![ecdsa];
    let refused = control::open(config, Arc::<ManualClock>::clone(&control.clock)).await;
    assert!(
        refused
            .unwrap_err()
            .to_string()
            .contains("expected an Ed25519 key")
    );
}

/// Keys that an earlier version kept in files stay valid, with their tokens and relays.
#[tokio::test]
async fn keys_of_an_earlier_version_are_imported() {
    let directory = tempfile::tempdir().unwrap();
    let config = configuration(directory.path(), None, "");
    std::fs::create_dir(&config.data_dir).unwrap();
    let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    let write = |name: &str, text: &str| std::fs::write(config.data_dir.join(name), text).unwrap();
    write("signing-key.pem", &pair.serialize_pem());
    write("turn.secret", "0123456789abcdef0123456789abcdef\n");
    let clock = Arc::new(ManualClock::at(START.parse::<Timestamp>().unwrap()));
    let control = TestControl::opened(config, clock, directory).await.unwrap();
    let former = credentials_key(&pair.serialize_pem());
    assert_eq!(signer(&control), former);
    let secret = control.app.keys.turn_secret();
    assert_eq!(secret.expose(), b"0123456789abcdef0123456789abcdef");
    let control = control.restarted().await;
    assert_eq!(signer(&control), former);
}

fn credentials_key(pem: &str) -> String {
    let key = ::credentials::SigningKey::from_pem(pem).unwrap();
    key.thumbprint().unwrap()
}

/// TU-2: an application, written with another implementation, and a relay compute the same
/// credentials.
#[tokio::test]
async fn tu_2_an_application_agrees_with_the_relay_of_its_realm() {
    let control = TestControl::start("").await;
    let path = "/keyrings/turn/engine.example.spki.der.hex";
    let answer = control.send(Method::GET, path, None, None).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("content-type"), "text/plain; charset=utf-8");
    assert_eq!(answer.header("cache-control"), "public, max-age=300");
    assert!(!answer.header("etag").is_empty());
    let hex = answer.text;
    assert!(hex.len() <= 8192 && hex.bytes().all(|byte| byte.is_ascii_hexdigit()));
    let theirs = node::run(
        r"
        import { createPublicKey, diffieHellman, generateKeyPairSync } from 'node:crypto';
        import { readFileSync } from 'node:fs';
        const { hex } = JSON.parse(readFileSync(0));
        const relay = createPublicKey({ key: Buffer.from(hex, 'hex'), format: 'der', type: 'spki' });
        const own = generateKeyPairSync('ec', { namedCurve: relay.asymmetricKeyDetails.namedCurve });
        console.log(JSON.stringify({
            curve: relay.asymmetricKeyDetails.namedCurve,
            point: own.publicKey.export({ format: 'der', type: 'spki' }).subarray(-133).toString('base64'),
            secret: diffieHellman({ privateKey: own.privateKey, publicKey: relay }).toString('base64'),
        }));
        ",
        &json!({"hex": hex}),
    );
    assert_eq!(theirs["curve"], "secp521r1");
    let bytes = |name: &str| STANDARD.decode(theirs[name].as_str().unwrap()).unwrap();
    let private = control.app.keys.turn_relay("engine.example").unwrap();
    let private = aws_lc_rs::agreement::PrivateKey::from_private_key_der(
        &aws_lc_rs::agreement::ECDH_P521,
        private.private_der().expose(),
    )
    .unwrap();
    let point = aws_lc_rs::agreement::UnparsedPublicKey::new(
        &aws_lc_rs::agreement::ECDH_P521,
        bytes("point"),
    );
    let ours = aws_lc_rs::agreement::agree(&private, point, (), |secret| Ok(secret.to_vec()));
    assert_eq!(ours.unwrap(), bytes("secret"));
    for absent in [
        "other.example.spki.der.hex",
        "engine.example",
        "engine.example.pem",
    ] {
        let path = format!("/keyrings/turn/{absent}");
        let answer = control.send(Method::GET, &path, None, None).await;
        assert_eq!(answer.problem(), (404, "not_found".to_owned()), "{absent}");
    }
    let control = TestControl::start("turn: {realm: relay.example}").await;
    for (realm, status) in [("relay.example", 200), ("engine.example", 404)] {
        let path = format!("/keyrings/turn/{realm}.spki.der.hex");
        assert_eq!(
            control.send(Method::GET, &path, None, None).await.status,
            status
        );
    }
}

async fn rotate(app: &App) -> Result<Rotation, KeyError> {
    app.keys.rotate(&app.store, app.now()).await
}

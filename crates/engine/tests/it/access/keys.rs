//! Verification: keys, the cache in front of them, revocation.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use axum::Router;
use axum::http::StatusCode;
use axum::response::Redirect;
use axum::routing::get;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use credentials::{Keyring, Secret};
use engine::access::{JwksError, JwksSource, TokenError, Tokens};
use serde_json::{Value, json};
use testing::within;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::support::{NOW, auth, keyring, pat, signed, token};

#[test]
fn a_verification_is_cached_until_the_token_expires() {
    let tokens = Tokens::new(keyring());
    let text = token(&auth(NOW, 60, json!({})));
    let first = tokens.verify(&text, NOW).unwrap();
    assert!(Arc::ptr_eq(
        &first,
        &tokens.verify(&text, NOW + 59).unwrap()
    ));
    assert!(tokens.verify(&text, NOW + 60).is_err());
}

#[test]
fn two_secrets_are_valid_during_a_rotation_and_cached_tokens_of_the_old_one_end_with_it() {
    let next = "the next secret, of at least 32 bytes";
    let both = keyring().with_secret(&Secret::new(next)).unwrap();
    let tokens = Tokens::new(both);
    let (old, new) = (token(&pat()), signed(&pat(), next));
    assert!(tokens.verify(&old, NOW).is_ok() && tokens.verify(&new, NOW).is_ok());
    let changes = tokens.changes();
    tokens
        .replace_keys(Keyring::new().with_secret(&Secret::new(next)).unwrap())
        .unwrap();
    assert!(changes.has_changed().unwrap());
    assert!(
        tokens.verify(&old, NOW).is_err(),
        "cached a moment ago, no longer valid"
    );
    assert!(tokens.verify(&new, NOW).is_ok());
}

#[test]
fn a_revoked_token_is_refused_immediately_though_cached() {
    let tokens = Tokens::new(keyring());
    let text = token(&pat());
    tokens.verify(&text, NOW).unwrap();
    tokens.set_revoked([credentials::digest(&text)].into());
    assert_eq!(tokens.verify(&text, NOW).unwrap_err(), TokenError::Revoked);
    tokens.set_revoked([].into());
    assert!(tokens.verify(&text, NOW).is_ok());
}

#[test]
fn more_tokens_than_the_cache_holds_are_all_verified() {
    let tokens = Tokens::new(keyring());
    let text = |number: i64| token(&json!({"type": "pat", "userId": "ann", "iat": NOW - number}));
    for number in 0..11_000 {
        assert!(tokens.verify(&text(number), NOW).is_ok());
    }
    assert!(tokens.verify(&text(0), NOW).is_ok());
}

/// A key server. `/jwks` returns the current `document`.
struct KeyServer {
    address: SocketAddr,
    document: Arc<parking_lot::Mutex<(StatusCode, String)>>,
    server: tokio::task::JoinHandle<()>,
}

impl KeyServer {
    async fn start(document: String) -> Self {
        let document = Arc::new(parking_lot::Mutex::new((StatusCode::OK, document)));
        let served = Arc::clone(&document);
        let router = Router::new()
            .route("/jwks", get(move || async move { served.lock().clone() }))
            .route("/moved", get(async || Redirect::temporary("/jwks")));
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self {
            address,
            document,
            server,
        }
    }

    fn source(&self, path: &str) -> JwksSource {
        JwksSource::new(&format!("http://{}{path}", self.address)).unwrap()
    }
}

impl Drop for KeyServer {
    fn drop(&mut self) {
        self.server.abort();
    }
}

fn jwk(key: &Ed25519KeyPair, kid: &str) -> Value {
    let x = URL_SAFE_NO_PAD.encode(key.public_key());
    json!({"kty": "OKP", "crv": "Ed25519", "x": x, "kid": kid, "alg": "EdDSA", "use": "sig"})
}

fn signed_by(key: &Ed25519KeyPair, kid: &str, claims: &Value) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let header = json!({"alg": "EdDSA", "typ": "JWT", "kid": kid});
    let text = format!("{}.{}", part(&header), part(claims));
    let signature = URL_SAFE_NO_PAD.encode(key.sign(text.as_bytes()));
    format!("{text}.{signature}")
}

#[tokio::test]
async fn keys_of_a_jwks_add_to_the_configured_ones_and_survive_failures() {
    let (old, new) = (
        Ed25519KeyPair::generate().unwrap(),
        Ed25519KeyPair::generate().unwrap(),
    );
    let server = KeyServer::start(json!({"keys": [jwk(&old, "old")]}).to_string()).await;
    let tokens = Tokens::new(keyring());
    let (by_old, by_new) = (
        signed_by(&old, "old", &pat()),
        signed_by(&new, "new", &pat()),
    );
    let source = server.source("/jwks");
    assert!(tokens.verify(&by_old, NOW).is_err());
    source.refresh(&tokens).await.unwrap();
    let verdict = tokens.verify(&by_old, NOW).unwrap();
    assert!(tokens.verify(&token(&pat()), NOW).is_ok() && tokens.verify(&by_new, NOW).is_err());

    // Loading the same document again changes nothing and keeps cached verifications.
    source.refresh(&tokens).await.unwrap();
    assert!(Arc::ptr_eq(&verdict, &tokens.verify(&by_old, NOW).unwrap()));

    for (status, document) in [
        (StatusCode::INTERNAL_SERVER_ERROR, String::new()),
        (StatusCode::OK, "no keys".to_owned()),
        (StatusCode::OK, " ".repeat(300 * 1024)),
    ] {
        *server.document.lock() = (status, document);
        assert!(source.refresh(&tokens).await.is_err());
        assert!(
            tokens.verify(&by_old, NOW).is_ok(),
            "the known keys stay effective"
        );
    }

    *server.document.lock() = (
        StatusCode::OK,
        json!({"keys": [jwk(&new, "new")]}).to_string(),
    );
    source.refresh(&tokens).await.unwrap();
    assert!(tokens.verify(&by_old, NOW).is_err() && tokens.verify(&by_new, NOW).is_ok());
    // Reloading the configured keys keeps the fetched keys.
    tokens.replace_keys(Keyring::new()).unwrap();
    assert!(tokens.verify(&by_new, NOW).is_ok() && tokens.verify(&token(&pat()), NOW).is_err());
}

#[tokio::test]
async fn a_key_set_is_fetched_immediately_and_until_the_engine_stops() {
    let key = Ed25519KeyPair::generate().unwrap();
    let server = KeyServer::start(json!({"keys": [jwk(&key, "k")]}).to_string()).await;
    let tokens = Tokens::new(Keyring::new());
    let mut changes = tokens.changes();
    let stop = CancellationToken::new();
    let fresh = tokio::spawn(
        server
            .source("/jwks")
            .keep_fresh(Arc::clone(&tokens), stop.clone()),
    );
    changes.changed().await.unwrap();
    assert!(tokens.verify(&signed_by(&key, "k", &pat()), NOW).is_ok());
    stop.cancel();
    fresh.await.unwrap();
}

#[tokio::test]
async fn keys_are_only_fetched_from_https_or_loopback() {
    for refused in [
        "http://keys.example/jwks",
        "ftp://localhost/",
        "keys.example",
        "http://10.0.0.1/",
        "",
    ] {
        assert!(
            matches!(JwksSource::new(refused), Err(JwksError::Address)),
            "{refused}"
        );
    }
    for taken in [
        "https://keys.example/jwks",
        "http://127.0.0.1/",
        "http://[::1]:8080/",
        "http://localhost/",
    ] {
        assert!(JwksSource::new(taken).is_ok(), "{taken}");
    }
    let server = KeyServer::start(json!({"keys": []}).to_string()).await;
    let redirected = server
        .source("/moved")
        .refresh(&Tokens::new(keyring()))
        .await;
    assert!(matches!(redirected, Err(JwksError::Status(307))));
}

/// A token with an unknown key id triggers a new fetch of the key set. Many such tokens trigger
/// only one fetch in 30 seconds.
async fn tokens_of_unknown_keys_cause_a_fetch_in_30_seconds() {
    let (known, unknown) = (
        Ed25519KeyPair::generate().unwrap(),
        Ed25519KeyPair::generate().unwrap(),
    );
    let (fetched, mut fetches) = tokio::sync::watch::channel(Vec::new());
    let document = json!({"keys": [jwk(&known, "known")]}).to_string();
    let jwks = get(move || {
        fetched.send_modify(|fetches: &mut Vec<Instant>| fetches.push(Instant::now()));
        std::future::ready(document.clone())
    });
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = Router::new().route("/jwks", jwks);
    let serving = async move { axum::serve(listener, router).await };
    let _server = AbortOnDropHandle::new(tokio::spawn(async { serving.await.unwrap() }));
    let tokens = Tokens::new(Keyring::new());
    let source = JwksSource::new(&format!("http://{address}/jwks")).unwrap();
    let stop = CancellationToken::new();
    let fresh = tokio::spawn(source.keep_fresh(Arc::clone(&tokens), stop.clone()));
    let first = fetches.wait_for(|fetches| fetches.len() == 1);
    within("first fetch", first).await.unwrap();
    let stranger = signed_by(&unknown, "unknown", &pat());
    let asking = async {
        loop {
            assert!(tokens.verify(&stranger, NOW).is_err());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let second = fetches.wait_for(|fetches| fetches.len() == 2);
    tokio::select! {
        () = asking => {}
        second = within("second fetch", second) => drop(second.unwrap()),
    }
    let at = fetches.borrow().clone();
    assert!(at[1] - at[0] >= Duration::from_secs(30), "{at:?}");
    stop.cancel();
    fresh.await.unwrap();
}

/// A server that accepts the request and does not answer counts as down.
async fn a_key_server_that_does_not_answer_is_given_up() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let source = JwksSource::new(&format!("http://{address}/jwks")).unwrap();
    let tokens = Tokens::new(keyring());
    let started_at = Instant::now();
    let refreshed = within("end of a fetch", source.refresh(&tokens)).await;
    assert!(matches!(refreshed, Err(JwksError::Fetch(_))));
    assert!(started_at.elapsed() >= Duration::from_secs(10));
    assert!(tokens.verify(&token(&pat()), NOW).is_ok());
}

/// Both cases run together, since each takes its time.
#[tokio::test]
async fn a_key_server_is_queried_seldom_and_requests_do_not_wait_for_it() {
    tokio::join!(
        Box::pin(tokens_of_unknown_keys_cause_a_fetch_in_30_seconds()),
        Box::pin(a_key_server_that_does_not_answer_is_given_up()),
    );
}

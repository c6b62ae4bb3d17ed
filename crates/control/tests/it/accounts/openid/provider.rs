//! A provider in this process whose answers the test chooses.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use http::StatusCode;
use jiff::Timestamp;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use parking_lot::Mutex;
use rcgen::KeyPair;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// Stops when dropped.
pub(super) struct Provider {
    shared: Arc<ProviderState>,
    task: JoinHandle<()>,
}

struct ProviderState {
    issuer: String,
    key: KeyPair,
    new_key: KeyPair,
    claims: Mutex<Value>,
    user_info: Mutex<Value>,
    metadata: Mutex<Value>,
    sign: Mutex<TokenSignature>,
    answer: Mutex<Answer>,
    requests: AtomicUsize,
    key_requests: AtomicUsize,
}

/// Signature of ID tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum TokenSignature {
    /// With the published key.
    Good,
    /// No signature, `alg` is `none`.
    None,
    /// With the public key as a secret.
    PublicKeyAsSecret,
    /// With another key under the id of the published one.
    OtherKey,
    /// With another key under an unpublished id.
    UnknownKid,
    /// With another key, which is published from now on.
    NewKey,
    /// With the published key, and the signature is removed.
    Stripped,
}

/// Behaviour of the token endpoint.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Answer {
    Good,
    /// Every endpoint is down, including discovery.
    Unavailable,
    Slow,
    Huge,
    Redirect,
    NotJson,
    Refused,
}

impl Provider {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let issuer = format!("http://{}", listener.local_addr().unwrap());
        let shared = Arc::new(ProviderState {
            metadata: Mutex::new(json!({
                "issuer": issuer,
                "authorization_endpoint": format!("{issuer}/authorize"),
                "token_endpoint": format!("{issuer}/token"),
                "jwks_uri": format!("{issuer}/keys"),
                "id_token_signing_alg_values_supported": ["ES256"],
            })),
            issuer,
            key: KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap(),
            new_key: KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap(),
            claims: Mutex::new(Value::Null),
            user_info: Mutex::new(Value::Null),
            sign: Mutex::new(TokenSignature::Good),
            answer: Mutex::new(Answer::Good),
            requests: AtomicUsize::new(0),
            key_requests: AtomicUsize::new(0),
        });
        let routes = Router::new()
            .route("/.well-known/openid-configuration", get(metadata))
            .route("/keys", get(keys))
            .route("/token", post(token))
            .route("/userinfo", get(user_info))
            .with_state(Arc::clone(&shared));
        let task = tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
        Self { shared, task }
    }

    pub(super) fn issuer(&self) -> &str {
        &self.shared.issuer
    }

    /// Sets the next ID token: valid for `nonce` at `now`, except for the changes in `claims`,
    /// where `null` removes a claim.
    pub(super) fn set_next_token(&self, now: Timestamp, nonce: &str, claims: &Value) {
        let mut all = json!({
            "iss": self.shared.issuer,
            "aud": "svc",
            "iat": now.as_second(),
            "exp": now.as_second() + 300,
            "nonce": nonce,
        });
        for (name, value) in claims.as_object().unwrap() {
            all[name] = value.clone();
        }
        all.as_object_mut()
            .unwrap()
            .retain(|_, value| !value.is_null());
        *self.shared.claims.lock() = all;
    }

    /// A logout token of these claims, signed as ID tokens are.
    pub(super) fn logout_token(&self, claims: &Value, kind: &str) -> String {
        self.shared.signed(claims, kind)
    }

    /// Sets the answer of the userinfo endpoint, which the metadata names from now on.
    pub(super) fn set_user_info(&self, claims: Value) {
        let endpoint = format!("{}/userinfo", self.shared.issuer);
        self.set_metadata("userinfo_endpoint", json!(endpoint));
        *self.shared.user_info.lock() = claims;
    }

    /// Sets another value in the metadata.
    pub(super) fn set_metadata(&self, name: &str, value: Value) {
        self.shared.metadata.lock()[name] = value;
    }

    pub(super) fn signs(&self, sign: TokenSignature) {
        *self.shared.sign.lock() = sign;
    }

    pub(super) fn answers(&self, answer: Answer) {
        *self.shared.answer.lock() = answer;
    }

    /// Requests of any kind so far.
    pub(super) fn requests(&self) -> usize {
        self.shared.requests.load(Ordering::SeqCst)
    }

    /// Requests for the keys so far.
    pub(super) fn key_requests(&self) -> usize {
        self.shared.key_requests.load(Ordering::SeqCst)
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn metadata(State(shared): State<Arc<ProviderState>>) -> Response {
    shared.requests.fetch_add(1, Ordering::SeqCst);
    if *shared.answer.lock() == Answer::Unavailable {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    axum::Json(shared.metadata.lock().clone()).into_response()
}

async fn user_info(State(shared): State<Arc<ProviderState>>) -> Response {
    shared.requests.fetch_add(1, Ordering::SeqCst);
    axum::Json(shared.user_info.lock().clone()).into_response()
}

async fn keys(State(shared): State<Arc<ProviderState>>) -> Response {
    shared.requests.fetch_add(1, Ordering::SeqCst);
    shared.key_requests.fetch_add(1, Ordering::SeqCst);
    let mut keys = vec![jwk(&shared.key, "1"), json!({"kty": "of the future"})];
    if *shared.sign.lock() == TokenSignature::NewKey {
        keys.push(jwk(&shared.new_key, "2"));
    }
    axum::Json(json!({"keys": keys})).into_response()
}

async fn token(State(shared): State<Arc<ProviderState>>) -> Response {
    shared.requests.fetch_add(1, Ordering::SeqCst);
    let answer = *shared.answer.lock();
    match answer {
        Answer::Good => {}
        Answer::Unavailable => return StatusCode::SERVICE_UNAVAILABLE.into_response(),
        Answer::Slow => std::future::pending().await,
        Answer::Huge => {
            let piece = || Ok::<_, std::io::Error>(bytes::Bytes::from(vec![b' '; 64 * 1024]));
            let endless = futures_util::stream::repeat_with(piece);
            return Body::from_stream(endless).into_response();
        }
        Answer::Redirect => {
            return (StatusCode::TEMPORARY_REDIRECT, [("location", "/token")]).into_response();
        }
        Answer::NotJson => return "id_token=x".into_response(),
        Answer::Refused => {
            let body = axum::Json(json!({"error": "invalid_grant"}));
            return (StatusCode::BAD_REQUEST, body).into_response();
        }
    }
    let body = json!({
        "id_token": shared.id_token(),
        "access_token": "of the userinfo endpoint",
        "token_type": "Bearer",
    });
    axum::Json(body).into_response()
}

impl ProviderState {
    fn id_token(&self) -> String {
        let claims = self.claims.lock().clone();
        self.signed(&claims, "JWT")
    }

    fn signed(&self, claims: &Value, kind: &str) -> String {
        let sign = *self.sign.lock();
        let mut header = Header::new(Algorithm::ES256);
        header.typ = Some(kind.to_owned());
        header.kid = Some("1".to_owned());
        let with = |header: &Header, key: &KeyPair| {
            let key = EncodingKey::from_ec_der(&key.serialize_der());
            jsonwebtoken::encode(header, claims, &key).unwrap()
        };
        match sign {
            TokenSignature::Good => with(&header, &self.key),
            TokenSignature::OtherKey => with(&header, &self.new_key),
            TokenSignature::UnknownKid => {
                header.kid = Some("3".to_owned());
                with(&header, &self.new_key)
            }
            TokenSignature::NewKey => {
                header.kid = Some("2".to_owned());
                with(&header, &self.new_key)
            }
            TokenSignature::Stripped => {
                let token = with(&header, &self.key);
                token[..=token.rfind('.').unwrap()].to_owned()
            }
            TokenSignature::PublicKeyAsSecret => {
                header.alg = Algorithm::HS256;
                let key = EncodingKey::from_secret(self.key.public_key_pem().as_bytes());
                jsonwebtoken::encode(&header, claims, &key).unwrap()
            }
            TokenSignature::None => {
                let part = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
                let header = json!({"alg": "none", "kid": "1"});
                format!("{}.{}.", part(&header), part(claims))
            }
        }
    }
}

/// The public half. The point is `04`, then the two coordinates (SEC 1 section 2.3.3).
fn jwk(key: &KeyPair, kid: &str) -> Value {
    let point = key.public_key_raw();
    let coordinate = |from: usize| BASE64_URL_SAFE_NO_PAD.encode(&point[from..from + 32]);
    json!({
        "kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "kid": kid,
        "x": coordinate(1), "y": coordinate(33),
    })
}

//! The page to which engines send browsers to sign in.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use api::link::{SIGN_IN_TYPE, SignIn};
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::{Html, IntoResponse, Response};
use jsonwebtoken::{Algorithm, Header};
use serde_json::{Value, json};

use super::{FakePlatform, KID, PlatformState};
use crate::fixtures::unix_seconds;

/// The user that signs in on the page.
const ANN: &str = "usr_ann";

impl FakePlatform {
    /// The code of a sign-in, with these claims and defaults for the required ones: for `usr_ann`,
    /// valid for a minute.
    pub fn code(&self, claims: Value) -> String {
        self.shared.code(claims, SIGN_IN_TYPE)
    }

    /// As [`Self::code`], with another `typ`.
    pub fn code_as(&self, typ: &str, claims: Value) -> String {
        self.shared.code(claims, typ)
    }
}

impl PlatformState {
    fn code(&self, mut claims: Value, typ: &str) -> String {
        let now = unix_seconds();
        let defaults = json!({
            "iss": format!("http://{}", self.address),
            "sub": ANN,
            "jti": format!("tok_{}", number()),
            "iat": now,
            "exp": now + 60,
            "name": "Ann",
            "email": "ann@example.com",
        });
        let object = claims.as_object_mut().expect("an object of claims");
        for (name, value) in defaults.as_object().into_iter().flatten() {
            object.entry(name.clone()).or_insert_with(|| value.clone());
        }
        let mut header = Header::new(Algorithm::EdDSA);
        header.typ = Some(typ.to_owned());
        header.kid = Some(KID.to_owned());
        jsonwebtoken::encode(&header, &claims, &self.key).expect("a code")
    }
}

/// Shows the sign-in form.
pub(super) async fn page() -> Html<&'static str> {
    Html(
        "<!doctype html><html lang=en><title>Sign in</title>\
         <link rel=icon href=\"data:,\"><form method=post>\
         <button>Sign in as Ann</button></form>",
    )
}

/// Redirects the browser back with a code.
pub(super) async fn sign_in(
    State(shared): State<Arc<PlatformState>>,
    Query(requested): Query<SignIn>,
) -> Response {
    let SignIn {
        host, nonce, state, ..
    } = requested;
    let claims = json!({"aud": format!("https://{host}"), "nonce": nonce});
    let code = shared.code(claims, SIGN_IN_TYPE);
    let address = format!("https://{host}/.well-known/svc/callback?code={code}&state={state}");
    (StatusCode::SEE_OTHER, [(LOCATION, address)]).into_response()
}

/// A number that is unique in this process.
fn number() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    format!("{:016x}", NEXT.fetch_add(1, Ordering::Relaxed))
}

//! Options that a page passes to the browser's passkey API (Web Authentication level 3, sections
//! 5.4 and 5.5), in the JSON form of section 5.1 with bytes as base64url.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64URL;
use serde_json::{Value, json};
use store::passkeys::{self, Passkey};
use types::id::UserId;
use webauthn::ALGORITHMS;

use super::relying_party;
use crate::app::App;
use crate::http_api::problem::HandlerResult;
use crate::people::challenge::{self, LIFETIME, Purpose};
use crate::people::session::SignedIn;

/// Options for a new passkey. Authenticators do not create a second passkey for a user who has one
/// there.
pub async fn creation(app: &App, who: &SignedIn) -> HandlerResult<Value> {
    let party = relying_party(app)?;
    let bound_to = who.session.id.to_string();
    let challenge = challenge::issue(app, Purpose::Register, bound_to.as_bytes())?;
    let known = passkeys::of_user(&mut *app.store.read().await?, who.user.id).await?;
    let algorithms: Vec<Value> = ALGORITHMS
        .iter()
        .map(|number| json!({"type": "public-key", "alg": number}))
        .collect();
    Ok(json!({
        "rp": {"id": party.id(), "name": party.id()},
        "user": {
            // The id is not the address: authenticators do not show it, but store it unprotected.
            "id": BASE64URL.encode(who.user.id.to_string()),
            "name": who.user.email,
            "displayName": who.user.name,
        },
        "challenge": BASE64URL.encode(challenge),
        "pubKeyCredParams": algorithms,
        "timeout": LIFETIME.as_millis(),
        "excludeCredentials": descriptors(&known),
        "authenticatorSelection": {"residentKey": "preferred", "userVerification": "preferred"},
        "attestation": "none",
    }))
}

/// Options for using a passkey: one of the user's or, if the user is not known yet, any that the
/// browser has for this platform.
pub async fn request(
    app: &App,
    purpose: Purpose,
    bound_to: &[u8],
    user: Option<UserId>,
) -> HandlerResult<Value> {
    let party = relying_party(app)?;
    let challenge = challenge::issue(app, purpose, bound_to)?;
    let known = match user {
        Some(user) => passkeys::of_user(&mut *app.store.read().await?, user).await?,
        None => Vec::new(),
    };
    // As the only factor, a passkey must verify the user. After a password it need not.
    let verification = if purpose == Purpose::SignIn {
        "required"
    } else {
        "preferred"
    };
    Ok(json!({
        "challenge": BASE64URL.encode(challenge),
        "timeout": LIFETIME.as_millis(),
        "rpId": party.id(),
        "allowCredentials": descriptors(&known),
        "userVerification": verification,
    }))
}

fn descriptors(passkeys: &[Passkey]) -> Vec<Value> {
    passkeys
        .iter()
        .map(
            |passkey| json!({"type": "public-key", "id": BASE64URL.encode(&passkey.credential_id)}),
        )
        .collect()
}

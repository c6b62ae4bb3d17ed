//! Challenges for passkeys. Each is made by the platform for one purpose and one browser. It is
//! valid for five minutes and can be used once.
//!
//! Unanswered challenges are not stored, so that strangers cannot fill the database by requesting
//! them. A challenge consists of its expiry, a nonce, and a MAC over both, the purpose and the
//! browser. Only answered challenges are stored, until they expire ([`spend`]).

use aws_lc_rs::{digest, hmac};
use jiff::{SignedDuration, Timestamp};
use store::{SecretHash, Tx, used_challenges};

use super::session::later;
use crate::app::App;
use crate::http_api::problem::HandlerResult;
use crate::runtime::random;

/// Purpose of a challenge. An answer for one purpose is not valid for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Registering a passkey.
    Register,
    /// Signing in.
    SignIn,
    /// The second factor, after a password.
    SecondFactor,
    /// Authenticating again as the signed-in user.
    Confirm,
}

/// A challenge of the platform that a browser has answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Challenge {
    bytes: Vec<u8>,
    expires_at: Timestamp,
}

/// Issues a challenge to the browser that is `bound_to` a session or a cookie.
pub fn issue(app: &App, purpose: Purpose, bound_to: &[u8]) -> HandlerResult<Vec<u8>> {
    let ends = later(app.now(), LIFETIME).as_millisecond().to_be_bytes();
    let mut bytes = [&ends[..], &random::bytes::<NONCE>()?].concat();
    let tag = hmac::sign(&derive_key(app, purpose)?, &[&bytes, bound_to].concat());
    bytes.extend_from_slice(tag.as_ref());
    Ok(bytes)
}

/// Returns the challenge if it was issued to this browser for this purpose and has not expired.
pub fn verify(
    app: &App,
    purpose: Purpose,
    bound_to: &[u8],
    bytes: &[u8],
) -> HandlerResult<Option<Challenge>> {
    let Some((head, tag)) = bytes.split_at_checked(HEAD) else {
        return Ok(None);
    };
    let key = derive_key(app, purpose)?;
    if hmac::verify(&key, &[head, bound_to].concat(), tag).is_err() {
        return Ok(None);
    }
    let ends = head
        .first_chunk()
        .map(|ends| Timestamp::from_millisecond(i64::from_be_bytes(*ends)));
    Ok(match ends {
        Some(Ok(ends)) if app.now() < ends => Some(Challenge {
            bytes: bytes.to_vec(),
            expires_at: ends,
        }),
        _ => None,
    })
}

/// Uses a challenge. False if it was answered before.
pub async fn spend(tx: &mut Tx, challenge: &Challenge) -> HandlerResult<bool> {
    let mut hash = [0; 32];
    let digest = digest::digest(&digest::SHA256, &challenge.bytes);
    for (byte, given) in hash.iter_mut().zip(digest.as_ref()) {
        *byte = *given;
    }
    Ok(used_challenges::spend(tx, SecretHash(hash), challenge.expires_at).await?)
}

fn derive_key(app: &App, purpose: Purpose) -> HandlerResult<hmac::Key> {
    let purpose = match purpose {
        Purpose::Register => "passkey-register",
        Purpose::SignIn => "passkey-sign-in",
        Purpose::SecondFactor => "passkey-second-factor",
        Purpose::Confirm => "passkey-confirm",
    };
    let key = app.keys.derive(purpose)?;
    Ok(hmac::Key::new(hmac::HMAC_SHA256, &key))
}

/// Long enough to find a security key and to type its PIN. Browsers time out sooner.
pub const LIFETIME: SignedDuration = SignedDuration::from_mins(5);

/// Number of random bytes that Web Authentication (level 3, section 13.4.3) requires.
const NONCE: usize = 16;

/// The expiry in milliseconds since 1970, and the nonce.
const HEAD: usize = 8 + NONCE;

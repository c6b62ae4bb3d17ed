//! Challenges that passkeys answer: ours, for one purpose and one browser, for five minutes, once.
//!
//! A challenge is not kept when it is given, so that strangers who ask for them cannot fill the
//! database: it is its end, a nonce, and a MAC over both, over the purpose and over the browser. What
//! is kept, until its end, is that it was answered ([`spend`]).

use aws_lc_rs::{digest, hmac};
use jiff::{SignedDuration, Timestamp};
use store::{SecretHash, Tx, used_challenges};

use super::session::later;
use crate::app::App;
use crate::problem::Answer;
use crate::random;

/// What a challenge is for; an answer for one purpose is worth nothing for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Registering a passkey.
    Register,
    /// Signing in.
    SignIn,
    /// The second factor, after a password.
    SecondFactor,
    /// Proving again to be who one is.
    Confirm,
}

/// One of our challenges, as it came back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Challenge {
    bytes: Vec<u8>,
    ends: Timestamp,
}

/// Gives a challenge to the browser that is `bound_to` a session or a cookie.
pub fn issue(app: &App, purpose: Purpose, bound_to: &[u8]) -> Answer<Vec<u8>> {
    let ends = later(app.now(), LIFETIME).as_millisecond().to_be_bytes();
    let mut bytes = [&ends[..], &random::bytes::<NONCE>()?].concat();
    let tag = hmac::sign(&key(app, purpose)?, &[&bytes, bound_to].concat());
    bytes.extend_from_slice(tag.as_ref());
    Ok(bytes)
}

/// The challenge, if it is one that this browser got for this purpose, and not too old.
pub fn recognise(
    app: &App,
    purpose: Purpose,
    bound_to: &[u8],
    bytes: &[u8],
) -> Answer<Option<Challenge>> {
    let Some((head, tag)) = bytes.split_at_checked(HEAD) else {
        return Ok(None);
    };
    let key = key(app, purpose)?;
    if hmac::verify(&key, &[head, bound_to].concat(), tag).is_err() {
        return Ok(None);
    }
    let ends = head
        .first_chunk()
        .map(|ends| Timestamp::from_millisecond(i64::from_be_bytes(*ends)));
    Ok(match ends {
        Some(Ok(ends)) if app.now() < ends => Some(Challenge {
            bytes: bytes.to_vec(),
            ends,
        }),
        _ => None,
    })
}

/// Uses a challenge up. False when it was answered before.
pub async fn spend(tx: &mut Tx, challenge: &Challenge) -> Answer<bool> {
    let mut hash = [0; 32];
    let digest = digest::digest(&digest::SHA256, &challenge.bytes);
    for (byte, given) in hash.iter_mut().zip(digest.as_ref()) {
        *byte = *given;
    }
    Ok(used_challenges::spend(tx, SecretHash(hash), challenge.ends).await?)
}

fn key(app: &App, purpose: Purpose) -> Answer<hmac::Key> {
    let purpose = match purpose {
        Purpose::Register => "passkey-register",
        Purpose::SignIn => "passkey-sign-in",
        Purpose::SecondFactor => "passkey-second-factor",
        Purpose::Confirm => "passkey-confirm",
    };
    let key = app.keys.derive(purpose)?;
    Ok(hmac::Key::new(hmac::HMAC_SHA256, &key))
}

/// Long enough to look for a key and to type its PIN; browsers give up sooner.
pub const LIFETIME: SignedDuration = SignedDuration::from_mins(5);

/// Random bytes: what Web Authentication (level 3, section 13.4.3) asks for.
const NONCE: usize = 16;

/// The end in milliseconds since 1970, and the nonce.
const HEAD: usize = 8 + NONCE;

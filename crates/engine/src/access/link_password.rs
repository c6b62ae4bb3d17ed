//! Link passwords that visitors present with HTTP Basic authentication (RFC 7617).
//!
//! A decision needs the result of a check before it is made, because the check takes tens of
//! milliseconds and runs off the workers. [`decide`](fn@super::decide) therefore asks for it
//! ([`Outcome::VerifyPassword`](super::Outcome::VerifyPassword)), and the request is decided again
//! with the result.

#[cfg(test)]
mod tests;

use std::fmt;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use credentials::{LinkPasswords, Secret};
use daemon::connections::source_network;
use daemon::rate_limit::Buckets;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use super::bearer::split_scheme;
use super::cache::Cache;
use super::digest::Digest;
use super::policy::TunnelPolicy;
use crate::random::random_bytes;

/// The state of the link password in a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PasswordProof {
    /// No Basic credentials, or a tunnel without link passwords: then they are application data.
    #[default]
    Absent,
    /// Basic credentials that are not well formed, or beside another `Authorization`.
    Malformed,
    /// The password has to be checked.
    Unchecked,
    /// The password is right.
    Valid,
    /// The user name or the password is wrong.
    Wrong,
    /// The source has sent too many wrong passwords.
    Limited {
        /// Seconds until the next attempt.
        retry_after: u32,
    },
    /// Too many passwords wait for their check.
    Busy,
}

/// The credentials of a visitor, not checked.
#[derive(Clone, PartialEq, Eq)]
pub struct BasicCredentials {
    user: Box<str>,
    password: Secret,
}

/// `Authorization` of a request to a tunnel with link passwords.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Basic {
    /// No header, or another scheme.
    Absent,
    /// Credentials that are not well formed, or next to another `Authorization`.
    Malformed,
    /// One user name and one password.
    Presented(BasicCredentials),
}

/// A link password that has to be checked before its request is decided.
pub struct PasswordCheck {
    key: Digest,
    passwords: Arc<LinkPasswords>,
    presented: BasicCredentials,
    source: IpAddr,
}

/// The result of a check. It applies to the same credentials at tunnels with the same passwords.
#[derive(Clone, Copy, Debug)]
pub struct PasswordVerdict {
    key: Digest,
    proof: PasswordProof,
}

/// Checks link passwords, a few at a time, and keeps the results for some minutes.
///
/// A request with a known result takes no lock. The key of a result is a keyed hash of the tunnel's
/// hashes and the presented credentials, so a changed password has no result.
#[derive(Debug)]
pub struct PasswordChecks {
    key: hmac::Key,
    /// The times until which right passwords are known.
    valid: Cache<Instant>,
    /// The same for wrong passwords. They are separate, so that guesses evict no right password.
    wrong: Cache<Instant>,
    /// Wrong passwords by source.
    sources: Buckets<IpAddr>,
    running: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
}

impl Basic {
    /// Reads the values of all `Authorization` fields. The scheme's case does not matter (RFC 9110,
    /// 11.1).
    pub fn from_values<'a>(values: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut found = None;
        let mut count = 0_usize;
        for value in values {
            count += 1;
            let (scheme, rest) = split_scheme(value);
            if scheme.eq_ignore_ascii_case(b"basic") {
                found = Some(rest);
            }
        }
        match found {
            None => Self::Absent,
            Some(encoded) if count == 1 => {
                BasicCredentials::decode(encoded).map_or(Self::Malformed, Self::Presented)
            }
            Some(_) => Self::Malformed,
        }
    }
}

impl BasicCredentials {
    /// Decodes the credentials: Base64 of `user:password`, in UTF-8 (RFC 7617 section 2).
    fn decode(encoded: &[u8]) -> Option<Self> {
        if encoded.len() > MAX_ENCODED_BYTES {
            return None;
        }
        let decoded = Secret::new(STANDARD.decode(encoded.trim_ascii()).ok()?);
        let colon = decoded.expose().iter().position(|byte| *byte == b':')?;
        let (user, rest) = decoded.expose().split_at_checked(colon)?;
        let (_colon, password) = rest.split_first()?;
        Some(Self {
            user: std::str::from_utf8(user).ok()?.into(),
            password: Secret::new(password),
        })
    }
}

impl PasswordChecks {
    /// Creates the checks of an engine; at most `at_once` run at the same time.
    pub fn new(at_once: usize) -> Self {
        Self {
            key: hmac::Key::new(hmac::HMAC_SHA256, &random_bytes::<32>()),
            valid: Cache::new(KNOWN_PASSWORDS),
            wrong: Cache::new(KNOWN_PASSWORDS),
            sources: Buckets::new(WRONG_PER_MINUTE),
            running: Arc::new(Semaphore::new(at_once.max(1))),
            waiting: Arc::new(Semaphore::new(MAX_WAITING)),
        }
    }

    /// The state of the password in a request from `source`, and the check that is required if it is
    /// [`PasswordProof::Unchecked`]. `verdict` is the result of an earlier check for this request.
    pub fn state(
        &self,
        policy: &TunnelPolicy,
        basic: Basic,
        source: IpAddr,
        verdict: Option<&PasswordVerdict>,
    ) -> (PasswordProof, Option<PasswordCheck>) {
        let presented = match basic {
            Basic::Absent => return (PasswordProof::Absent, None),
            Basic::Malformed => return (PasswordProof::Malformed, None),
            Basic::Presented(presented) => presented,
        };
        // Such a tunnel cannot be opened. No password is right there.
        let Some(passwords) = policy.link_passwords() else {
            return (PasswordProof::Wrong, None);
        };
        let key = self.key_of(passwords, &presented);
        if let Some(verdict) = verdict {
            // After the check, the name may belong to a tunnel with other passwords.
            let is_same = verdict.key == key;
            let proof = is_same.then_some(verdict.proof);
            return (proof.unwrap_or(PasswordProof::Busy), None);
        }
        if let Some(known) = self.known(&key, Instant::now()) {
            return (known, None);
        }
        let check = PasswordCheck {
            key,
            passwords: Arc::clone(passwords),
            presented,
            source: source_network(source),
        };
        (PasswordProof::Unchecked, Some(check))
    }

    /// Checks a password. Cancel-safe: an abandoned check runs to its end and keeps its place until
    /// then, and counts as wrong for its source.
    pub async fn verify(&self, check: PasswordCheck) -> PasswordVerdict {
        let key = check.key;
        let proof = self.check(check).await;
        PasswordVerdict { key, proof }
    }

    async fn check(&self, check: PasswordCheck) -> PasswordProof {
        let Ok(queued) = Arc::clone(&self.waiting).try_acquire_owned() else {
            return PasswordProof::Busy;
        };
        let Ok(running) = Arc::clone(&self.running).acquire_owned().await else {
            return PasswordProof::Busy;
        };
        // Another request with the same credentials may have been checked in the meantime.
        if let Some(known) = self.known(&check.key, Instant::now()) {
            return known;
        }
        let PasswordCheck {
            key,
            passwords,
            presented,
            source,
        } = check;
        // Taken before and refunded after, so that concurrent requests cannot exceed the rate.
        if let Err(empty) = self.sources.take(source, Instant::now()) {
            let retry_after = empty.wait_seconds.max(1);
            return PasswordProof::Limited { retry_after };
        }
        let checked = spawn_blocking(move || {
            let _places = (queued, running);
            passwords.verify(&presented.user, &presented.password)
        });
        let checked = checked.await;
        let now = Instant::now();
        match checked {
            Ok(true) => {
                self.sources.refund(source, now);
                self.valid.put(key, now + VALID_FOR);
                PasswordProof::Valid
            }
            Ok(false) => {
                self.wrong.put(key, now + WRONG_FOR);
                PasswordProof::Wrong
            }
            // The engine stops.
            Err(_) => PasswordProof::Busy,
        }
    }

    /// The result of an earlier check.
    fn known(&self, key: &Digest, now: Instant) -> Option<PasswordProof> {
        let is_known = |cache: &Cache<Instant>| cache.get(key).is_some_and(|until| now < until);
        if is_known(&self.valid) {
            Some(PasswordProof::Valid)
        } else if is_known(&self.wrong) {
            Some(PasswordProof::Wrong)
        } else {
            None
        }
    }

    fn key_of(&self, passwords: &LinkPasswords, presented: &BasicCredentials) -> Digest {
        let mut context = hmac::Context::with_key(&self.key);
        context.update(passwords.fingerprint());
        // The length is included, so that two different pairs never have the same encoding.
        context.update(&(presented.user.len() as u64).to_be_bytes());
        context.update(presented.user.as_bytes());
        context.update(presented.password.expose());
        let mut key = Digest::default();
        for (to, from) in key.iter_mut().zip(context.sign().as_ref()) {
            *to = *from;
        }
        key
    }
}

/// Prints neither the name nor the password.
impl fmt::Debug for BasicCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BasicCredentials")
    }
}

impl fmt::Debug for PasswordCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PasswordCheck")
    }
}

/// Checks that run at the same time. With the largest accepted hashes they take 128 MiB.
pub const CHECKS_AT_ONCE: usize = 2;

/// Checks that run or wait. A browser may send a hundred requests at once when the result of an
/// earlier check has expired; the first check answers all of them.
const MAX_WAITING: usize = 256;

/// Wrong passwords of a source in a minute: more than a person types, and far too few to guess.
const WRONG_PER_MINUTE: NonZeroU32 = NonZeroU32::MIN.saturating_add(19);

/// Results of each kind: a visitor needs one.
const KNOWN_PASSWORDS: usize = 8_192;

/// Time after which a right password is checked again.
const VALID_FOR: Duration = Duration::from_mins(10);

/// Time after which a wrong password is checked again.
const WRONG_FOR: Duration = Duration::from_mins(1);

/// Base64 of the longest accepted name and password, and a few spaces.
const MAX_ENCODED_BYTES: usize = 600;

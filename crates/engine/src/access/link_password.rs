//! Link passwords that visitors present with HTTP Basic authentication (RFC 7617).
//!
//! A check takes tens of milliseconds and runs off the workers, so a decision cannot wait for it.
//! [`decide`](fn@super::decide) therefore requires the check
//! ([`Outcome::VerifyPassword`](super::Outcome::VerifyPassword)), and after the check the request
//! is decided again with the result.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
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
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::bearer::split_scheme;
use super::cache::Cache;
use super::digest::Digest;
use super::policy::TunnelPolicy;
use crate::clock::Clock;
use crate::random::random_bytes;

/// The state of the link password in a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PasswordProof {
    /// No Basic credentials, or a tunnel without link passwords, at which Basic credentials are
    /// application data.
    #[default]
    Absent,
    /// Basic credentials that are not well formed, or next to another `Authorization`.
    Malformed,
    /// The password has to be checked.
    Unchecked,
    /// The password is right.
    Valid,
    /// The user name or the password is wrong.
    Wrong,
    /// The source has sent too many wrong passwords to the tunnel.
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
pub enum BasicAuth {
    /// No header, or another scheme.
    Absent,
    /// Credentials that are not well formed, or next to another `Authorization`.
    Malformed,
    /// One user name and one password.
    Presented(BasicCredentials),
}

/// A link password that has to be checked before its request is decided.
pub struct PasswordCheck {
    keys: ResultKeys,
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

/// Checks link passwords, a few at a time, and keeps the results.
///
/// A request with a known result takes no lock. The key of a result is a keyed hash of the tunnel's
/// hashes and the presented credentials. A stored result therefore stays correct, and there is none
/// for a changed password.
///
/// Tunnels have separate limits of checks and of wrong passwords, so that the visitors of one
/// tunnel cannot lock out those of another. Tunnels with the same names and hashes share them.
#[derive(Debug)]
pub struct PasswordChecks {
    key: hmac::Key,
    results: Arc<Results>,
    /// Queues with checks that run or wait, by the fingerprint of the link passwords.
    tunnels: Mutex<HashMap<Digest, TunnelQueue>>,
    running: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
}

/// The checks of one tunnel.
#[derive(Debug)]
struct TunnelQueue {
    /// One slot: a tunnel has at most one check in the queue of the engine.
    running: Arc<Semaphore>,
    /// Checks that run or wait.
    waiting: Arc<Semaphore>,
}

/// The results of checks, and the wrong passwords of each source.
#[derive(Debug)]
struct Results {
    /// Right passwords. The key contains the name of the entry instead of the name that was sent,
    /// so a password that is valid for every name is stored once.
    right: Cache<()>,
    /// Wrong passwords. The key contains the name that was sent. They are separate, so that guesses
    /// evict no right password.
    wrong: Cache<()>,
    /// Attempts that each source has left.
    guesses: Buckets<Guesser>,
    /// The time for the attempts.
    clock: Arc<dyn Clock>,
}

/// The keys under which the results of a check are stored.
#[derive(Clone, Copy)]
struct ResultKeys {
    /// The key of a right password, with the name of the entry.
    right: Digest,
    /// The key of a wrong password, with the name that was sent. If the key had the name of the
    /// entry, the time of a response would show which names have an entry.
    wrong: Digest,
}

/// A source that sends passwords, and the fingerprint of the link passwords of the tunnel.
type Guesser = (IpAddr, Digest);

impl BasicAuth {
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
    pub fn new(at_once: usize, clock: Arc<dyn Clock>) -> Self {
        Self {
            key: hmac::Key::new(hmac::HMAC_SHA256, &random_bytes::<32>()),
            results: Arc::new(Results {
                right: Cache::new(KNOWN_PASSWORDS),
                wrong: Cache::new(KNOWN_PASSWORDS),
                guesses: Buckets::new(WRONG_PER_MINUTE),
                clock,
            }),
            tunnels: Mutex::default(),
            running: Arc::new(Semaphore::new(at_once.max(1))),
            waiting: Arc::new(Semaphore::new(MAX_WAITING)),
        }
    }

    /// The state of the password in a request from `source`, and the check that is required if it
    /// is [`PasswordProof::Unchecked`]. `verdict` is the result of an earlier check for this
    /// request.
    pub fn state(
        &self,
        policy: &TunnelPolicy,
        basic: BasicAuth,
        source: IpAddr,
        verdict: Option<&PasswordVerdict>,
    ) -> (PasswordProof, Option<PasswordCheck>) {
        let presented = match basic {
            BasicAuth::Absent => return (PasswordProof::Absent, None),
            BasicAuth::Malformed => return (PasswordProof::Malformed, None),
            BasicAuth::Presented(presented) => presented,
        };
        // A tunnel that requires a link password but has none cannot be opened. If there were one,
        // every password would be wrong.
        let Some(passwords) = policy.link_passwords() else {
            return (PasswordProof::Wrong, None);
        };
        let keys = self.keys_of(passwords, &presented);
        if let Some(verdict) = verdict {
            // During the check, the host name may have moved to a tunnel with other passwords.
            let is_same = verdict.key == keys.wrong;
            let proof = is_same.then_some(verdict.proof);
            return (proof.unwrap_or(PasswordProof::Busy), None);
        }
        if let Some(known) = self.results.get(&keys) {
            return (known, None);
        }
        let check = PasswordCheck {
            keys,
            passwords: Arc::clone(passwords),
            presented,
            source: source_network(source),
        };
        (PasswordProof::Unchecked, Some(check))
    }

    /// Checks a password. Cancel-safe: a check that has started runs to its end and keeps its slot
    /// until then, and its result is kept.
    pub async fn verify(&self, check: PasswordCheck) -> PasswordVerdict {
        let key = check.keys.wrong;
        let proof = self.check(check).await;
        PasswordVerdict { key, proof }
    }

    async fn check(&self, check: PasswordCheck) -> PasswordProof {
        let fingerprint = *check.passwords.fingerprint();
        let guesser = (check.source, fingerprint);
        // This precedes the wait for a slot, so that a source without attempts takes no slot from
        // others.
        let now = || self.results.clock.instant();
        let quota = self.results.guesses.peek(&guesser, now());
        if quota.wait_seconds > 0 {
            let retry_after = quota.wait_seconds;
            return PasswordProof::Limited { retry_after };
        }
        let Some(slots) = self.acquire_slots(&fingerprint).await else {
            return PasswordProof::Busy;
        };
        // Another request with the same credentials may have been checked in the meantime.
        if let Some(known) = self.results.get(&check.keys) {
            return known;
        }
        // Each check takes an attempt at its start, and a right password refunds it, so that
        // concurrent requests cannot exceed the rate.
        if let Err(empty) = self.results.guesses.take(guesser, now()) {
            let retry_after = empty.wait_seconds.max(1);
            return PasswordProof::Limited { retry_after };
        }
        let results = Arc::clone(&self.results);
        let checked = spawn_blocking(move || {
            let proof = results.check(&check, guesser);
            drop(slots);
            proof
        });
        // An error means that the engine stops.
        checked.await.unwrap_or(PasswordProof::Busy)
    }

    /// Waits until a check may run. `None` if too many checks wait, or if it takes too long.
    async fn acquire_slots(&self, fingerprint: &Digest) -> Option<[OwnedSemaphorePermit; 4]> {
        let waiting = Arc::clone(&self.waiting).try_acquire_owned().ok()?;
        let (waiting_at_tunnel, tunnel) = self.enter_queue(fingerprint)?;
        let slots = async {
            // The slot of the tunnel comes first, so that the other checks of the tunnel wait for
            // it and not in the queue of the engine.
            let at_tunnel = tunnel.acquire_owned().await.ok()?;
            let at_engine = Arc::clone(&self.running).acquire_owned().await.ok()?;
            Some([waiting, waiting_at_tunnel, at_tunnel, at_engine])
        };
        timeout(MAX_WAIT, slots).await.ok()?
    }

    /// Takes a slot in the queue of a tunnel. Returns it with the semaphore of the one check that
    /// may run. The queue exists until the slot is released.
    fn enter_queue(&self, fingerprint: &Digest) -> Option<(OwnedSemaphorePermit, Arc<Semaphore>)> {
        let mut tunnels = self.tunnels.lock();
        // Each slot that is taken has a reference to the semaphore. A queue without slots is
        // removed.
        tunnels.retain(|_, queue| Arc::strong_count(&queue.waiting) > 1);
        let queue = tunnels.entry(*fingerprint).or_default();
        let slot = Arc::clone(&queue.waiting).try_acquire_owned().ok()?;
        Some((slot, Arc::clone(&queue.running)))
    }

    fn keys_of(&self, passwords: &LinkPasswords, presented: &BasicCredentials) -> ResultKeys {
        let sent = &*presented.user;
        let wrong = self.key_of(passwords, sent, &presented.password);
        let right = match passwords.entry_name(sent) {
            Some(name) if name != sent => self.key_of(passwords, name, &presented.password),
            _ => wrong,
        };
        ResultKeys { right, wrong }
    }

    fn key_of(&self, passwords: &LinkPasswords, user: &str, password: &Secret) -> Digest {
        let mut context = hmac::Context::with_key(&self.key);
        context.update(passwords.fingerprint());
        // The length is included, so that two different pairs never have the same encoding.
        context.update(&(user.len() as u64).to_be_bytes());
        context.update(user.as_bytes());
        context.update(password.expose());
        let mut key = Digest::default();
        for (to, from) in key.iter_mut().zip(context.sign().as_ref()) {
            *to = *from;
        }
        key
    }
}

impl Default for TunnelQueue {
    fn default() -> Self {
        Self {
            running: Arc::new(Semaphore::new(1)),
            waiting: Arc::new(Semaphore::new(MAX_WAITING_AT_TUNNEL)),
        }
    }
}

impl Results {
    /// Compares a password with its hash and keeps the result. It takes tens of milliseconds.
    fn check(&self, check: &PasswordCheck, guesser: Guesser) -> PasswordProof {
        let presented = &check.presented;
        if check.passwords.verify(&presented.user, &presented.password) {
            self.guesses.refund(guesser, self.clock.instant());
            self.right.put(check.keys.right, ());
            PasswordProof::Valid
        } else {
            self.wrong.put(check.keys.wrong, ());
            PasswordProof::Wrong
        }
    }

    /// The result of an earlier check.
    fn get(&self, keys: &ResultKeys) -> Option<PasswordProof> {
        if self.right.get(&keys.right).is_some() {
            Some(PasswordProof::Valid)
        } else if self.wrong.get(&keys.wrong).is_some() {
            Some(PasswordProof::Wrong)
        } else {
            None
        }
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

/// Checks of all tunnels that run or wait.
const MAX_WAITING: usize = 4_096;

/// Checks of one tunnel that run or wait. A browser may send a hundred requests at once when the
/// agent has opened its tunnel again; the first check answers all of them.
const MAX_WAITING_AT_TUNNEL: usize = 128;

/// Time that a check may wait.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// Wrong passwords of a source at a tunnel: this many at once, and then this many per minute. It is
/// more than a person types, and far too few to guess.
const WRONG_PER_MINUTE: NonZeroU32 = NonZeroU32::MIN.saturating_add(19);

/// Results of each kind: a visitor needs one.
const KNOWN_PASSWORDS: usize = 8_192;

/// Base64 of the longest accepted name and password, and a few spaces.
const MAX_ENCODED_BYTES: usize = 600;

//! Verified tokens: keys that can be replaced, a cache of verification results, revocation.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use api::link::{CredentialUseRecord, SIGN_IN_TYPE, SignInClaims};
use arc_swap::ArcSwap;
use credentials::{BadKey, Keyring, TokenKind, TokenRefusal, VerifiedToken};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::{Notify, watch};
use types::id::SessionId;
use types::root::Root;

use super::cache::{Cache, Entry};
use super::changes::{ChangeScope, Invalidations, PendingInvalidations};
use super::credential_uses::CredentialUses;
use super::digest::Digest;
use super::pending_update::UpdateWaits;
use crate::directory::{Credential, CredentialMatcher, Directory};

/// Verifies tokens. Shared by all workers; a verification holds no lock that another one waits for.
#[derive(Debug)]
pub struct Tokens {
    keys: ArcSwap<VerificationKeys>,
    cache: Cache<Entry>,
    revoked: ArcSwap<HashSet<Digest>>,
    /// Locked while keys are replaced, so that two sources of keys do not overwrite each other.
    sources: Mutex<Sources>,
    changes: watch::Sender<u64>,
    /// Scopes of changes for which visits have not been authorized again yet.
    pending: PendingInvalidations,
    /// Notified when a token is signed with an unknown key.
    unknown_key: Notify,
    /// The credentials behind the tokens of a managed engine.
    directory: Option<Arc<Directory>>,
    /// Uses of these credentials that were not reported yet.
    uses: CredentialUses,
    /// Waits for updates of the platform.
    waits: UpdateWaits,
}

/// The current keys, and how often they were replaced. A cached result is valid for one epoch.
#[derive(Debug)]
struct VerificationKeys {
    epoch: u64,
    keyring: Keyring,
}

#[derive(Debug)]
struct Sources {
    configured: Keyring,
    /// JWKS document that was read last.
    jwks: Option<String>,
}

/// Reasons why a token is not accepted. For the log: the caller only receives that it is not valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    #[error(transparent)]
    Refused(#[from] TokenRefusal),
    #[error("the token was revoked")]
    Revoked,
    /// The stored credential does not allow the token.
    #[error("no valid credential belongs to the token: {0}")]
    NoCredential(&'static str),
    /// A managed engine does not have the credential behind the token: it was revoked, or the
    /// platform's update with it has not arrived yet.
    #[error("the credential behind the token is unknown: {0}")]
    UnknownCredential(&'static str),
}

impl Tokens {
    /// Uses the configured keys: shared secrets and public keys. Keys of a JWKS are added to them.
    pub fn new(configured: Keyring) -> Arc<Self> {
        // Nothing waits for a platform.
        Self::with(configured, None, Duration::ZERO)
    }

    /// For a managed engine: a token is valid as long as the directory contains the credential
    /// behind it. The platform's keys arrive as a JWKS. A token waits for `update_wait` for an update
    /// that it needs.
    pub fn managed(directory: Arc<Directory>, compat: bool, update_wait: Duration) -> Arc<Self> {
        let configured = Keyring::new().with_compat(compat);
        Self::with(configured, Some(directory), update_wait)
    }

    fn with(
        configured: Keyring,
        directory: Option<Arc<Directory>>,
        update_wait: Duration,
    ) -> Arc<Self> {
        let keys = VerificationKeys {
            epoch: 0,
            keyring: configured.clone(),
        };
        Arc::new(Self {
            keys: ArcSwap::from_pointee(keys),
            cache: Cache::new(CACHED_TOKENS),
            revoked: ArcSwap::default(),
            sources: Mutex::new(Sources {
                configured,
                jwks: None,
            }),
            changes: watch::Sender::new(0),
            pending: PendingInvalidations::default(),
            unknown_key: Notify::new(),
            directory,
            uses: CredentialUses::default(),
            waits: UpdateWaits::new(update_wait),
        })
    }

    /// Verifies a token at `now` (Unix seconds), or returns the cached result.
    ///
    /// # Errors
    /// [`TokenError`]. Errors are never cached: an invalid token costs a verification each time.
    pub fn verify(&self, token: &str, now: i64) -> Result<Arc<VerifiedToken>, TokenError> {
        let digest = credentials::digest(token);
        let keys = self.keys.load();
        let entry = if let Some(entry) = self.cached(&digest, keys.epoch, now) {
            entry
        } else {
            // Expired or not in the cache: full verification determines the reason.
            let (verified, source) = match &self.directory {
                None => (self.verify_by_key(token, &keys.keyring, now)?, None),
                Some(directory) => {
                    self.verify_by_directory(directory, token, &keys.keyring, now)?
                }
            };
            let entry = Entry {
                epoch: keys.epoch,
                verified: Arc::new(verified),
                source,
            };
            self.cache.put(digest, entry.clone());
            entry
        };
        self.unless_revoked(&digest, entry, now)
    }

    /// The cached result of a token that is unchanged; `None` if it has to be verified.
    pub(crate) fn verified_before(
        &self,
        token: &str,
        now: i64,
    ) -> Option<Result<Arc<VerifiedToken>, TokenError>> {
        let digest = credentials::digest(token);
        let entry = self.cached(&digest, self.keys.load().epoch, now)?;
        Some(self.unless_revoked(&digest, entry, now))
    }

    fn cached(&self, digest: &Digest, epoch: u64, now: i64) -> Option<Entry> {
        let entry = self.cache.get(digest)?;
        let holds = entry.epoch == epoch && self.is_current(&entry);
        (holds && !entry.verified.is_expired(now)).then_some(entry)
    }

    /// The verified token, unless it was revoked. Its credential is used.
    fn unless_revoked(
        &self,
        digest: &Digest,
        entry: Entry,
        now: i64,
    ) -> Result<Arc<VerifiedToken>, TokenError> {
        if self.revoked.load().contains(digest) || self.is_ended(&entry.verified) {
            return Err(TokenError::Revoked);
        }
        if let Some(source) = &entry.source {
            self.uses.note(source, now);
        }
        Ok(entry.verified)
    }

    /// Notes that the connection of an agent still uses its token.
    pub(crate) fn note_use(&self, token: &VerifiedToken, now: i64) {
        let directory = self.directory.as_ref();
        if let Some(source) = directory.and_then(|directory| stored(directory, token)) {
            self.uses.note(&source, now);
        }
    }

    /// The stored credential behind a token. `None` for a token of a browser session, and on an
    /// engine without a platform.
    pub(crate) fn stored_credential(&self, token: &VerifiedToken) -> Option<Arc<Credential>> {
        stored(self.directory.as_ref()?, token)
    }

    /// Takes the uses of credentials since the last call.
    pub(crate) fn take_uses(&self) -> Vec<CredentialUseRecord> {
        self.uses.take()
    }

    /// Verifies the code of a sign-in (ED-2), which one of the platform's keys signed. The caller
    /// has to check its claims.
    ///
    /// # Errors
    /// [`TokenRefusal`], for the log.
    pub fn verify_sign_in_code(&self, code: &str) -> Result<SignInClaims, TokenRefusal> {
        let keys = self.keys.load();
        let claims = credentials::verify_statement(code, SIGN_IN_TYPE, &keys.keyring)
            .inspect_err(|refused| self.notify_unknown_key(*refused))?;
        serde_json::from_value(Value::Object(claims)).map_err(|_| TokenRefusal::Payload)
    }

    /// Returns true if a token that was verified earlier has not been revoked. The caller has to
    /// check its expiry.
    pub fn is_still_valid(&self, token: &Arc<VerifiedToken>, now: i64) -> bool {
        if self.revoked.load().contains(&token.digest) || self.is_ended(token) {
            return false;
        }
        let Some(directory) = &self.directory else {
            return true;
        };
        // A cached result also has the credential that it was based on.
        let verdict = self.cache.get(&token.digest);
        if let Some(entry) = verdict.filter(|entry| Arc::ptr_eq(&entry.verified, token)) {
            let source = entry.source.as_ref();
            return source.is_none_or(|source| directory.is_still_valid(source, now));
        }
        let id = token.credential_id.as_deref().unwrap_or_default();
        // A token of a session has no credential, and its session was checked above.
        if token.kind == TokenKind::Auth && id.parse::<SessionId>().is_ok() {
            return true;
        }
        stored(directory, token).is_some_and(|source| {
            let within = token.limits.permissions_are_within(&source.limits);
            within && !source.is_expired(now)
        })
    }

    /// Returns true if the state behind a cached result is unchanged.
    fn is_current(&self, entry: &Entry) -> bool {
        match (&self.directory, &entry.source) {
            (Some(directory), Some(source)) => directory.is_current(source),
            _ => true,
        }
    }

    /// Returns true if the token, or the session that it was minted from, was ended before its
    /// expiry.
    fn is_ended(&self, token: &VerifiedToken) -> bool {
        self.directory.as_ref().is_some_and(|directory| {
            [&token.id, &token.credential_id]
                .into_iter()
                .flatten()
                .any(|id| directory.is_ended(id))
        })
    }

    fn verify_by_key(
        &self,
        token: &str,
        keys: &Keyring,
        now: i64,
    ) -> Result<VerifiedToken, TokenRefusal> {
        credentials::verify(token, keys, now)
            .inspect_err(|refused| self.notify_unknown_key(*refused))
    }

    /// Verifies a token of a platform. The token's kind determines the accepted keys, and there
    /// must be a valid stored credential behind it.
    fn verify_by_directory(
        &self,
        directory: &Directory,
        token: &str,
        keys: &Keyring,
        now: i64,
    ) -> Result<(VerifiedToken, Option<Arc<Credential>>), TokenError> {
        let require_valid = |credential: Option<Arc<Credential>>, missing| {
            let credential = credential.ok_or(TokenError::UnknownCredential(missing))?;
            if credential.is_expired(now) {
                return Err(TokenError::Refused(TokenRefusal::Expired));
            }
            Ok(credential)
        };
        if let Some(application) = credentials::application(token) {
            let known = directory.credential(&application);
            let credential = require_valid(known, "no such application")?;
            let CredentialMatcher::App { keys } = &credential.proof else {
                return Err(TokenError::NoCredential("no such application"));
            };
            let verified = credentials::verify(token, keys, now)?;
            if verified.kind != TokenKind::App || !verified.lives_at_most(MAX_APP_SECONDS) {
                return Err(TokenError::NoCredential(
                    "an application's token lives an hour",
                ));
            }
            let user = verified.user_id.as_deref();
            if user.is_some_and(|user| user != &*credential.user_id) {
                return Err(TokenError::NoCredential(
                    "the application is another user's",
                ));
            }
            return Ok((credential.narrow(verified), Some(credential)));
        }
        let verified = self.verify_by_key(token, keys, now)?;
        let belongs_to = |user: &str| verified.user_id.as_deref() == Some(user);
        let credential = match verified.kind {
            TokenKind::App => return Err(TokenError::NoCredential("signed by the platform")),
            TokenKind::Pat => {
                let known = directory.token(&verified.digest);
                let credential = require_valid(known, "no such personal access token")?;
                let CredentialMatcher::Pat { endpoint, .. } = &credential.proof else {
                    return Err(TokenError::NoCredential("no such personal access token"));
                };
                if endpoint.as_deref() != verified.credential_id.as_deref() {
                    return Err(TokenError::NoCredential("another credential's name"));
                }
                credential
            }
            TokenKind::Auth => {
                let source = verified.credential_id.as_deref().unwrap_or_default();
                if source.parse::<SessionId>().is_ok() {
                    // The platform only sends the end of a session, and the token lives for an
                    // hour.
                    if !verified.lives_at_most(MAX_AUTH_SECONDS) {
                        return Err(TokenError::NoCredential("a session's token lives an hour"));
                    }
                    let root = Root::Session(source.into());
                    return Ok((VerifiedToken { root, ..verified }, None));
                }
                require_valid(directory.credential(source), "its credential is not there")?
            }
        };
        if !belongs_to(&credential.user_id) {
            return Err(TokenError::NoCredential("another user's"));
        }
        Ok((credential.narrow(verified), Some(credential)))
    }

    /// Replaces the configured keys, for example after a reload. Results based on the old ones
    /// expire.
    ///
    /// # Errors
    /// [`BadKey`] if they conflict with the current JWKS; nothing changes then.
    pub fn replace_keys(&self, configured: Keyring) -> Result<(), BadKey> {
        let mut sources = self.sources.lock();
        let keyring = match &sources.jwks {
            Some(document) => configured.clone().with_jwks(document)?,
            None => configured.clone(),
        };
        sources.configured = configured;
        self.activate(keyring);
        Ok(())
    }

    /// Replaces the keys of the JWKS. An unchanged document keeps cached results.
    ///
    /// # Errors
    /// [`BadKey`] if the document is not a set of keys; the old ones stay in use.
    pub fn replace_jwks(&self, document: String) -> Result<(), BadKey> {
        let mut sources = self.sources.lock();
        if sources.jwks.as_ref() == Some(&document) {
            return Ok(());
        }
        let keyring = sources.configured.clone().with_jwks(&document)?;
        sources.jwks = Some(document);
        self.activate(keyring);
        Ok(())
    }

    /// Called after a change in the directory: connections that depend on a token verify it again.
    pub fn directory_changed(&self, invalidations: Invalidations) {
        self.announce(invalidations);
    }

    /// Called when an agent of a project was disconnected by the platform.
    pub(crate) fn agent_revoked(&self, project: &Arc<str>) {
        let scope = ChangeScope::Project(Arc::clone(project));
        self.announce(Invalidations::one(scope));
    }

    /// Called when a caller of the Engine API closed a tunnel of a project.
    pub(crate) fn tunnel_closed(&self, project: &Arc<str>) {
        let scope = ChangeScope::Project(Arc::clone(project));
        self.announce(Invalidations::one(scope));
    }

    /// The scopes of changes since the last call.
    pub(crate) fn take_invalidations(&self) -> Invalidations {
        self.pending.take()
    }

    /// Replaces the set of revoked tokens. Streams that depend on one of them end.
    pub fn set_revoked(&self, revoked: HashSet<Digest>) {
        self.revoked.store(Arc::new(revoked));
        self.announce(Invalidations::all_visitors());
    }

    /// Changes when keys or revocations change: connections that depend on a token then verify it
    /// again.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    pub(super) fn waits(&self) -> &UpdateWaits {
        &self.waits
    }

    /// Waits for a token with an unknown key, or returns immediately if one arrived since the last
    /// call. Cancel-safe.
    pub(super) async fn unknown_key(&self) {
        self.unknown_key.notified().await;
    }

    fn activate(&self, keyring: Keyring) {
        let epoch = self.keys.load().epoch + 1;
        self.keys
            .store(Arc::new(VerificationKeys { epoch, keyring }));
        self.announce(Invalidations::all_visitors());
    }

    fn announce(&self, invalidations: Invalidations) {
        self.pending.add(invalidations);
        self.changes.send_modify(|count| *count += 1);
    }

    fn notify_unknown_key(&self, refused: TokenRefusal) {
        if refused == TokenRefusal::Signature {
            self.unknown_key.notify_one();
        }
    }
}

/// The current credential behind a token.
fn stored(directory: &Directory, token: &VerifiedToken) -> Option<Arc<Credential>> {
    match token.kind {
        TokenKind::Pat => directory.token(&token.digest),
        TokenKind::App => directory.credential(token.client_id.as_deref()?),
        TokenKind::Auth => directory.credential(token.credential_id.as_deref()?),
    }
}

/// Limit for the lifetime of an application's own tokens, in seconds: they can only be revoked by
/// deleting the application.
const MAX_APP_SECONDS: i64 = 3600;
/// Limit for the lifetime of delegated tokens, in seconds (`ttlSeconds`).
const MAX_AUTH_SECONDS: i64 = 3600;

/// About 500 bytes each: 5 MiB for as many bearers as one engine has within a token's lifetime.
const CACHED_TOKENS: usize = 10_000;

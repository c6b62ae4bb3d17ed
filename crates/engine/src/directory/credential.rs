//! A valid long-lived credential, compiled.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use api::link::CredentialProof;
use credentials::{Keyring, Limits, VerifiedToken};
use types::root::Root;

use super::authority::Authority;
use crate::access::Digest;

/// A credential with the fields that the edge needs. A new state is a new value, so a result that
/// was verified with one is valid as long as [`super::Directory::is_current`] returns true.
#[derive(Debug)]
pub struct Credential {
    /// Id.
    pub id: Arc<str>,
    /// Id of the owner.
    pub user_id: Arc<str>,
    /// The root of the chain of credentials that issued it.
    pub root: Root,
    /// The way to recognise it.
    pub proof: CredentialMatcher,
    /// Its permissions, its boundary with its one workspace, and its expiry.
    pub limits: Limits,
    /// The received record, to recognise an unchanged one: a snapshot repeats known records.
    record: api::link::Credential,
    /// Unix seconds of the last use that was noted for the platform.
    noted_use: AtomicI64,
}

/// The way to recognise a credential.
#[derive(Debug)]
pub enum CredentialMatcher {
    /// A token that the platform signed.
    Pat {
        /// SHA-256 of its text.
        digest: Digest,
        /// Value of its claim `token_endpoint`.
        endpoint: Option<Box<str>>,
    },
    /// Tokens that an application signs.
    App {
        /// Its key.
        keys: Keyring,
    },
    /// One client certificate.
    Certificate {
        /// SHA-256 of its DER form.
        digest: Digest,
    },
    /// Every client certificate of an authority.
    Authority(Authority),
    /// It cannot be checked here.
    Unverifiable,
}

impl Credential {
    /// Returns true if this was compiled from the same record.
    pub(super) fn is_compiled_from(&self, record: &api::link::Credential) -> bool {
        self.record == *record
    }

    /// Returns true if the two differ at most in their expiry, as before and after a rotation.
    pub(super) fn differs_only_in_expiry(&self, other: &Self) -> bool {
        let expires_at = other.record.expires_at;
        other.record
            == api::link::Credential {
                expires_at,
                ..self.record.clone()
            }
    }

    pub(super) fn compile(record: api::link::Credential) -> Self {
        let limits = Limits::of_stored(
            record.permissions.as_deref(),
            record.resources.as_ref(),
            record.workspace_id.as_deref(),
            record.expires_at,
        );
        Self {
            id: record.id.as_str().into(),
            user_id: record.user_id.as_str().into(),
            root: Root::Credential(record.root.as_deref().unwrap_or(&record.id).into()),
            proof: CredentialMatcher::compile(&record.proof),
            limits,
            record,
            noted_use: AtomicI64::new(i64::MIN),
        }
    }

    /// True if no use was noted in the last `seconds`. The one at `now` counts as noted then.
    pub fn is_use_due(&self, now: i64, seconds: i64) -> bool {
        let noted = self.noted_use.load(Ordering::Relaxed);
        if now < noted.saturating_add(seconds) {
            return false;
        }
        // Only one of several concurrent requests notes the use.
        let (order, failure) = (Ordering::Relaxed, Ordering::Relaxed);
        let exchanged = self.noted_use.compare_exchange(noted, now, order, failure);
        exchanged.is_ok()
    }

    /// Returns true if the credential has expired at `now` (Unix seconds).
    pub fn is_expired(&self, now: i64) -> bool {
        self.limits.is_expired(now)
    }

    /// The intersection of the permissions of a token and the credential behind it. The credential
    /// determines the owner and the root of the chain.
    pub fn narrow(&self, token: VerifiedToken) -> VerifiedToken {
        VerifiedToken {
            user_id: Some(self.user_id.to_string()),
            root: self.root.clone(),
            limits: token.limits.and(&self.limits),
            ..token
        }
    }
}

impl CredentialMatcher {
    fn compile(record: &CredentialProof) -> Self {
        let known = match record {
            CredentialProof::Pat {
                sha256,
                token_endpoint,
            } => digest(sha256).map(|digest| Self::Pat {
                digest,
                endpoint: token_endpoint.as_deref().map(Into::into),
            }),
            CredentialProof::App { public_key } => {
                let keys = Keyring::new().with_compat(true).with_pem(public_key);
                keys.ok().map(|keys| Self::App { keys })
            }
            CredentialProof::Certificate { sha256 } => {
                digest(sha256).map(|digest| Self::Certificate { digest })
            }
            CredentialProof::Authority { certificate } => {
                Authority::parse(certificate).map(Self::Authority)
            }
            CredentialProof::Unknown => None,
        };
        known.unwrap_or(Self::Unverifiable)
    }
}

/// 64 hexadecimal digits in lower case.
fn digest(text: &str) -> Option<Digest> {
    let mut digest = [0; 32];
    let is_lower_case = !text.bytes().any(|byte| byte.is_ascii_uppercase());
    let read = hex::decode_to_slice(text, &mut digest);
    read.ok().filter(|()| is_lower_case).map(|()| digest)
}

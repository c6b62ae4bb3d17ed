//! A long-lived credential that is in force, compiled.

use std::sync::Arc;

use api::link::CredentialProof;
use credentials::{Keyring, Limits, Verified};
use types::root::Root;

use super::authority::Authority;
use crate::access::Digest;

/// A credential, as the edge needs to know it. A new state is a new value, so what was verified
/// with one holds for as long as [`super::Directory::is_current`] says so.
#[derive(Debug)]
pub struct Credential {
    /// Id.
    pub id: Arc<str>,
    /// Whose it is.
    pub user_id: Arc<str>,
    /// The beginning of the chain of credentials that issued it.
    pub root: Root,
    /// How it is known.
    pub proof: Proof,
    /// Its permissions, its boundary with its one workspace, and its end.
    pub limits: Limits,
    /// What was told, to know it again: a snapshot tells what is known already.
    told: api::link::Credential,
}

/// How a credential is known.
#[derive(Debug)]
pub enum Proof {
    /// A token that the platform signed.
    Pat {
        /// SHA-256 of its text.
        digest: Digest,
        /// What it says of itself (`token_endpoint`).
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
    /// Nothing that can be checked here.
    Nothing,
}

impl Credential {
    /// Whether this is what was told before.
    pub(super) fn says(&self, told: &api::link::Credential) -> bool {
        self.told == *told
    }

    /// Whether the two say the same but for when they end, as before and after a rotation.
    pub(super) fn is_but_its_end(&self, other: &Self) -> bool {
        let expires_at = other.told.expires_at;
        other.told
            == api::link::Credential {
                expires_at,
                ..self.told.clone()
            }
    }

    pub(super) fn compile(told: api::link::Credential) -> Self {
        let limits = Limits::of_stored(
            told.permissions.as_deref(),
            told.resources.as_ref(),
            told.workspace_id.as_deref(),
            told.expires_at,
        );
        Self {
            id: told.id.as_str().into(),
            user_id: told.user_id.as_str().into(),
            root: Root::Credential(told.root.as_deref().unwrap_or(&told.id).into()),
            proof: Proof::compile(&told.proof),
            limits,
            told,
        }
    }

    /// Whether the credential is past its time at `now` (Unix seconds).
    pub fn is_expired(&self, now: i64) -> bool {
        self.limits.is_expired(now)
    }

    /// What a token and the credential behind it allow together: never more than either. The
    /// credential says whose it is and where its chain begins.
    pub fn narrow(&self, token: Verified) -> Verified {
        Verified {
            user_id: Some(self.user_id.to_string()),
            root: self.root.clone(),
            limits: token.limits.and(&self.limits),
            ..token
        }
    }
}

impl Proof {
    fn compile(told: &CredentialProof) -> Self {
        let known = match told {
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
        known.unwrap_or(Self::Nothing)
    }
}

/// 64 hexadecimal digits in lower case.
fn digest(text: &str) -> Option<Digest> {
    let mut digest = [0; 32];
    let mut digits = text.as_bytes().chunks_exact(2);
    if text.len() != 64
        || !text
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    {
        return None;
    }
    for byte in &mut digest {
        let pair = std::str::from_utf8(digits.next()?).ok()?;
        *byte = u8::from_str_radix(pair, 16).ok()?;
    }
    Some(digest)
}

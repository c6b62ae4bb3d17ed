//! Keys that relays and the platform share: one secret, and for each realm the key with which a
//! relay and an application agree on a password (TU-2).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use aws_lc_rs::agreement::{ECDH_P521, PrivateKey};
use aws_lc_rs::encoding::{AsDer as _, EcPrivateKeyRfc5915Der, PublicKeyX509Der};
use bytes::Bytes;
use credentials::Secret;
use jiff::Timestamp;
use store::platform_secrets::{self as stored, PlatformSecret};
use store::{SealedBytes, Store};

use super::seal::Seal;
use super::{KeyError, files, sealing};
use crate::config::Config;

/// The keys of relays.
pub(super) struct TurnKeys {
    secret: Secret,
    relays: BTreeMap<String, RelayKey>,
}

/// The key of the relay of one realm, on P-521.
pub struct RelayKey {
    private: Secret,
    public: Bytes,
}

impl TurnKeys {
    /// Reads the keys, and creates those of new realms.
    pub(super) async fn open(
        config: &Config,
        store: &Store,
        platform: &Secret,
        now: Timestamp,
    ) -> Result<Self, KeyError> {
        let seal = sealing(platform, "platform-secrets")?;
        let secret = if let Some(path) = &config.turn.secret_file {
            files::read_secret(path)?
        } else {
            let former = files::former_turn_secret(config)?;
            let make = || former.clone().or_else(new_secret);
            load_or_create(store, &seal, "turn-secret", make, now).await?
        };
        let mut relays = BTreeMap::new();
        for realm in realms(config) {
            let name = format!("turn-relay/{realm}");
            let private = load_or_create(store, &seal, &name, RelayKey::draw, now).await?;
            let key = RelayKey::of(private).ok_or(KeyError::Sealed { name })?;
            relays.insert(realm, key);
        }
        Ok(Self { secret, relays })
    }

    pub(super) fn secret(&self) -> &Secret {
        &self.secret
    }

    pub(super) fn relay(&self, realm: &str) -> Option<&RelayKey> {
        self.relays.get(realm)
    }
}

impl RelayKey {
    /// The private half in DER (RFC 5915), only for the relay.
    pub fn private_der(&self) -> &Secret {
        &self.private
    }

    /// The public half: `SubjectPublicKeyInfo` in DER (RFC 5280 section 4.1), in lower-case hex.
    pub fn public_hex(&self) -> &Bytes {
        &self.public
    }

    fn draw() -> Option<Secret> {
        let key = PrivateKey::generate(&ECDH_P521).ok()?;
        let der: EcPrivateKeyRfc5915Der<'_> = key.as_der().ok()?;
        Some(Secret::new(der.as_ref()))
    }

    fn of(private: Secret) -> Option<Self> {
        let key = PrivateKey::from_private_key_der(&ECDH_P521, private.expose()).ok()?;
        let public = key.compute_public_key().ok()?;
        let public: PublicKeyX509Der<'_> = public.as_der().ok()?;
        let public = hex::encode(public.as_ref()).into();
        Some(Self { private, public })
    }
}

impl fmt::Debug for RelayKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RelayKey").finish_non_exhaustive()
    }
}

/// Every realm of TURN credentials: the one of the configuration, or the domains of all clusters.
fn realms(config: &Config) -> BTreeSet<String> {
    let turn = &config.turn;
    if let Some(realm) = &turn.realm {
        return BTreeSet::from([realm.clone()]);
    }
    let regions = config.catalogue.regions().iter();
    let engines = config.engines.iter();
    regions
        .map(|region| &region.domain)
        .chain(engines.map(|engine| &engine.cluster_domain))
        .chain(&turn.domain)
        .cloned()
        .collect()
}

/// The secret with this name, which is the same for every process. The first caller creates it.
async fn load_or_create(
    store: &Store,
    seal: &Seal,
    name: &str,
    make: impl Fn() -> Option<Secret>,
    now: Timestamp,
) -> Result<Secret, KeyError> {
    let mut found = by_name(store, name).await?;
    if found.is_none() {
        let secret = make().ok_or(KeyError::Cryptography)?;
        let sealed = seal.seal(name, secret.expose());
        let new = PlatformSecret {
            name: name.to_owned(),
            sealed: SealedBytes(sealed.map_err(|_| KeyError::Cryptography)?),
            created_at: now,
        };
        let mut tx = store.begin().await?;
        stored::insert(&mut tx, &new).await?;
        tx.commit().await?;
        found = by_name(store, name).await?;
    }
    let opened = found.and_then(|found| seal.open(name, &found.sealed.0));
    let secret = opened.ok_or_else(|| KeyError::Sealed {
        name: name.to_owned(),
    })?;
    Ok(Secret::new(secret.as_slice()))
}

async fn by_name(store: &Store, name: &str) -> Result<Option<PlatformSecret>, KeyError> {
    let mut read = store.read().await?;
    Ok(stored::by_name(&mut read, name).await?)
}

fn new_secret() -> Option<Secret> {
    files::new_secret().map(|text| Secret::new(text.trim().as_bytes()))
}

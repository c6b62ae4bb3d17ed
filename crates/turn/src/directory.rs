//! Decisions about TURN credentials (TU-3, TU-4, TU-5), from the data of the platform and the
//! secret in the configuration.
//!
//! Usernames have three kinds. For `api`, the API issued the password, derived from a secret. For
//! `pat` and `app`, a client derived the password from its personal access token or its application
//! key.
//!
//! A relay without a platform has no data, and neither has a relay before the first full update of
//! its platform. It admits every username of the kind `api` that has the right password, and no
//! other kind. After the update, it admits `api` only for listed projects and for listed members of
//! their workspace, and `pat` and `app` only while the platform lists the token or the key.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use api::link::{CredentialProof, Item, RelayKeys};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use credentials::turn::{ApplicationKey, Kind, PasswordKey, RelayPrivateKey, Username};
use credentials::{Limits, Secret};
use parking_lot::RwLock;
use types::permission::{Permission, Permissions};

use crate::core::{Account, Authority, Meter, NotAllowedError};

/// Data for decisions about credentials, in memory. It has one writer and many readers.
#[derive(Debug)]
pub struct Directory {
    realm: String,
    /// Key from the secret in the configuration. It has precedence over the platform's key.
    configured_key: Option<Arc<PasswordKey>>,
    state: RwLock<DirectoryState>,
    /// Usage by id of the project. It is kept when the project is removed.
    meters: RwLock<HashMap<Arc<str>, Arc<Meter>>>,
}

#[derive(Debug, Default)]
struct DirectoryState {
    /// True after the first full update.
    has_snapshot: bool,
    keys: Option<Keys>,
    projects: HashMap<String, Project>,
    /// From the endpoint of a project to its id.
    endpoints: HashMap<String, String>,
    /// From the id of a person to the workspaces and the permissions there.
    people: HashMap<String, Vec<(String, Permissions)>>,
    credentials: HashMap<String, Credential>,
    /// From the public id of a personal access token (`token_endpoint`) to its credential's id.
    tokens: HashMap<String, String>,
}

/// Keys that are derived from the relay keys of the platform.
#[derive(Debug)]
struct Keys {
    /// The keys as the platform sent them.
    source: RelayKeys,
    api: Option<Arc<PasswordKey>>,
    relay: Option<RelayPrivateKey>,
}

#[derive(Debug)]
struct Project {
    id: Arc<str>,
    endpoint: String,
    workspace_id: String,
    is_suspended: bool,
}

#[derive(Debug)]
struct Credential {
    user_id: String,
    proof: Proof,
    limits: Limits,
    /// Key of the passwords. It is derived at the first use.
    key: OnceLock<Option<Arc<PasswordKey>>>,
}

/// The secret or the key from which the client derives its password.
#[derive(Debug)]
enum Proof {
    Token { digest: [u8; 32], endpoint: String },
    Application(ApplicationKey),
}

impl Directory {
    /// A directory without data of the platform.
    pub fn new(realm: &str, secret: Option<&Secret>) -> Self {
        let configured_key = secret.and_then(|secret| PasswordKey::api(secret, realm));
        Self {
            realm: realm.to_owned(),
            configured_key: configured_key.map(Arc::new),
            state: RwLock::default(),
            meters: RwLock::default(),
        }
    }

    /// Replaces all data of the platform.
    ///
    /// # Errors
    /// A message for the operator: the platform's relays have another realm.
    pub fn replace(&self, items: Vec<Item>) -> Result<(), String> {
        let other = items.iter().find_map(|item| match item {
            Item::RelayKeys(keys) if keys.realm != self.realm => Some(&keys.realm),
            _ => None,
        });
        if let Some(other) = other {
            let realm = &self.realm;
            return Err(format!(
                "credentials of the platform are for the realm {other}, and `turn.realm` is {realm}"
            ));
        }
        let mut new_state = DirectoryState {
            has_snapshot: true,
            ..DirectoryState::default()
        };
        for item in items {
            new_state.put(item, &self.realm);
        }
        *self.state.write() = new_state;
        Ok(())
    }

    /// Applies changes in their order.
    pub fn apply(&self, items: Vec<Item>) {
        let mut state = self.state.write();
        for item in items {
            state.put(item, &self.realm);
        }
    }

    /// True after the first full update.
    pub fn has_snapshot(&self) -> bool {
        self.state.read().has_snapshot
    }

    /// Returns and resets the usage of each project since the last call: id, allocations, bytes.
    pub fn take_usage(&self) -> Vec<(Arc<str>, u64, u64)> {
        let meters = self.meters.read();
        let used = meters.iter().map(|(project, meter)| {
            let (allocations, bytes) = meter.take();
            (Arc::clone(project), allocations, bytes)
        });
        used.filter(|(_, allocations, bytes)| *allocations > 0 || *bytes > 0)
            .collect()
    }

    fn account(
        &self,
        project: &Arc<str>,
        username: &Username<'_>,
        expires_at: Option<i64>,
    ) -> Account {
        let existing = self.meters.read().get(project).map(Arc::clone);
        let meter = existing.unwrap_or_else(|| {
            let mut meters = self.meters.write();
            Arc::clone(meters.entry(Arc::clone(project)).or_default())
        });
        let kind = match username.kind {
            Kind::Api => "api",
            Kind::Pat => "pat",
            Kind::App => "app",
        };
        Account {
            project: Arc::clone(project),
            holder: format!("{project}:{kind}:{}", username.subject).into(),
            meter,
            expires_at,
        }
    }
}

impl Authority for Directory {
    fn password_key(&self, username: &Username<'_>) -> Option<Arc<PasswordKey>> {
        let state = self.state.read();
        match username.kind {
            Kind::Api => {
                let platform_key = || state.keys.as_ref().and_then(|keys| keys.api.clone());
                self.configured_key.clone().or_else(platform_key)
            }
            Kind::Pat | Kind::App => state.credential(username)?.key(&state, &self.realm),
        }
    }

    fn admit(&self, username: &Username<'_>, unix: i64) -> Result<Account, NotAllowedError> {
        let state = self.state.read();
        if !state.has_snapshot {
            // Without data of the platform, only passwords that the API issued are accepted.
            let project: Arc<str> = username.project_endpoint.into();
            return match username.kind {
                Kind::Api => Ok(self.account(&project, username, None)),
                Kind::Pat | Kind::App => Err(NotAllowedError),
            };
        }
        let project = state
            .project(username.project_endpoint)
            .ok_or(NotAllowedError)?;
        if project.is_suspended {
            return Err(NotAllowedError);
        }
        let workspace = &project.workspace_id;
        let expires_at = match username.kind {
            // The API checked the permissions when it issued the password (TU-3).
            Kind::Api => state
                .role(username.subject, workspace)
                .ok_or(NotAllowedError)
                .map(|_| None)?,
            Kind::Pat | Kind::App => {
                let credential = state.credential(username).ok_or(NotAllowedError)?;
                credential.admits(&state, project, unix)?;
                credential.limits.expires_at()
            }
        };
        Ok(self.account(&project.id, username, expires_at))
    }
}

impl DirectoryState {
    fn project(&self, endpoint: &str) -> Option<&Project> {
        self.projects.get(self.endpoints.get(endpoint)?)
    }

    /// Permissions of a person's role in a workspace.
    fn role(&self, person: &str, workspace: &str) -> Option<&Permissions> {
        let memberships = self.people.get(person)?;
        let found = memberships.iter().find(|(id, _)| id == workspace);
        found.map(|(_, permissions)| permissions)
    }

    fn credential(&self, username: &Username<'_>) -> Option<&Credential> {
        let subject = username.subject;
        match username.kind {
            Kind::Api => None,
            Kind::Pat => self.credentials.get(self.tokens.get(subject)?),
            Kind::App => self
                .credentials
                .get(subject)
                .filter(|credential| matches!(credential.proof, Proof::Application(_))),
        }
    }

    fn put(&mut self, item: Item, realm: &str) {
        match item {
            Item::Project(update) => {
                self.forget_project(&update.id);
                self.endpoints
                    .insert(update.endpoint.clone(), update.id.clone());
                let project = Project {
                    id: update.id.as_str().into(),
                    endpoint: update.endpoint,
                    workspace_id: update.workspace_id,
                    is_suspended: update.suspended,
                };
                self.projects.insert(update.id, project);
            }
            Item::ProjectGone { id } => self.forget_project(&id),
            Item::Person(update) => {
                let parts = update.memberships.into_iter().map(|part| {
                    let names = part.permissions.iter();
                    // An unknown name gives no permission.
                    let allowed = names.filter_map(|name| name.parse::<Permission>().ok());
                    (part.workspace_id, allowed.collect())
                });
                self.people.insert(update.id, parts.collect());
            }
            Item::PersonGone { id } => {
                self.people.remove(&id);
            }
            Item::Credential(update) => {
                self.forget_credential(&update.id);
                let id = update.id.clone();
                let Some(credential) = Credential::compile(*update) else {
                    return;
                };
                if let Proof::Token { endpoint, .. } = &credential.proof {
                    self.tokens.insert(endpoint.clone(), id.clone());
                }
                self.credentials.insert(id, credential);
            }
            Item::CredentialGone { id } => self.forget_credential(&id),
            Item::RelayKeys(update) => {
                if self.keys.as_ref().is_none_or(|keys| keys.source != update) {
                    self.keys = Some(Keys::compile(update, realm));
                    for credential in self.credentials.values_mut() {
                        credential.key = OnceLock::new();
                    }
                }
            }
            // Relays have no terminals.
            Item::WebttyServer(_) | Item::WebttyServerGone { .. } => {}
            // Relays verify no tokens of the platform, and have no domains.
            Item::Keys(_) | Item::Ended(_) | Item::DomainCertificate(_) | Item::Unknown => {}
        }
    }

    fn forget_project(&mut self, id: &str) {
        if let Some(gone) = self.projects.remove(id)
            && self
                .endpoints
                .get(&gone.endpoint)
                .is_some_and(|other| other == id)
        {
            self.endpoints.remove(&gone.endpoint);
        }
    }

    fn forget_credential(&mut self, id: &str) {
        if let Some(gone) = self.credentials.remove(id)
            && let Proof::Token { endpoint, .. } = gone.proof
            && self.tokens.get(&endpoint).is_some_and(|other| other == id)
        {
            self.tokens.remove(&endpoint);
        }
    }
}

impl Keys {
    /// Derives the keys. Keys that cannot be used are omitted and logged.
    fn compile(relay_keys: RelayKeys, realm: &str) -> Self {
        let decode = |text: &str| STANDARD.decode(text).ok().map(Secret::new);
        let secret = decode(&relay_keys.secret).filter(|secret| !secret.expose().is_empty());
        let api = secret.and_then(|secret| PasswordKey::api(&secret, realm));
        let relay = decode(&relay_keys.private_key).and_then(|der| RelayPrivateKey::from_der(&der));
        if relay_keys.realm != realm || api.is_none() || relay.is_none() {
            tracing::error!("the keys from the platform cannot be used");
        }
        let is_ours = relay_keys.realm == realm;
        Self {
            source: relay_keys,
            api: api.filter(|_| is_ours).map(Arc::new),
            relay: relay.filter(|_| is_ours),
        }
    }
}

impl Credential {
    /// Returns `None` if no TURN password can be derived from the credential: it is a certificate,
    /// an authority, of an unknown kind, or a token without a public id.
    fn compile(update: api::link::Credential) -> Option<Self> {
        let proof = match update.proof {
            CredentialProof::Pat {
                sha256,
                token_endpoint: Some(endpoint),
            } => Proof::Token {
                digest: digest(&sha256)?,
                endpoint,
            },
            CredentialProof::App { public_key } => {
                Proof::Application(ApplicationKey::from_pem(&public_key)?)
            }
            CredentialProof::Pat { .. }
            | CredentialProof::Certificate { .. }
            | CredentialProof::Authority { .. }
            | CredentialProof::Unknown => return None,
        };
        let limits = Limits::of_stored(
            update.permissions.as_deref(),
            update.resources.as_ref(),
            update.workspace_id.as_deref(),
            update.expires_at,
        );
        Some(Self {
            user_id: update.user_id,
            proof,
            limits,
            key: OnceLock::new(),
        })
    }

    fn key(&self, state: &DirectoryState, realm: &str) -> Option<Arc<PasswordKey>> {
        let make = || match &self.proof {
            Proof::Token { digest, .. } => PasswordKey::pat(digest, realm),
            Proof::Application(key) => {
                let relay = state.keys.as_ref()?.relay.as_ref()?;
                PasswordKey::app(relay, key, realm)
            }
        };
        self.key.get_or_init(|| make().map(Arc::new)).clone()
    }

    /// TU-5: checks that the credential is valid, that it and its owner's role permit allocations,
    /// and that its boundary includes the project.
    fn admits(
        &self,
        state: &DirectoryState,
        project: &Project,
        unix: i64,
    ) -> Result<(), NotAllowedError> {
        let needed = Permission::TurnRelayAllocate;
        let role = state.role(&self.user_id, &project.workspace_id);
        let has_role = role.is_some_and(|role| role.contains(needed));
        let is_within = self
            .limits
            .boundary()
            .reaches(&project.id, Some(&project.workspace_id));
        if !self.limits.is_expired(unix) && self.limits.allows(needed) && has_role && is_within {
            Ok(())
        } else {
            Err(NotAllowedError)
        }
    }
}

/// Parses 64 hexadecimal digits in lower case.
fn digest(text: &str) -> Option<[u8; 32]> {
    let mut digest = [0; 32];
    let is_lower_case = !text.bytes().any(|byte| byte.is_ascii_uppercase());
    let read = hex::decode_to_slice(text, &mut digest);
    read.ok().filter(|()| is_lower_case).map(|()| digest)
}

#[cfg(test)]
mod tests;

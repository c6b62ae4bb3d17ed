//! The entry of a tunnel in the store of the cluster: what another engine needs to make the access
//! decision for a visitor, and to forward the stream.
//!
//! An entry is JSON with a version. It is read strictly: an engine that does not know a setting must
//! not ignore it, because the setting may restrict the access. Such an entry counts as missing, and
//! visitors get 503 there.

use std::sync::Arc;

use credentials::{LinkPassword, LinkPasswordError, LinkPasswords};
use ownership::Server;
use serde::{Deserialize, Serialize};
use types::tunnel::{Protocol, Tunnel};

use super::owner_of;
use crate::live::{Identity, LiveTunnel, routed_hostname};

/// Version of the format. Engines with another one do not forward to each other.
const VERSION: u32 = 1;

/// The entry in the store. It has no `Debug`, because it contains hashes of passwords.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredEntry {
    version: u32,
    owner: EntryOwner,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    link_passwords: Vec<EntryPassword>,
    tunnel: Tunnel,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum EntryOwner {
    User(String),
    Client(String),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct EntryPassword {
    user: String,
    /// A PHC string.
    hash: String,
}

/// A tunnel at another engine.
#[derive(Debug)]
pub(crate) struct TunnelEntry {
    pub(crate) view: Arc<Tunnel>,
    pub(crate) identity: Identity,
    pub(crate) link_passwords: Option<LinkPasswords>,
}

/// Reasons why an entry is not used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EntryError {
    /// The engine has not written one, or has removed it.
    #[error("there is none")]
    Missing,
    #[error("it cannot be read: {0}")]
    Unreadable(#[from] serde_json::Error),
    #[error("its version is {0}")]
    Version(u32),
    /// It has a value that this engine would ignore.
    #[error("it has settings that this engine does not know")]
    UnknownSettings,
    #[error("it belongs to another name")]
    OtherName,
    #[error("it belongs to another owner")]
    OtherOwner,
    #[error("its link passwords are invalid: {0}")]
    Passwords(#[from] LinkPasswordError),
    #[error("its link passwords do not match its settings")]
    UnexpectedPasswords,
}

/// The entry of a tunnel of this engine; `None` for a tunnel without a host name of its own, and for a
/// terminal, whose sessions are at one engine.
pub(crate) fn encode<A>(tunnel: &LiveTunnel<A>) -> Option<Vec<u8>> {
    tunnel.routed_hostname()?;
    if tunnel.view.properties.protocol == Some(Protocol::Webtty) {
        return None;
    }
    let owner = match &tunnel.identity.subject {
        credentials::Identity::User(id) => EntryOwner::User(id.clone()),
        credentials::Identity::Client(id) => EntryOwner::Client(id.clone()),
    };
    let passwords = tunnel.policy.link_passwords();
    let passwords = passwords.map(|passwords| {
        let entries = passwords.entries();
        let entries = entries.map(|(user, hash)| EntryPassword {
            user: user.to_owned(),
            hash,
        });
        entries.collect()
    });
    let value = StoredEntry {
        version: VERSION,
        owner,
        link_passwords: passwords.unwrap_or_default(),
        tunnel: Tunnel::clone(&tunnel.view),
    };
    // Strings, numbers and maps with string keys always serialise.
    serde_json::to_vec(&value).ok()
}

/// The entry of a host name at another engine.
///
/// # Errors
/// [`EntryError`]: the tunnel counts as offline.
pub(crate) fn decode(hostname: &str, server: &Server) -> Result<TunnelEntry, EntryError> {
    let entry = server.entry.as_ref().ok_or(EntryError::Missing)?;
    let value: StoredEntry = serde_json::from_slice(entry.value.as_bytes())?;
    if value.version != VERSION {
        return Err(EntryError::Version(value.version));
    }
    if serde_json::to_vec(&value)? != entry.value.as_bytes() {
        return Err(EntryError::UnknownSettings);
    }
    let StoredEntry {
        owner,
        link_passwords,
        tunnel,
        ..
    } = value;
    let routed = routed_hostname(&tunnel.properties);
    if routed.is_none_or(|routed| routed.as_str() != hostname) {
        return Err(EntryError::OtherName);
    }
    let subject = match owner {
        EntryOwner::User(id) => credentials::Identity::User(id),
        EntryOwner::Client(id) => credentials::Identity::Client(id),
    };
    let project = tunnel.project_id.as_deref();
    let identity = Identity::new(project.ok_or(EntryError::OtherOwner)?, &subject);
    if owner_of(&identity) != server.owner {
        return Err(EntryError::OtherOwner);
    }
    if (tunnel.properties.basic_auth == Some(true)) == link_passwords.is_empty() {
        return Err(EntryError::UnexpectedPasswords);
    }
    let entries = link_passwords.iter();
    let entries = entries.map(|entry| LinkPassword::parse(&entry.user, &entry.hash));
    let entries: Vec<LinkPassword> = entries.collect::<Result<_, _>>()?;
    let link_passwords = (!entries.is_empty()).then(|| LinkPasswords::new(entries));
    Ok(TunnelEntry {
        view: Arc::new(tunnel),
        identity,
        link_passwords: link_passwords.transpose()?,
    })
}

#[cfg(test)]
mod tests;

//! The replicated state: the last snapshot with all later changes applied.

use std::collections::BTreeMap;
use std::ops::Bound;

use api::link::{Cursor, CustomDomain, Item, MAX_LINE_BYTES, Platform};
use aws_lc_rs::digest::{self, SHA256};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::reader::MAX_SNAPSHOT_BYTES;

/// The replicated state. Items are kept in their serialised form.
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    platform: Platform,
    /// Current cursor; `None` if the platform has to send everything again.
    cursor: Option<Cursor>,
    items: BTreeMap<Key, SavedItem>,
    bytes: usize,
}

/// Key of an item: a later item with the same key replaces it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Keys,
    RelayKeys,
    Project(String),
    /// Ids of the project and the domain. After projects, because a project decides which of its
    /// certificates are kept.
    DomainCertificate(String, String),
    Person(String),
    Credential(String),
    WebttyServer(String),
    Ended(String),
}

#[derive(Clone, Debug, PartialEq)]
struct SavedItem {
    line: Bytes,
    /// Expiry in Unix seconds, after which the item can be deleted.
    expires_at: Option<i64>,
}

impl State {
    /// Creates the state of a snapshot.
    pub fn new(platform: Platform, items: &[Item], cursor: Cursor) -> Self {
        let mut state = Self {
            platform,
            cursor: Some(cursor),
            items: BTreeMap::new(),
            bytes: 0,
        };
        for item in items {
            state.put(item);
        }
        state
    }

    /// Applies a change. Returns true if the change may revoke an earlier permission. This is the
    /// case for all items except those with a new key.
    pub fn apply(&mut self, items: &[Item], cursor: Cursor) -> bool {
        let mut restricts = false;
        for item in items {
            restricts |= self.put(item);
        }
        self.cursor = Some(cursor);
        restricts
    }

    /// True if this state may allow less than `before`: an item is missing or different, or
    /// something was revoked since.
    pub fn restricts(&self, before: &Self) -> bool {
        let changed = |(key, item): (&Key, &SavedItem)| {
            self.items.get(key).is_none_or(|now| now.line != item.line)
        };
        let ended = |key: &Key| matches!(key, Key::Ended(_)) && !before.items.contains_key(key);
        self.platform != before.platform
            || before.items.iter().any(changed)
            || self.items.keys().any(ended)
    }

    /// Settings of the whole cluster.
    pub fn platform(&self) -> &Platform {
        &self.platform
    }

    /// Current cursor.
    pub fn cursor(&self) -> Option<&Cursor> {
        self.cursor.as_ref()
    }

    /// Removes the cursor, so that the platform sends everything again.
    pub fn forget_cursor(&mut self) {
        self.cursor = None;
    }

    /// Serialised size of all items, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// All items.
    pub fn items(&self) -> Vec<Item> {
        let kept = self.items.values();
        // Each line was serialised from an item.
        kept.filter_map(|kept| serde_json::from_slice(&kept.line).ok())
            .collect()
    }

    /// Deletes revocations that have expired at `now` (Unix seconds).
    pub fn remove_expired(&mut self, now: i64) {
        let first = Bound::Included(Key::Ended(String::new()));
        let past: Vec<Key> = self
            .items
            .range((first, Bound::Unbounded))
            .filter(|(_, kept)| kept.expires_at.is_some_and(|until| until <= now))
            .map(|(key, _)| key.clone())
            .collect();
        for key in past {
            self.remove(&key);
        }
    }

    /// True if the item may revoke an earlier permission.
    fn put(&mut self, item: &Item) -> bool {
        let (key, until) = match item {
            Item::Keys(_) => (Key::Keys, None),
            // Stored in a folder that only its owner can read, so that a relay can start without
            // the platform.
            Item::RelayKeys(_) => (Key::RelayKeys, None),
            Item::Project(project) => {
                self.remove_certificates(&project.id, &project.domains);
                (Key::Project(project.id.clone()), None)
            }
            // Stored in the same folder, so that an engine can start without the platform.
            Item::DomainCertificate(certificate) => {
                let (project, id) = (&certificate.project_id, &certificate.id);
                (Key::DomainCertificate(project.clone(), id.clone()), None)
            }
            Item::Person(person) => (Key::Person(person.id.clone()), None),
            Item::Credential(credential) => (Key::Credential(credential.id.clone()), None),
            Item::WebttyServer(server) => (Key::WebttyServer(server.id.clone()), None),
            Item::Ended(ended) => (Key::Ended(ended.id.clone()), Some(ended.until)),
            Item::ProjectGone { id } => {
                self.remove_certificates(id, &[]);
                return self.remove(&Key::Project(id.clone()));
            }
            Item::PersonGone { id } => return self.remove(&Key::Person(id.clone())),
            Item::CredentialGone { id } => return self.remove(&Key::Credential(id.clone())),
            Item::WebttyServerGone { id } => return self.remove(&Key::WebttyServer(id.clone())),
            Item::Unknown => return false,
        };
        let ends = matches!(key, Key::Ended(_));
        let replaces = self.remove(&key);
        // Items were parsed from JSON, so they can be serialised.
        if let Ok(line) = serde_json::to_vec(item) {
            self.bytes += line.len() + 1;
            let line = line.into();
            self.items.insert(
                key,
                SavedItem {
                    line,
                    expires_at: until,
                },
            );
        }
        replaces || ends
    }

    /// Removes the certificates of a project, except those of these domains.
    fn remove_certificates(&mut self, project: &str, domains: &[CustomDomain]) {
        let first = Key::DomainCertificate(project.to_owned(), String::new());
        let own = self.items.range(first..).map(|(key, _)| key);
        let own =
            own.take_while(|key| matches!(key, Key::DomainCertificate(of, _) if of == project));
        let is_kept = |key: &&Key| {
            let mut domains = domains.iter().filter(|domain| domain.has_certificate);
            matches!(key, Key::DomainCertificate(_, id) if domains.any(|domain| domain.id == *id))
        };
        let ended: Vec<Key> = own.filter(|key| !is_kept(key)).cloned().collect();
        for key in ended {
            self.remove(&key);
        }
    }

    /// True if the item existed.
    fn remove(&mut self, key: &Key) -> bool {
        let removed = self.items.remove(key);
        if let Some(removed) = &removed {
            self.bytes -= removed.line.len() + 1;
        }
        removed.is_some()
    }
}

/// Reason why a file is refused.
#[derive(Debug, thiserror::Error)]
pub enum StateFileError {
    /// The file is truncated or was changed.
    #[error("it is corrupt: {0}")]
    Corrupt(&'static str),
    /// The file was written by a version with another file format.
    #[error("its format is of another version")]
    Version,
    /// The file belongs to another platform.
    #[error("it belongs to another platform")]
    Foreign,
}

/// First line of the file.
#[derive(Debug, Serialize, Deserialize)]
struct Header {
    format: String,
    version: u32,
    /// Version of the program that wrote it. A program that supports other kinds of items has to
    /// request everything again.
    program: String,
    /// The configured address, to recognise the file of another platform.
    address: String,
    platform: Platform,
    cursor: Option<Cursor>,
}

/// Last line of the file.
#[derive(Debug, Serialize, Deserialize)]
struct Trailer {
    items: usize,
    /// SHA-256 of all lines before, in hexadecimal digits.
    sha256: String,
}

const FORMAT: &str = "svc-link-state";
const VERSION: u32 = 1;

/// Maximum size of a file: the largest state, with header and trailer.
pub(crate) const MAX_FILE_BYTES: usize = MAX_SNAPSHOT_BYTES + 2 * MAX_LINE_BYTES;

impl State {
    /// The file: one header line, one line for each item, one trailer line that proves that the
    /// file is complete.
    pub fn to_file(&self, address: &str) -> Vec<u8> {
        let header = Header {
            format: FORMAT.to_owned(),
            version: VERSION,
            program: env!("CARGO_PKG_VERSION").to_owned(),
            address: address.to_owned(),
            platform: self.platform.clone(),
            cursor: self.cursor.clone(),
        };
        let mut file = serde_json::to_vec(&header).unwrap_or_default();
        file.reserve(self.bytes + 1024);
        file.push(b'\n');
        for kept in self.items.values() {
            file.extend_from_slice(&kept.line);
            file.push(b'\n');
        }
        let trailer = Trailer {
            items: self.items.len(),
            sha256: sha256(&file),
        };
        file.extend(serde_json::to_vec(&trailer).unwrap_or_default());
        file.push(b'\n');
        file
    }

    /// Parses a file.
    ///
    /// # Errors
    /// [`StateFileError`]; nothing of the file is used in this case.
    pub fn from_file(file: &[u8], address: &str) -> Result<Self, StateFileError> {
        let body = file
            .strip_suffix(b"\n")
            .ok_or(StateFileError::Corrupt("it is truncated"))?;
        let cut = body.iter().rposition(|byte| *byte == b'\n');
        let (body, trailer) = body.split_at(cut.map_or(0, |at| at + 1));
        let trailer: Trailer = serde_json::from_slice(trailer)
            .map_err(|_| StateFileError::Corrupt("its last line"))?;
        if trailer.sha256 != sha256(body) {
            return Err(StateFileError::Corrupt("its checksum"));
        }
        let mut lines = body.split_inclusive(|byte| *byte == b'\n');
        let first = lines.next().ok_or(StateFileError::Corrupt("it is empty"))?;
        let header: Header =
            serde_json::from_slice(first).map_err(|_| StateFileError::Corrupt("its first line"))?;
        if header.format != FORMAT || header.version != VERSION {
            return Err(StateFileError::Version);
        }
        if header.address != address {
            return Err(StateFileError::Foreign);
        }
        let same_program = header.program == env!("CARGO_PKG_VERSION");
        let mut state = Self {
            platform: header.platform,
            cursor: header.cursor.filter(|_| same_program),
            items: BTreeMap::new(),
            bytes: 0,
        };
        for line in lines {
            let item =
                serde_json::from_slice(line).map_err(|_| StateFileError::Corrupt("an item"))?;
            state.put(&item);
        }
        if state.items.len() != trailer.items {
            return Err(StateFileError::Corrupt("its count"));
        }
        Ok(state)
    }
}

fn sha256(bytes: &[u8]) -> String {
    hex::encode(digest::digest(&SHA256, bytes))
}

#[cfg(test)]
mod tests;

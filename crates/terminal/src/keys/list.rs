//! Lists of foreign public keys, each with a name.

use std::path::{Path, PathBuf};

use tty::seal::PublicKey;

use super::{KeyError, files, is_name, key_text, parse_key};

/// One public key with its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: PublicKey,
    /// Local name of its owner.
    pub name: String,
}

/// The list in one file. It is read again for each session, so that a removed key is rejected from
/// the next session on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyList {
    path: PathBuf,
    entries: Vec<Entry>,
}

impl KeyList {
    /// Reads the file. A missing file is an empty list.
    ///
    /// # Errors
    /// The file is accessible to other users, or has an invalid line.
    pub fn read(path: &Path) -> Result<Self, KeyError> {
        let text = match files::read(path) {
            Err(KeyError::File { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                String::new()
            }
            text => text?,
        };
        let entry = |(line, text)| {
            parse(text).map_err(|what| KeyError::Line {
                path: path.to_owned(),
                line,
                what,
            })
        };
        Ok(Self {
            path: path.to_owned(),
            entries: files::lines(&text).map(entry).collect::<Result<_, _>>()?,
        })
    }

    /// All keys, in the order of the file.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// True if this key is in the list.
    pub fn contains(&self, key: &PublicKey) -> bool {
        self.entries.iter().any(|entry| entry.key == *key)
    }

    /// The keys with this name: several while one replaces another.
    pub fn of_name<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a PublicKey> {
        let entries = self.entries.iter().filter(move |entry| entry.name == name);
        entries.map(|entry| &entry.key)
    }

    /// Adds a key to the file. Adding the same key with the same name again changes nothing.
    ///
    /// # Errors
    /// The name is invalid, or has another key, which has to be removed first.
    pub fn add(path: &Path, entry: Entry) -> Result<(), KeyError> {
        if !is_name(&entry.name) {
            return Err(KeyError::NotAName);
        }
        let _lock = files::lock(path)?;
        let mut list = Self::read(path)?;
        if list.entries.contains(&entry) {
            return Ok(());
        }
        if list.of_name(&entry.name).next().is_some() {
            return Err(KeyError::Taken {
                path: path.to_owned(),
                name: entry.name,
            });
        }
        list.entries.push(entry);
        list.write()
    }

    /// Removes the entries with this name or this key from the file.
    ///
    /// # Errors
    /// [`KeyError::Unknown`] if there are none.
    pub fn remove(path: &Path, name_or_key: &str) -> Result<Vec<Entry>, KeyError> {
        let key = parse_key(name_or_key).ok();
        let _lock = files::lock(path)?;
        let mut list = Self::read(path)?;
        let is_meant = |entry: &mut Entry| entry.name == name_or_key || Some(entry.key) == key;
        let removed: Vec<_> = list.entries.extract_if(.., is_meant).collect();
        if removed.is_empty() {
            return Err(KeyError::Unknown {
                path: path.to_owned(),
                name: name_or_key.to_owned(),
            });
        }
        list.write()?;
        Ok(removed)
    }

    fn write(&self) -> Result<(), KeyError> {
        let line = |entry: &Entry| format!("{} {}\n", key_text(&entry.key), entry.name);
        let text: String = self.entries.iter().map(line).collect();
        files::replace(&self.path, text.as_bytes())
    }
}

fn parse(line: &str) -> Result<Entry, &'static str> {
    let (key, name) = line.split_once(' ').ok_or("not a key and a name")?;
    let key = parse_key(key).map_err(|_| "not a key")?;
    let name = name.trim();
    if !is_name(name) {
        return Err("not a name");
    }
    Ok(Entry {
        key,
        name: name.to_owned(),
    })
}

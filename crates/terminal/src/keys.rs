//! The keys of end-to-end encryption, as files of one person: their own pairs, the servers that they
//! know, and the clients that their server lets in.
//!
//! ```text
//! ~/.svc/webtty/identities/<name>.key    public <key>
//!                                        private <key>
//! ~/.svc/webtty/known_servers            <key> <name>
//! ~/.svc/webtty/authorized_clients       <key> <name>
//! ```
//!
//! A key is X25519, 32 bytes in base64url without padding. Empty lines and lines that begin with `#`
//! say nothing; any other line that is not of this form makes the whole file wrong, because half a
//! list would let in or keep out the wrong ones. All files are for their owner alone (0600), and one
//! that others can read is refused. A file is replaced as a whole under a lock, so that two programs
//! that add at the same time both do.

mod files;
mod list;
#[cfg(test)]
mod tests;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use tty::seal::{Identity, KEY_LEN, PublicKey, SealError};
use zeroize::Zeroizing;

pub use list::{Entry, KeyList};

/// The name of the identity that is taken where none is named.
pub const DEFAULT_IDENTITY: &str = "default";

/// What can be wrong with keys and their files.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file is not there, or cannot be read or written.
    #[error("{}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Others can read or write the file.
    #[error("{} is open to others than its owner: `chmod 600` closes it", path.display())]
    Open {
        /// The file.
        path: PathBuf,
    },
    /// The file says something else than keys.
    #[error("{}, line {line}: {what}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The two halves of an identity do not belong together.
    #[error("{}: the private key is not that of the public one", path.display())]
    Mismatch {
        /// The file.
        path: PathBuf,
    },
    /// It exists, and is not written over: with it goes what was sealed to it.
    #[error("{} exists already", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// No such key is in the list.
    #[error("{} has no `{name}`", path.display())]
    Unknown {
        /// The file.
        path: PathBuf,
        /// The name or the key that was asked for.
        name: String,
    },
    /// The name has another key already.
    #[error("{} has another key for `{name}`", path.display())]
    Taken {
        /// The file.
        path: PathBuf,
        /// The name.
        name: String,
    },
    /// The text is no key.
    #[error("not a key: 32 bytes in base64url, 43 characters")]
    NotAKey,
    /// The text is no name.
    #[error("not a name: letters, digits, `.`, `_`, `-` and `:`, at most 253")]
    NotAName,
    /// The library refused.
    #[error(transparent)]
    Crypto(#[from] SealError),
}

/// Where the keys of one person are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folder(PathBuf);

impl Folder {
    /// The folder itself; it need not be there.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// `.svc/webtty` in a home directory.
    pub fn in_home(home: &Path) -> Self {
        Self(home.join(".svc").join("webtty"))
    }

    /// The servers that a client knows.
    pub fn known_servers(&self) -> PathBuf {
        self.0.join("known_servers")
    }

    /// The clients that a server lets in.
    pub fn authorized_clients(&self) -> PathBuf {
        self.0.join("authorized_clients")
    }

    /// The file of the identity of this name.
    ///
    /// # Errors
    /// [`KeyError::NotAName`], also for names that are none of a file.
    pub fn identity(&self, name: &str) -> Result<PathBuf, KeyError> {
        if !is_name(name) || name.starts_with('.') || name.contains(':') {
            return Err(KeyError::NotAName);
        }
        Ok(self.0.join("identities").join(format!("{name}.key")))
    }

    /// The names of all identities, in their order.
    ///
    /// # Errors
    /// The folder cannot be read; one that is not there has none.
    pub fn identities(&self) -> Result<Vec<String>, KeyError> {
        let path = self.0.join("identities");
        let failed = |source| KeyError::File {
            path: path.clone(),
            source,
        };
        let entries = match std::fs::read_dir(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(failed)?,
        };
        let mut names = Vec::new();
        for entry in entries {
            let file = entry.map_err(failed)?.file_name();
            let name = file.to_str().and_then(|file| file.strip_suffix(".key"));
            names.extend(name.filter(|name| is_name(name)).map(str::to_owned));
        }
        names.sort();
        Ok(names)
    }
}

/// Makes a pair and keeps it in a new file.
///
/// # Errors
/// The file exists, or cannot be written.
pub fn create_identity(path: &Path) -> Result<Identity, KeyError> {
    let identity = Identity::generate()?;
    let private = Zeroizing::new(URL_SAFE_NO_PAD.encode(identity.expose_private()));
    let mut text = Zeroizing::new(String::new());
    // Writing into a string does not fail.
    let _written = write!(
        text,
        "public {}\nprivate {}\n",
        key_text(&identity.public()),
        private.as_str()
    );
    files::create(path, text.as_bytes())?;
    Ok(identity)
}

/// Reads the pair in a file.
///
/// # Errors
/// The file is not there, is open to others, or holds something else.
pub fn read_identity(path: &Path) -> Result<Identity, KeyError> {
    let text = Zeroizing::new(files::read(path)?);
    let (mut public, mut private) = (None, None);
    for (line, text) in files::lines(&text) {
        let wrong = |what| KeyError::Line {
            path: path.to_owned(),
            line,
            what,
        };
        let (word, key) = text.split_once(' ').unwrap_or((text, ""));
        let key = key_bytes(key.trim()).ok_or_else(|| wrong("not a key"));
        let slot = match word {
            "public" => &mut public,
            "private" => &mut private,
            _ => return Err(wrong("neither `public` nor `private`")),
        };
        if slot.replace(key?).is_some() {
            return Err(wrong("a second key"));
        }
    }
    let (Some(public), Some(private)) = (public, private) else {
        return Err(KeyError::Line {
            path: path.to_owned(),
            line: 1,
            what: "not both of a public and a private key",
        });
    };
    Identity::from_parts(&private, PublicKey::new(*public)).map_err(|_| KeyError::Mismatch {
        path: path.to_owned(),
    })
}

/// A public key as people copy it.
pub fn key_text(key: &PublicKey) -> String {
    URL_SAFE_NO_PAD.encode(key.as_bytes())
}

/// Reads what [`key_text`] wrote.
///
/// # Errors
/// [`KeyError::NotAKey`].
pub fn parse_key(text: &str) -> Result<PublicKey, KeyError> {
    let bytes = key_bytes(text).ok_or(KeyError::NotAKey)?;
    Ok(PublicKey::new(*bytes))
}

/// The id of a key as inventories show it (`svc.webtty.host_key_id`): 16 bytes in base64url.
pub fn key_id_text(key: &PublicKey) -> String {
    URL_SAFE_NO_PAD.encode(key.id())
}

/// What both ends bind a sealed session to: the id of the registered server, and nothing for one
/// that has no id. So what is sealed for one server is of no use at another that has the same key.
pub fn seal_context(server_id: Option<&str>) -> &[u8] {
    server_id.unwrap_or_default().as_bytes()
}

fn key_bytes(text: &str) -> Option<Zeroizing<[u8; KEY_LEN]>> {
    let bytes = Zeroizing::new(URL_SAFE_NO_PAD.decode(text).ok()?);
    bytes.as_slice().try_into().ok().map(Zeroizing::new)
}

fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= MAX_NAME
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-' | b':'))
}

/// The longest host name: servers are known by theirs.
const MAX_NAME: usize = 253;

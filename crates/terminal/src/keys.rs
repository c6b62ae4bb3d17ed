//! The keys of end-to-end encryption, in files of one user: the user's key pairs, the known
//! servers, and the authorized clients of a server.
//!
//! ```text
//! ~/.svc/webtty/identities/<name>.key    public <key>
//!                                        private <key>
//! ~/.svc/webtty/known_servers            <key> <name>
//! ~/.svc/webtty/authorized_clients       <key> <name>
//! ```
//!
//! A key is X25519, 32 bytes in base64url without padding. Empty lines and lines that begin with
//! `#` are ignored. Any other line of another form makes the whole file invalid, because an
//! incomplete list would admit or reject the wrong clients. All files must be accessible only to
//! their owner (0600), and other files are rejected. A file is replaced as a whole under a lock, so
//! that two programs can add entries concurrently.

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

/// Name of the default identity.
pub const DEFAULT_IDENTITY: &str = "default";

/// Errors of keys and their files.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file is missing, or cannot be read or written.
    #[error("{}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// Other users can read or write the file.
    #[error("{} is accessible to other users: fix it with `chmod 600`", path.display())]
    Shared {
        /// The file.
        path: PathBuf,
    },
    /// The file contains something other than keys.
    #[error("{}, line {line}: {what}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Line number, from 1.
        line: usize,
        /// The fault of the line.
        what: &'static str,
    },
    /// The private and the public key do not match.
    #[error("{}: the private key does not match the public key", path.display())]
    Mismatch {
        /// The file.
        path: PathBuf,
    },
    /// The file exists. It is not overwritten, because data sealed to its key would be lost.
    #[error("{} exists already", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The list does not contain the key.
    #[error("{} has no `{name}`", path.display())]
    Unknown {
        /// The file.
        path: PathBuf,
        /// The requested name or key.
        name: String,
    },
    /// The name already has another key.
    #[error("{} has another key for `{name}`", path.display())]
    Taken {
        /// The file.
        path: PathBuf,
        /// The name.
        name: String,
    },
    /// The text is not a key.
    #[error("not a key: 32 bytes in base64url, 43 characters")]
    NotAKey,
    /// The text is not a valid name.
    #[error("not a name: letters, digits, `.`, `_`, `-` and `:`, at most 253")]
    NotAName,
    /// The library failed.
    #[error(transparent)]
    Crypto(#[from] SealError),
}

/// Folder with the keys of one user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folder(PathBuf);

impl Folder {
    /// Uses this folder, which may not exist yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// `.svc/webtty` in a home directory.
    pub fn in_home(home: &Path) -> Self {
        Self(home.join(".svc").join("webtty"))
    }

    /// Path of the list of known servers.
    pub fn known_servers(&self) -> PathBuf {
        self.0.join("known_servers")
    }

    /// Path of the list of clients that a server accepts.
    pub fn authorized_clients(&self) -> PathBuf {
        self.0.join("authorized_clients")
    }

    /// Path of the identity with this name.
    ///
    /// # Errors
    /// [`KeyError::NotAName`], also for names that are unsuitable for files.
    pub fn identity(&self, name: &str) -> Result<PathBuf, KeyError> {
        if !is_name(name) || name.starts_with('.') || name.contains(':') {
            return Err(KeyError::NotAName);
        }
        Ok(self.0.join("identities").join(format!("{name}.key")))
    }

    /// Names of all identities, sorted.
    ///
    /// # Errors
    /// The folder cannot be read. A missing folder has no identities.
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

/// Generates a key pair and stores it in a new file.
///
/// # Errors
/// The file exists, or cannot be written.
pub fn create_identity(path: &Path) -> Result<Identity, KeyError> {
    let identity = Identity::generate()?;
    let private = Zeroizing::new(URL_SAFE_NO_PAD.encode(identity.expose_private()));
    let mut text = Zeroizing::new(String::new());
    // Writing into a string never fails.
    let _written = write!(
        text,
        "public {}\nprivate {}\n",
        key_text(&identity.public()),
        private.as_str()
    );
    files::create(path, text.as_bytes())?;
    Ok(identity)
}

/// Reads a key pair from a file.
///
/// # Errors
/// The file is missing, accessible to other users, or invalid.
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

/// A public key as text.
pub fn key_text(key: &PublicKey) -> String {
    URL_SAFE_NO_PAD.encode(key.as_bytes())
}

/// Parses the text of [`key_text`].
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

/// Context to which both ends bind a sealed session: the id of the registered server, or nothing if
/// it has none. Data that was sealed for one server is therefore useless at another server with the
/// same key.
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

/// Maximum length: that of host names, which are the names of servers.
const MAX_NAME: usize = 253;

//! Link passwords of a tunnel, from a file or from a prompt. They are hashed here; the engine
//! receives only the hashes.

use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::path::Path;
use std::sync::LazyLock;

use client::properties::LinkPassword;
use credentials::{Secret, link_password};
use parking_lot::Mutex;
use zeroize::Zeroizing;

use crate::failure::Failure;
use crate::prompt;

/// Reads the lines `name:password` of a file. The password may be a PHC string of argon2id instead.
/// Empty lines, and lines that start with `#`, are skipped.
///
/// # Errors
/// The reason, with the number of the line. It contains nothing of the file's content.
pub(crate) fn read(path: &Path) -> Result<Vec<LinkPassword>, String> {
    let file = File::open(path).map_err(|error| unreadable(path, &error))?;
    read_opened(&file, path)
}

/// Reads an opened file. Its permissions are checked and its content is read through the same
/// handle, because another file can get the name at any time.
fn read_opened(file: &File, path: &Path) -> Result<Vec<LinkPassword>, String> {
    let metadata = file.metadata().map_err(|error| unreadable(path, &error))?;
    if is_public(&metadata) {
        return Err(format!(
            "{} can be read by all users of this machine: run chmod 600 {0}, or for a secret of \
             Kubernetes set defaultMode: 0440",
            path.display()
        ));
    }
    let bytes = daemon::files::read_bounded_from(file, MAX_FILE_BYTES)
        .map_err(|error| unreadable(path, &error))?;
    let bytes = Zeroizing::new(bytes);
    let text = std::str::from_utf8(&bytes)
        .map_err(|_invalid| format!("{} is not UTF-8 text", path.display()))?;
    parse(text).map_err(|error| format!("{}: {error}", path.display()))
}

fn unreadable(path: &Path, error: &std::io::Error) -> String {
    format!("{} cannot be read: {error}", path.display())
}

/// Asks for a password twice. Visitors may send it with any user name.
///
/// # Errors
/// There is no terminal, or the answers cannot be used.
pub(crate) fn ask() -> Result<Vec<LinkPassword>, Failure> {
    if !prompt::is_possible() {
        return Err(Failure::usage(
            "--basic-auth asks for the password at a terminal, and there is none",
        )
        .hint("write the password to a file, and use --basic-auth-file"));
    }
    let password = Zeroizing::new(prompt::secret("password for visitors (it is not shown): ")?);
    // An unusable password is refused before it has to be entered again.
    let (_, entry) = entry("", &password)
        .map_err(|error| Failure::usage(format!("the password is not usable: {error}")))?;
    let again = Zeroizing::new(prompt::secret("the same password again: ")?);
    if password != again {
        return Err(Failure::usage("the two passwords differ"));
    }
    Ok(vec![entry])
}

/// Parses the content of a file. Editors of Windows start it with a byte order mark, which is not
/// part of the first name.
fn parse(text: &str) -> Result<Vec<LinkPassword>, String> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut checked = Vec::new();
    let mut entries = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let number = index + 1;
        let at_line = |reason: &dyn std::fmt::Display| format!("line {number}: {reason}");
        let (user, password) = line
            .split_once(':')
            .ok_or_else(|| at_line(&"no colon: a line is name:password"))?;
        let (checked_entry, entry) = entry(user, password).map_err(|error| at_line(&error))?;
        checked.push(checked_entry);
        entries.push(entry);
    }
    // Several entries are checked together, as the engine does.
    credentials::LinkPasswords::new(checked).map_err(|error| error.to_string())?;
    Ok(entries)
}

/// The entry of a user name and its password or hash, once as the engine checks it and once to
/// send.
fn entry(user: &str, password: &str) -> Result<(credentials::LinkPassword, LinkPassword), String> {
    if UNSUPPORTED.iter().any(|start| password.starts_with(start)) {
        return Err(
            "this kind of hash is not supported: write the password itself, or its hash with \
             argon2id"
                .to_owned(),
        );
    }
    let hash = hashed(user, password)?;
    let checked =
        credentials::LinkPassword::parse(user, &hash).map_err(|error| error.to_string())?;
    Ok((checked, LinkPassword::new(user, hash)))
}

/// The hash of a password. It has a new salt, except for a password that this process has hashed
/// before, so that a tunnel whose file is read again does not change.
fn hashed(user: &str, password: &str) -> Result<String, String> {
    if password.starts_with(ARGON2ID) {
        return Ok(password.to_owned());
    }
    link_password::check_user(user).map_err(|error| error.to_string())?;
    let key = credentials::digest(&Zeroizing::new(format!("{user}:{password}")));
    HASHES.get_or_compute(key, || {
        let mut salt = [0; link_password::SALT_BYTES];
        aws_lc_rs::rand::fill(&mut salt).map_err(|_unspecified| "no randomness".to_owned())?;
        link_password::hash(&Secret::new(password), &salt).map_err(|error| error.to_string())
    })
}

/// Hashes of the passwords that this process has read, by the digest of name and password.
struct HashCache {
    hashes: Mutex<HashMap<[u8; 32], String>>,
}

impl HashCache {
    /// Returns the hash of a key, and computes it if it is missing. The lock is held meanwhile, so
    /// that two callers with one key get one hash.
    fn get_or_compute(
        &self,
        key: [u8; 32],
        compute: impl FnOnce() -> Result<String, String>,
    ) -> Result<String, String> {
        let mut hashes = self.hashes.lock();
        if let Some(known) = hashes.get(&key) {
            return Ok(known.clone());
        }
        if hashes.len() == MAX_HASHES {
            hashes.clear();
        }
        let hash = compute()?;
        hashes.insert(key, hash.clone());
        Ok(hash)
    }
}

/// True if all users of the machine can read the file.
#[cfg(unix)]
pub(crate) fn is_public(metadata: &Metadata) -> bool {
    std::os::unix::fs::MetadataExt::mode(metadata) & 0o007 != 0
}

/// On other systems the folder of a user, with its content, is private by default.
#[cfg(not(unix))]
pub(crate) fn is_public(_metadata: &Metadata) -> bool {
    false
}

static HASHES: LazyLock<HashCache> = LazyLock::new(|| HashCache {
    hashes: Mutex::default(),
});

/// Hashes that are kept. The current passwords of 64 tunnels fit; a file that changes often does
/// not fill the memory.
const MAX_HASHES: usize = 1024;

/// Start of a hash in a file.
const ARGON2ID: &str = "$argon2id$";
/// Starts of the hashes that `htpasswd` and other programs write. As a password, such a text would
/// surely be a mistake.
const UNSUPPORTED: [&str; 9] = [
    "$apr1$",
    "$1$",
    "$2a$",
    "$2b$",
    "$2y$",
    "$5$",
    "$6$",
    "{SHA}",
    "$argon2i$",
];
/// Sixteen of the longest lines fit.
const MAX_FILE_BYTES: u64 = 16 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: &str = "$argon2id$v=19$m=19456,t=2,p=1$Y29ycmVjdGhvcnNl$\
                        YmF0dGVyeXN0YXBsZWJhdHRlcnlzdGFwbGU";

    fn error(text: &str) -> String {
        parse(text).unwrap_err()
    }

    #[test]
    fn lines_become_hashed_entries() {
        let text = format!("# for the fair\r\nann:one:two\r\n\n:for everybody\nbob:{HASH}\n");
        let entries = parse(&text).unwrap();
        assert_eq!(entries.len(), 3);
        assert_eq!(entries[2], LinkPassword::new("bob", HASH));
        assert_ne!(
            entries[0],
            LinkPassword::new("ann", "one:two"),
            "the password itself does not leave"
        );
        assert_eq!(
            entries,
            parse(&text).unwrap(),
            "the same file changes nothing"
        );
    }

    #[test]
    fn a_byte_order_mark_is_not_part_of_the_first_line() {
        for text in ["ann:one\n", ":for everybody\n", "# a comment\nann:one\n"] {
            let marked = parse(&format!("\u{feff}{text}")).unwrap();
            assert_eq!(marked, parse(text).unwrap(), "{text}");
        }
    }

    #[test]
    fn two_readers_of_one_password_get_one_hash() {
        let cache = HashCache {
            hashes: Mutex::default(),
        };
        let computing = std::sync::Barrier::new(2);
        let hashes = std::thread::scope(|scope| {
            let first = scope.spawn(|| {
                cache.get_or_compute([0; 32], || {
                    computing.wait();
                    Ok("first".to_owned())
                })
            });
            computing.wait();
            let second = cache.get_or_compute([0; 32], || Ok("second".to_owned()));
            [first.join().unwrap(), second].map(Result::unwrap)
        });
        assert_eq!(hashes, ["first", "first"]);
    }

    #[test]
    fn the_number_of_kept_hashes_is_limited() {
        let cache = HashCache {
            hashes: Mutex::default(),
        };
        for number in 0..=MAX_HASHES {
            let mut key = [0; 32];
            key[..8].copy_from_slice(&number.to_be_bytes());
            cache.get_or_compute(key, || Ok(String::new())).unwrap();
            assert!(cache.hashes.lock().len() <= MAX_HASHES);
        }
    }

    #[test]
    fn a_wrong_line_is_named_and_not_shown() {
        for (text, expected) in [
            ("ann:secret\nsecret\n", "line 2: no colon"),
            ("ann:\n", "line 1: a password has 1 to 256 bytes"),
            ("ann:$2y$secret\n", "line 1: this kind of hash"),
            ("ann:$argon2id$secret\n", "line 1: the hash is not a PHC"),
            ("a\u{7}nn:secret\n", "line 1: a user name has"),
            ("ann:secret\nann:secret\n", "a user name is repeated"),
            ("# nothing\n\n", "a password is missing"),
        ] {
            let error = error(text);
            assert!(error.starts_with(expected), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_file_that_all_users_can_read_is_refused() {
        use std::os::unix::fs::PermissionsExt as _;

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("passwords");
        std::fs::write(&path, "ann:one\n").unwrap();
        let set_mode = |mode| {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        set_mode(0o644);
        let refused = read(&path).unwrap_err();
        for part in ["chmod 600", "defaultMode: 0440"] {
            assert!(refused.contains(part), "{refused}");
        }
        for private in [0o600, 0o640] {
            set_mode(private);
            assert_eq!(read(&path).unwrap().len(), 1, "{private:o}");
        }
        let missing = read(&folder.path().join("missing")).unwrap_err();
        assert!(missing.contains("cannot be read"), "{missing}");
    }

    /// A file that is replaced while it is read.
    #[cfg(unix)]
    #[test]
    fn the_permissions_are_those_of_the_file_that_is_read() {
        use std::os::unix::fs::PermissionsExt as _;

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("passwords");
        for (mode, mode_of_next, is_accepted) in [(0o600, 0o644, true), (0o644, 0o600, false)] {
            let replace = |text: &str, mode| {
                let new = folder.path().join("new");
                std::fs::write(&new, text).unwrap();
                std::fs::set_permissions(&new, std::fs::Permissions::from_mode(mode)).unwrap();
                std::fs::rename(&new, &path).unwrap();
            };
            replace("ann:one\n", mode);
            let opened = File::open(&path).unwrap();
            replace("ann:two\n", mode_of_next);
            let read = read_opened(&opened, &path);
            assert_eq!(read.is_ok(), is_accepted, "{mode:o} {read:?}");
            if is_accepted {
                assert_eq!(read, parse("ann:one\n"));
            }
        }
    }
}

//! Resolves the path of a request to a file.

use std::{
    ffi::OsStr,
    fs, io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, percent_encode};

/// A folder whose files may be requested.
#[derive(Debug)]
pub(super) struct FolderRoot {
    /// Path without symbolic links, so that it is a prefix of every path inside the folder.
    root: PathBuf,
    hidden: bool,
}

/// Result of resolving a path.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PathTarget {
    /// A file.
    File(PathBuf),
    /// A folder without an index. `at` is the path of its URL, with a final slash.
    Folder { path: PathBuf, at: String },
    /// A folder whose URL lacks the final slash, with the corrected path.
    Moved(String),
    /// The path does not exist or may not be seen.
    NotFound,
}

impl FolderRoot {
    /// # Errors
    /// The path `folder` does not exist, or is not a folder.
    pub(super) fn new(folder: &Path, hidden: bool) -> io::Result<Self> {
        let root = fs::canonicalize(folder)?;
        if !root.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        Ok(Self { root, hidden })
    }

    /// Resolves the path of a request. Reads the file system.
    pub(super) fn find(&self, path: &str) -> PathTarget {
        let Some(names) = self.names(path) else {
            return PathTarget::NotFound;
        };
        let inside: PathBuf = names.iter().map(|name| OsStr::from_bytes(name)).collect();
        let Some(real) = self.canonicalize(&self.root.join(inside)) else {
            return PathTarget::NotFound;
        };
        let has_slash = path.ends_with('/');
        if real.is_file() {
            // `/page.html/` is not a file.
            return if has_slash {
                PathTarget::NotFound
            } else {
                PathTarget::File(real)
            };
        }
        if !real.is_dir() {
            return PathTarget::NotFound;
        }
        // The path is rebuilt from its segments, because a path that starts with two slashes would
        // lead to another host.
        let mut at = String::from("/");
        for name in &names {
            at.push_str(&encoded(name));
            at.push('/');
        }
        if !has_slash {
            return PathTarget::Moved(at);
        }
        match self.canonicalize(&real.join("index.html")) {
            Some(index) if index.is_file() => PathTarget::File(index),
            _ => PathTarget::Folder { path: real, at },
        }
    }

    /// True if an entry of a listing may be shown.
    pub(super) fn is_visible(&self, entry: &Path) -> bool {
        self.canonicalize(entry).is_some()
    }

    /// The decoded segments of a path. `None` if a segment is invalid or must not be seen.
    fn names(&self, path: &str) -> Option<Vec<Vec<u8>>> {
        path.strip_prefix('/')?
            .split('/')
            .filter(|name| !name.is_empty())
            .map(|name| {
                let name: Vec<u8> = percent_decode_str(name).collect();
                let is_name = !matches!(name.as_slice(), b"." | b"..")
                    && !name.iter().any(|byte| matches!(byte, b'/' | 0));
                (is_name && self.may_see(&name)).then_some(name)
            })
            .collect()
    }

    fn may_see(&self, name: &[u8]) -> bool {
        self.hidden || !name.starts_with(b".")
    }

    /// The canonical path, if it is inside the folder and may be seen. A user with write access
    /// could replace it with a link before it is opened, but could also copy the file itself.
    fn canonicalize(&self, path: &Path) -> Option<PathBuf> {
        let real = fs::canonicalize(path).ok()?;
        let inside = real.strip_prefix(&self.root).ok()?;
        let may_see = inside.iter().all(|name| self.may_see(name.as_bytes()));
        may_see.then_some(real)
    }
}

/// Percent-encodes a name for a URL.
pub(super) fn encoded(name: &[u8]) -> String {
    percent_encode(name, NAME).to_string()
}

/// Characters that are reserved in a path segment (RFC 3986 section 3.3) or special in HTML.
const NAME: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'&')
    .add(b'\'')
    .add(b'/')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

//! Which file a path means.

use std::{
    ffi::OsStr,
    fs, io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, percent_encode};

/// A folder whose files may be asked for.
#[derive(Debug)]
pub(super) struct Place {
    /// Without links, so that what lies in it begins with it.
    root: PathBuf,
    hidden: bool,
}

/// What a path means.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PathTarget {
    /// A file.
    File(PathBuf),
    /// A folder without an index, and the path of its address, with a slash at the end.
    Folder { path: PathBuf, at: String },
    /// A folder whose address lacks its last slash; the path that has it.
    Moved(String),
    /// Nothing that may be seen.
    Nothing,
}

impl Place {
    /// # Errors
    /// `folder` is not there, or is no folder.
    pub(super) fn new(folder: &Path, hidden: bool) -> io::Result<Self> {
        let root = fs::canonicalize(folder)?;
        if !root.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        Ok(Self { root, hidden })
    }

    /// What the path of a request means. It looks at the file system.
    pub(super) fn find(&self, path: &str) -> PathTarget {
        let Some(names) = self.names(path) else {
            return PathTarget::Nothing;
        };
        let inside: PathBuf = names.iter().map(|name| OsStr::from_bytes(name)).collect();
        let Some(real) = self.real(&self.root.join(inside)) else {
            return PathTarget::Nothing;
        };
        let has_slash = path.ends_with('/');
        if real.is_file() {
            // `/page.html/` is no file.
            return if has_slash {
                PathTarget::Nothing
            } else {
                PathTarget::File(real)
            };
        }
        if !real.is_dir() {
            return PathTarget::Nothing;
        }
        // Made anew from its names: what begins with two slashes would lead elsewhere.
        let mut at = String::from("/");
        for name in &names {
            at.push_str(&encoded(name));
            at.push('/');
        }
        if !has_slash {
            return PathTarget::Moved(at);
        }
        match self.real(&real.join("index.html")) {
            Some(index) if index.is_file() => PathTarget::File(index),
            _ => PathTarget::Folder { path: real, at },
        }
    }

    /// Whether an entry of a list may be seen.
    pub(super) fn shows(&self, entry: &Path) -> bool {
        self.real(entry).is_some()
    }

    /// The names of a path; nothing where one of them is none, or must not be seen.
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

    /// Where a path really is, when that is inside and may be seen. Whoever may change the folder
    /// could put a link there between this look and the opening; they could as well copy the file.
    fn real(&self, path: &Path) -> Option<PathBuf> {
        let real = fs::canonicalize(path).ok()?;
        let inside = real.strip_prefix(&self.root).ok()?;
        let may_see = inside.iter().all(|name| self.may_see(name.as_bytes()));
        may_see.then_some(real)
    }
}

/// A name as it stands in an address.
pub(super) fn encoded(name: &[u8]) -> String {
    percent_encode(name, NAME).to_string()
}

/// What is not itself in a segment of a path (RFC 3986 section 3.3), and what means something in
/// HTML.
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

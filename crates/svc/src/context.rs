//! Contexts: which engine, with which token, so that a second terminal needs no flags.
//!
//! A context is a small JSON file, readable by its owner alone, in `contexts/` of the
//! configuration directory. `svc up` writes the one called [`LOCAL`] and takes it away again.

use std::{
    fs, io,
    io::Write,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::failure::Failure;

/// The context that is used where none is named.
pub(crate) const LOCAL: &str = "local";

/// Where to connect and with what.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Context {
    /// `host:port` of the engine.
    pub(crate) engine: String,
    /// The token.
    pub(crate) token: String,
    /// The CA that vouches for the engine, where it is not a public one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ca_file: Option<PathBuf>,
}

impl Context {
    /// Reads a context; `None` when there is none of this name.
    pub(crate) fn read(directory: &Path, name: &str) -> Result<Option<Self>, Failure> {
        let path = file(directory, name)?;
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                return Err(Failure::of(
                    &format!("cannot read {}", path.display()),
                    error,
                ));
            }
        };
        serde_json::from_slice(&text).map(Some).map_err(|error| {
            Failure::usage(format!("{} is no context: {error}", path.display()))
                .hint("remove the file, or write it again with `svc up`")
        })
    }

    /// Writes a context, for its owner alone, and returns the file that removes it.
    pub(crate) fn write(&self, directory: &Path, name: &str) -> Result<Written, Failure> {
        let path = file(directory, name)?;
        let text = serde_json::to_vec_pretty(self)
            .map_err(|error| Failure::of("the context cannot be written", error))?;
        write_private(&path, &text)
            .map_err(|error| Failure::of(&format!("cannot write {}", path.display()), error))?;
        Ok(Written { path, text })
    }
}

/// A context that this process wrote.
#[derive(Debug)]
pub(crate) struct Written {
    path: PathBuf,
    text: Vec<u8>,
}

impl Drop for Written {
    /// Removes the file, unless somebody else has written it since.
    fn drop(&mut self) {
        if fs::read(&self.path).is_ok_and(|now| now == self.text) {
            // What is left behind names an engine that does not answer, which says enough.
            drop(fs::remove_file(&self.path));
        }
    }
}

/// Writes a file whole or not at all, readable by its owner alone from the first byte on.
pub(crate) fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("."));
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)?;
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(format!(".{}", std::process::id()));
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&unfinished)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&unfinished, path)
}

fn file(directory: &Path, name: &str) -> Result<PathBuf, Failure> {
    let plain = !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
    if !plain {
        return Err(Failure::usage(format!("`{name}` is no name of a context")));
    }
    Ok(directory.join("contexts").join(format!("{name}.json")))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn context() -> Context {
        Context {
            engine: "engine.localhost:8443".to_owned(),
            token: "a.b.c".to_owned(),
            ca_file: Some("/data/ca.pem".into()),
        }
    }

    #[test]
    fn a_context_is_for_its_owner_alone_and_goes_with_its_writer() {
        let dir = tempfile::tempdir().unwrap();
        let written = context().write(dir.path(), LOCAL).unwrap();
        let mode = fs::metadata(&written.path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(Context::read(dir.path(), LOCAL).unwrap() == Some(context()));
        drop(written);
        assert!(Context::read(dir.path(), LOCAL).unwrap().is_none());
    }

    #[test]
    fn a_context_that_another_process_wrote_stays() {
        let dir = tempfile::tempdir().unwrap();
        let first = context().write(dir.path(), LOCAL).unwrap();
        let other = Context {
            engine: "other:1".to_owned(),
            ..context()
        };
        let second = other.write(dir.path(), LOCAL).unwrap();
        drop(first);
        assert!(Context::read(dir.path(), LOCAL).unwrap() == Some(other));
        drop(second);
    }

    #[test]
    fn a_name_cannot_leave_the_directory() {
        for name in ["", "../x", "a/b", "a.b"] {
            assert!(
                Context::read(Path::new("/nowhere"), name).is_err(),
                "{name}"
            );
        }
    }
}

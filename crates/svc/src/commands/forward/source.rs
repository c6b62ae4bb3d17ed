//! The source that is published: a service, or the files of a folder.

use std::{
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
};

use client::Target;

/// The argument of `svc forward`.
///
/// A folder is written with a leading slash or dot (`./dist`, `.`, `/srv/www`), as `folder:PATH`,
/// or as the name of an existing folder. Text that is a valid service is always a service: the
/// folder `3000` is `./3000`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The address of a service.
    Service(Target),
    /// The files of a folder.
    Folder(PathBuf),
}

impl FromStr for Source {
    type Err = ParseSourceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.strip_prefix("folder:") {
            Some("") => return Err(ParseSourceError),
            Some(path) => return Ok(Self::Folder(path.into())),
            None => {}
        }
        if let Ok(target) = text.parse() {
            return Ok(Self::Service(target));
        }
        let has_scheme = text.contains("://") || text.starts_with("unix:");
        let is_path = text.contains('/') || text.starts_with('.');
        if !text.is_empty() && !has_scheme && (is_path || Path::new(text).is_dir()) {
            return Ok(Self::Folder(text.into()));
        }
        Err(ParseSourceError)
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Service(target) => target.fmt(f),
            Self::Folder(path) => path.display().fmt(f),
        }
    }
}

/// The text is neither a service nor a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ParseSourceError;

impl fmt::Display for ParseSourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "a target is a port, `host:port`, `https://host:port`, `unix:/path` or a folder",
        )
    }
}

impl std::error::Error for ParseSourceError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_folders_and_other_texts_are_services() {
        for (text, folder) in [
            (".", "."),
            ("..", ".."),
            ("./dist", "./dist"),
            ("dist/", "dist/"),
            ("a/b", "a/b"),
            ("/srv/www", "/srv/www"),
            ("./3000", "./3000"),
            ("folder:3000", "3000"),
            // A folder of this crate, which is the working directory of its tests.
            ("src", "src"),
        ] {
            assert_eq!(text.parse(), Ok(Source::Folder(folder.into())), "{text}");
        }
        for text in [
            "3000",
            ":80",
            "db.internal:5432",
            "https://a",
            "unix:/run/a",
        ] {
            assert!(matches!(text.parse(), Ok(Source::Service(_))), "{text}");
        }
        for text in [
            "",
            "not-there",
            "folder:",
            "ftp://a/b",
            "https://a/b",
            "unix:",
        ] {
            assert_eq!(text.parse::<Source>(), Err(ParseSourceError), "{text}");
        }
    }
}

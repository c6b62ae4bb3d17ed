//! Contexts: saved platform, engine and token, so that commands need no flags.
//!
//! A context is a small JSON file in `contexts/` of the configuration directory, readable only by
//! its owner. `svc up` writes the context [`LOCAL`] and removes it at its end. `svc login` writes
//! the context [`DEFAULT`], unless another one is named.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use client::Token;
use serde::{Deserialize, Serialize};
use terminal::private;

use crate::args::suggest;
use crate::failure::{Code, Failure};
use crate::keyring::Account;

/// The context of a running `svc up`. It is the default while `svc up` runs, because its user wants
/// to try it.
pub(crate) const LOCAL: &str = "local";

/// The context that is used if none is named or selected and no `svc up` runs.
pub(crate) const DEFAULT: &str = "default";

/// Addresses and token of a saved connection.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Context {
    /// Origin of the platform.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) api_url: Option<String>,
    /// `host:port` of the engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) engine: Option<String>,
    /// Token for the platform and the engine.
    #[serde(flatten)]
    pub(crate) token: TokenStorage,
    /// CA certificates for the platform and the engine, unless they are public.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ca_file: Option<PathBuf>,
    /// Default workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) workspace_id: Option<String>,
    /// Default project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) project: Option<SelectedProject>,
    /// Data directory of a running `svc up`, for commands that access its files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) data_dir: Option<PathBuf>,
}

/// Storage of a context's token. One of the variants is in the file.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TokenStorage {
    /// In the file.
    Token(String),
    /// In the system keyring.
    KeyringAccount(Account),
}

/// The default project.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SelectedProject {
    /// Id.
    pub(crate) id: String,
    /// Endpoint.
    pub(crate) endpoint: String,
}

/// Reason why a context is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContextSource {
    /// Named by a flag or variable.
    Named,
    /// Selected with `svc context use`.
    Selected,
    /// `svc up` is running.
    Running,
    /// The default.
    Fallback,
}

/// Returns the named context, which must exist. Otherwise returns the selected one, that of a
/// running `svc up`, or the default one, in this order. Also returns its name.
pub(crate) fn load_effective(
    directory: &Path,
    name: Option<&str>,
) -> Result<(String, Option<Context>), Failure> {
    let (name, _why) = effective_name(directory, name)?;
    let context = Context::read(directory, &name)?;
    Ok((name, context))
}

/// Selects the context, with the reason.
pub(crate) fn effective_name(
    directory: &Path,
    name: Option<&str>,
) -> Result<(String, ContextSource), Failure> {
    if let Some(name) = name.filter(|name| !name.is_empty()) {
        return match Context::read(directory, name)? {
            Some(_) => Ok((name.to_owned(), ContextSource::Named)),
            None => Err(unknown_context(directory, name)),
        };
    }
    if let Some(name) = selected(directory) {
        return match Context::read(directory, &name)? {
            Some(_) => Ok((name, ContextSource::Selected)),
            None => Err(unknown_context(directory, &name)
                .hint("`svc context use` without a name clears the selection")),
        };
    }
    match Context::read(directory, LOCAL)? {
        Some(_) => Ok((LOCAL.to_owned(), ContextSource::Running)),
        None => Ok((DEFAULT.to_owned(), ContextSource::Fallback)),
    }
}

/// The failure for a context name that does not exist.
pub(crate) fn unknown_context(directory: &Path, name: &str) -> Failure {
    let known = names(directory).unwrap_or_default();
    let failure =
        Failure::usage(format!("context `{name}` does not exist")).named("context_not_found");
    match suggest::nearest(name, known.iter().map(String::as_str)) {
        Some(known) => failure.hint(format!("did you mean `{known}`?")),
        None => failure.hint(format!(
            "create it with `svc login --context {name}` or `svc context set {name}`"
        )),
    }
}

/// The names of all contexts, sorted.
pub(crate) fn names(directory: &Path) -> Result<Vec<String>, Failure> {
    let folder = directory.join("contexts");
    let failed = |error| Failure::from_error(&format!("cannot read {}", folder.display()), error);
    let entries = match fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let path = entry.map_err(failed)?.path();
        let stem = path.file_stem().and_then(|stem| stem.to_str());
        // A file that is being written has a different extension.
        let is_json = path
            .extension()
            .is_some_and(|extension| extension == "json");
        if let Some(name) = stem.filter(|name| is_json && is_name(name)) {
            names.push(name.to_owned());
        }
    }
    names.sort();
    Ok(names)
}

/// The context that was selected with `svc context use`.
pub(crate) fn selected(directory: &Path) -> Option<String> {
    let text = fs::read_to_string(directory.join(SELECTED_FILE)).ok()?;
    let name = text.trim();
    is_name(name).then(|| name.to_owned())
}

/// Selects a context, or clears the selection.
pub(crate) fn select(directory: &Path, name: Option<&str>) -> Result<(), Failure> {
    let path = directory.join(SELECTED_FILE);
    let written = match name {
        Some(name) => private::write(&path, format!("{name}\n").as_bytes()),
        None => match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        },
    };
    written.map_err(|error| Failure::from_error(&format!("cannot write {}", path.display()), error))
}

impl TokenStorage {
    /// Reads the token.
    pub(crate) fn token(&self) -> Result<Token, Failure> {
        match self {
            Self::Token(token) => Ok(Token::new(token)),
            Self::KeyringAccount(account) => account.token()?.ok_or_else(|| {
                Failure::new(
                    Code::Failed,
                    format!("the keyring has no token for {account}"),
                )
                .hint("sign in again with `svc login`")
            }),
        }
    }

    /// True without a token.
    pub(crate) fn is_none(&self) -> bool {
        matches!(self, Self::Token(token) if token.trim().is_empty())
    }

    /// The keyring account, if the token is in the keyring.
    pub(crate) fn account(&self) -> Option<&Account> {
        match self {
            Self::Token(_) => None,
            Self::KeyringAccount(account) => Some(account),
        }
    }
}

impl Default for TokenStorage {
    /// Starts without a token.
    fn default() -> Self {
        Self::Token(String::new())
    }
}

/// The keyring account for the token of a context. It is the path of the context's file, which is
/// unique for this user.
pub(crate) fn account(directory: &Path, name: &str) -> Result<Account, Failure> {
    let path = file(directory, name)?;
    let path = std::path::absolute(&path).map_err(|error| {
        Failure::from_error(&format!("{} is not a file", path.display()), error)
    })?;
    Ok(Account::new(path.to_string_lossy()))
}

impl Context {
    /// Reads a context. `None` if it does not exist.
    pub(crate) fn read(directory: &Path, name: &str) -> Result<Option<Self>, Failure> {
        let path = file(directory, name)?;
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                return Err(Failure::from_error(
                    &format!("cannot read {}", path.display()),
                    error,
                ));
            }
        };
        serde_json::from_slice(&text).map(Some).map_err(|error| {
            Failure::usage(format!("{} is not a context: {error}", path.display()))
                .hint("remove the file, or recreate it with `svc up`")
        })
    }

    /// Writes a context, readable only by its owner.
    pub(crate) fn save(&self, directory: &Path, name: &str) -> Result<(), Failure> {
        let path = file(directory, name)?;
        let text = serde_json::to_vec_pretty(self)
            .map_err(|error| Failure::from_error("the context cannot be written", error))?;
        private::write(&path, &text).map_err(|error| {
            Failure::from_error(&format!("cannot write {}", path.display()), error)
        })
    }

    /// Removes a context. Returns false if it did not exist.
    pub(crate) fn remove(directory: &Path, name: &str) -> Result<bool, Failure> {
        let path = file(directory, name)?;
        match fs::remove_file(&path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(Failure::from_error(
                &format!("cannot remove {}", path.display()),
                error,
            )),
        }
    }

    /// Writes a context for the lifetime of the returned value.
    pub(crate) fn write(&self, directory: &Path, name: &str) -> Result<TemporaryContext, Failure> {
        self.save(directory, name)?;
        Ok(TemporaryContext {
            directory: directory.to_owned(),
            name: name.to_owned(),
            context: self.clone(),
        })
    }

    /// True if both have the same target, even if the selected project differs. Projects of a
    /// platform have addresses of one engine that differ in the first label.
    fn has_same_target(&self, other: &Self) -> bool {
        let domain = |context: &Self| {
            let engine = context.engine.as_deref()?;
            let domain = engine.split_once('.').map(|(_endpoint, domain)| domain);
            Some(domain.unwrap_or(engine).to_owned())
        };
        let is_same_engine = if self.api_url.is_some() {
            domain(self) == domain(other)
        } else {
            self.engine == other.engine
        };
        is_same_engine && (&self.api_url, &self.token) == (&other.api_url, &other.token)
    }
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context")
            .field("api_url", &self.api_url)
            .field("engine", &self.engine)
            .finish_non_exhaustive()
    }
}

/// A context that this process wrote.
#[derive(Debug)]
pub(crate) struct TemporaryContext {
    directory: PathBuf,
    name: String,
    context: Context,
}

impl Drop for TemporaryContext {
    /// Removes the file, unless another process has replaced it.
    fn drop(&mut self) {
        let now = Context::read(&self.directory, &self.name);
        if now.is_ok_and(|now| now.is_some_and(|now| now.has_same_target(&self.context))) {
            // A leftover file names an engine that does not respond, and commands report that.
            drop(Context::remove(&self.directory, &self.name));
        }
    }
}

/// Path of a context's file.
pub(crate) fn file(directory: &Path, name: &str) -> Result<PathBuf, Failure> {
    if !is_name(name) {
        return Err(Failure::usage(format!("`{name}` is not a context name"))
            .hint("letters, digits, `-` and `_`"));
    }
    Ok(directory.join("contexts").join(format!("{name}.json")))
}

fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

/// The file with the name of the selected context, beside `contexts/`.
const SELECTED_FILE: &str = "selected";

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn context() -> Context {
        Context {
            engine: Some("engine.localhost:8443".to_owned()),
            token: TokenStorage::Token("a.b.c".to_owned()),
            ca_file: Some("/data/ca.pem".into()),
            ..Context::default()
        }
    }

    #[test]
    fn a_temporary_context_is_private_and_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let written = context().write(dir.path(), LOCAL).unwrap();
        let path = file(dir.path(), LOCAL).unwrap();
        let mode = fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(Context::read(dir.path(), LOCAL).unwrap() == Some(context()));
        drop(written);
        assert!(Context::read(dir.path(), LOCAL).unwrap().is_none());
    }

    #[test]
    fn a_temporary_context_with_a_selected_project_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let written = context().write(dir.path(), LOCAL).unwrap();
        let selected = Context {
            project: Some(SelectedProject {
                id: "prj_1".to_owned(),
                endpoint: "e7e8a732".to_owned(),
            }),
            ..context()
        };
        selected.save(dir.path(), LOCAL).unwrap();
        drop(written);
        assert!(Context::read(dir.path(), LOCAL).unwrap().is_none());
    }

    #[test]
    fn a_context_of_another_process_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let first = context().write(dir.path(), LOCAL).unwrap();
        let other = Context {
            engine: Some("other:1".to_owned()),
            ..context()
        };
        let second = other.write(dir.path(), LOCAL).unwrap();
        drop(first);
        assert!(Context::read(dir.path(), LOCAL).unwrap() == Some(other));
        drop(second);
    }

    #[test]
    fn a_running_up_overrides_the_default_and_a_name_overrides_both() {
        let dir = tempfile::tempdir().unwrap();
        let picked = |name| load_effective(dir.path(), name).map(|(name, _context)| name);
        assert_eq!(picked(None).unwrap(), DEFAULT);
        context().save(dir.path(), DEFAULT).unwrap();
        assert_eq!(picked(None).unwrap(), DEFAULT);
        context().save(dir.path(), LOCAL).unwrap();
        assert_eq!(picked(None).unwrap(), LOCAL);
        assert_eq!(picked(Some(DEFAULT)).unwrap(), DEFAULT);
        let missing = picked(Some("work")).unwrap_err();
        assert!(missing.to_string().contains("`work`"), "{missing}");
    }

    #[test]
    fn a_selection_overrides_a_running_up_but_not_a_name() {
        let dir = tempfile::tempdir().unwrap();
        for name in [DEFAULT, LOCAL, "work"] {
            context().save(dir.path(), name).unwrap();
        }
        assert_eq!(names(dir.path()).unwrap(), [DEFAULT, LOCAL, "work"]);
        select(dir.path(), Some("work")).unwrap();
        let chosen = |name| effective_name(dir.path(), name).unwrap();
        assert_eq!(chosen(None), ("work".to_owned(), ContextSource::Selected));
        assert_eq!(
            chosen(Some(LOCAL)),
            (LOCAL.to_owned(), ContextSource::Named)
        );
        Context::remove(dir.path(), "work").unwrap();
        let gone = effective_name(dir.path(), None).unwrap_err();
        assert!(gone.to_string().contains("svc context use"), "{gone}");
        select(dir.path(), None).unwrap();
        select(dir.path(), None).unwrap();
        assert_eq!(chosen(None), (LOCAL.to_owned(), ContextSource::Running));
        let slip = effective_name(dir.path(), Some("defualt")).unwrap_err();
        assert!(slip.to_string().contains("`default`?"), "{slip}");
    }

    #[test]
    fn the_file_contains_the_token_storage() {
        let text = |token| {
            serde_json::to_string(&Context {
                token,
                ..Context::default()
            })
            .unwrap()
        };
        let (here, account) = ("a.b.c".to_owned(), Account::new("/c/default.json"));
        assert_eq!(text(TokenStorage::Token(here)), r#"{"token":"a.b.c"}"#);
        let elsewhere = text(TokenStorage::KeyringAccount(account.clone()));
        assert_eq!(elsewhere, r#"{"keyring_account":"/c/default.json"}"#);
        let read: Context = serde_json::from_str(&elsewhere).unwrap();
        assert_eq!(read.token.account(), Some(&account));
        assert!(serde_json::from_str::<Context>("{}").is_err());
    }

    #[test]
    fn contexts_of_two_directories_have_different_accounts() {
        let account = |directory: &str, name| account(Path::new(directory), name).unwrap();
        assert_eq!(account("/a", "x"), account("/a/", "x"));
        assert_ne!(account("/a", "x"), account("/b", "x"));
        assert_ne!(account("/a", "x"), account("/a", "y"));
        assert!(account("a", "x").to_string().starts_with('/'));
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

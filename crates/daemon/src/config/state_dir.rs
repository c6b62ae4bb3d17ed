//! The state directory of a service.

use std::path::PathBuf;

/// The state directory by the conventions of the environment.
#[derive(Debug, PartialEq, Eq)]
pub enum StateDir {
    /// Exclusive to this service (systemd.exec(5), `StateDirectory=`).
    Exclusive(PathBuf),
    /// Shared by all programs of a user (XDG Base Directory Specification).
    Shared(PathBuf),
}

impl StateDir {
    /// Reads `$STATE_DIRECTORY`, `$XDG_STATE_HOME` and `$HOME`, in this order; relative paths are
    /// ignored.
    pub fn of_environment(env: &[(String, String)]) -> Option<Self> {
        let variable = |name: &str| {
            let found = env.iter().find(|(key, _)| key == name);
            let value = found.map(|(_, value)| value.as_str())?;
            let first = value.split(':').next().unwrap_or_default();
            Some(PathBuf::from(first)).filter(|path| path.is_absolute())
        };
        let home = || variable("HOME").map(|home| home.join(".local/state"));
        variable("STATE_DIRECTORY")
            .map(Self::Exclusive)
            .or_else(|| {
                let shared = variable("XDG_STATE_HOME").or_else(home);
                shared.map(Self::Shared)
            })
    }

    /// The directory of `part` (`engine`); in a shared state directory with a subdirectory for
    /// `name` (a host).
    pub fn subdirectory(self, part: &str, name: &str) -> PathBuf {
        match self {
            Self::Exclusive(path) => path,
            Self::Shared(path) => path.join("svc").join(part).join(name),
        }
    }
}

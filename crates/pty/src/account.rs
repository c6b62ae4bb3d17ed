//! Accounts of this host.

use std::ffi::CString;
use std::path::{Path, PathBuf};

use nix::unistd::{Gid, Uid, User, geteuid};

/// An account, as the host's database of accounts has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    name: String,
    uid: Uid,
    gid: Gid,
    home: PathBuf,
    shell: PathBuf,
}

/// Why an account cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AccountError {
    /// Nobody is called so, or has this number.
    #[error("there is no account `{0}`")]
    Unknown(String),
    /// The database of accounts could not be asked.
    #[error("the accounts cannot be read: {0}")]
    Unreadable(#[source] std::io::Error),
    /// Only root becomes somebody else.
    #[error("only root can run commands as `{0}`")]
    NotRoot(String),
}

impl Account {
    /// The account of this process.
    ///
    /// # Errors
    /// It has none, as some containers have it, or the database cannot be read.
    pub fn own() -> Result<Self, AccountError> {
        let uid = geteuid();
        found(User::from_uid(uid), || uid.to_string())
    }

    /// The account with this name.
    ///
    /// # Errors
    /// There is none, or the database cannot be read.
    pub fn named(name: &str) -> Result<Self, AccountError> {
        found(User::from_name(name), || name.to_owned())
    }

    /// The account with this number.
    ///
    /// # Errors
    /// There is none, or the database cannot be read.
    pub fn numbered(uid: u32) -> Result<Self, AccountError> {
        found(User::from_uid(Uid::from_raw(uid)), || uid.to_string())
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its number.
    pub fn uid(&self) -> u32 {
        self.uid.as_raw()
    }

    /// Its home.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// What it logs in with; `/bin/sh` where its entry names nothing.
    pub fn shell(&self) -> &Path {
        &self.shell
    }

    /// Whether this process runs as it.
    pub fn is_own(&self) -> bool {
        self.uid == geteuid()
    }

    /// Whether commands can be run as it from here.
    ///
    /// # Errors
    /// It is another account, and this process is not root.
    pub fn check(&self) -> Result<(), AccountError> {
        if self.is_own() || geteuid().is_root() {
            Ok(())
        } else {
            Err(AccountError::NotRoot(self.name.clone()))
        }
    }

    /// What a process takes on to be this account. Looked up here, not in the new process: there,
    /// no memory may be asked for.
    pub(crate) fn identity(&self) -> std::io::Result<Identity> {
        let name = CString::new(self.name.as_bytes())?;
        Ok(Identity {
            uid: self.uid,
            gid: self.gid,
            groups: groups(&name, self.gid)?,
        })
    }
}

/// Numbers that a process takes on.
pub(crate) struct Identity {
    pub(crate) uid: Uid,
    gid: Gid,
    groups: Vec<Gid>,
}

impl Identity {
    /// Becomes it: first the groups, for which the right to change them is still needed.
    pub(crate) fn take_on(&self) -> nix::Result<()> {
        nix::unistd::setgid(self.gid)?;
        set_groups(&self.groups)?;
        nix::unistd::setuid(self.uid)
    }
}

#[cfg(not(target_vendor = "apple"))]
fn groups(name: &std::ffi::CStr, gid: Gid) -> nix::Result<Vec<Gid>> {
    nix::unistd::getgrouplist(name, gid)
}

#[cfg(not(target_vendor = "apple"))]
fn set_groups(groups: &[Gid]) -> nix::Result<()> {
    nix::unistd::setgroups(groups)
}

/// There, groups beyond the first are a directory service's, which a new process cannot ask.
#[cfg(target_vendor = "apple")]
fn groups(_name: &std::ffi::CStr, _gid: Gid) -> nix::Result<Vec<Gid>> {
    Err(nix::Error::ENOTSUP)
}

#[cfg(target_vendor = "apple")]
fn set_groups(_groups: &[Gid]) -> nix::Result<()> {
    Err(nix::Error::ENOTSUP)
}

fn found(
    user: nix::Result<Option<User>>,
    name: impl Fn() -> String,
) -> Result<Account, AccountError> {
    let user = user.map_err(|error| AccountError::Unreadable(error.into()))?;
    let user = user.ok_or_else(|| AccountError::Unknown(name()))?;
    let shell = if user.shell.as_os_str().is_empty() {
        PathBuf::from("/bin/sh")
    } else {
        user.shell
    };
    Ok(Account {
        name: user.name,
        uid: user.uid,
        gid: user.gid,
        home: user.dir,
        shell,
    })
}

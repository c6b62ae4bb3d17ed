//! Accounts of this host.

use std::ffi::CString;
use std::path::{Path, PathBuf};

use nix::unistd::{Gid, Uid, User, geteuid};

/// An account from the account database of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    name: String,
    uid: Uid,
    gid: Gid,
    home: PathBuf,
    shell: PathBuf,
}

/// Reasons for which an account cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AccountError {
    /// No account has this name or number.
    #[error("account `{0}` does not exist")]
    Unknown(String),
    /// The account database could not be read.
    #[error("cannot read the accounts: {0}")]
    Unreadable(#[source] std::io::Error),
    /// Only root can use another account.
    #[error("only root can run commands as `{0}`")]
    NotRoot(String),
}

impl Account {
    /// The account of this process.
    ///
    /// # Errors
    /// The process has no account, which happens in containers, or the database cannot be read.
    pub fn current() -> Result<Self, AccountError> {
        let uid = geteuid();
        to_account(User::from_uid(uid), || uid.to_string())
    }

    /// The account with this name.
    ///
    /// # Errors
    /// The account does not exist, or the database cannot be read.
    pub fn named(name: &str) -> Result<Self, AccountError> {
        to_account(User::from_name(name), || name.to_owned())
    }

    /// The account with this number.
    ///
    /// # Errors
    /// The account does not exist, or the database cannot be read.
    pub fn numbered(uid: u32) -> Result<Self, AccountError> {
        to_account(User::from_uid(Uid::from_raw(uid)), || uid.to_string())
    }

    /// Name of the account.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Number of the account.
    pub fn uid(&self) -> u32 {
        self.uid.as_raw()
    }

    /// Home directory of the account.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// Login shell; `/bin/sh` if its entry names none.
    pub fn shell(&self) -> &Path {
        &self.shell
    }

    /// True if this process runs as this account.
    pub fn is_own(&self) -> bool {
        self.uid == geteuid()
    }

    /// Checks that this process can run commands as this account.
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

    /// The ids that a process needs to become this account. They are looked up here, because the
    /// new process must not allocate memory.
    pub(crate) fn identity(&self) -> std::io::Result<Identity> {
        let name = CString::new(self.name.as_bytes())?;
        Ok(Identity {
            uid: self.uid,
            gid: self.gid,
            groups: groups(&name, self.gid)?,
        })
    }
}

/// The ids that a process needs to become an account.
pub(crate) struct Identity {
    pub(crate) uid: Uid,
    gid: Gid,
    groups: Vec<Gid>,
}

impl Identity {
    /// Changes the ids of this process: first the groups, because changing them needs the previous
    /// user.
    pub(crate) fn apply(&self) -> nix::Result<()> {
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

/// On these systems, a directory service provides the groups beyond the first, and a new process
/// cannot query it.
#[cfg(target_vendor = "apple")]
fn groups(_name: &std::ffi::CStr, _gid: Gid) -> nix::Result<Vec<Gid>> {
    Err(nix::Error::ENOTSUP)
}

#[cfg(target_vendor = "apple")]
fn set_groups(_groups: &[Gid]) -> nix::Result<()> {
    Err(nix::Error::ENOTSUP)
}

fn to_account(
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

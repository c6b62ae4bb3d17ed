//! Access to the system keyring.

use keyring::{Entry, Error};

use crate::failure::{Code, Failure, chain};

pub(super) fn ready() -> Result<(), Failure> {
    match Entry::store_status() {
        Ok(()) => Ok(()),
        Err(error) => Err(unreachable(error)),
    }
}

pub(super) fn keep(account: &str, token: &str) -> Result<(), Failure> {
    entry(account)?
        .set_password(token)
        .map_err(|error| failed(&error))
}

pub(super) fn read(account: &str) -> Result<Option<String>, Failure> {
    match entry(account)?.get_password() {
        Ok(token) => Ok(Some(token)),
        Err(Error::NoEntry) => Ok(None),
        Err(error) => Err(failed(&error)),
    }
}

pub(super) fn forget(account: &str) -> Result<(), Failure> {
    match entry(account)?.delete_credential() {
        Ok(()) | Err(Error::NoEntry) => Ok(()),
        Err(error) => Err(failed(&error)),
    }
}

fn entry(account: &str) -> Result<Entry, Failure> {
    ready()?;
    Entry::new(SERVICE, account).map_err(|error| failed(&error))
}

fn unreachable(error: &Error) -> Failure {
    Failure::new(
        Code::Failed,
        format!("the keyring cannot be reached: {}", chain(error)),
    )
    .hint(NEXT)
}

fn failed(error: &Error) -> Failure {
    match error {
        // The stored value may be part of the error, so its text is not reported.
        Error::BadEncoding(_) | Error::BadDataFormat(..) => {
            Failure::new(Code::Failed, "the keyring's entry is not a token")
                .hint("sign in again with `svc login`")
        }
        Error::Ambiguous(_) => Failure::new(Code::Failed, "the keyring holds several tokens for one context")
            .hint("remove those of `svc` in the system's password manager, and sign in again with `svc login`"),
        Error::NoStorageAccess(_) => Failure::from_error("the keyring is locked", error)
            .hint("unlock it in your session; on a machine without one, keep the token in a file (--token-storage file)"),
        error => Failure::from_error("the keyring failed", error).hint(NEXT),
    }
}

/// Service name of our entries, visible to other users of the keyring.
const SERVICE: &str = "svc";
#[cfg(target_os = "macos")]
const NEXT: &str = "unlock the keychain; or keep the token in a file (--token-storage file)";
#[cfg(not(target_os = "macos"))]
const NEXT: &str = "a secret service (gnome-keyring, KeePassXC or KWallet) must run in your session; \
                    on a machine without one, keep the token in a file (--token-storage file)";

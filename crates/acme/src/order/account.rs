//! The account at the authority: it is stored, registered and deleted.

use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use instant_acme::{Account, AccountCredentials, ExternalAccountKey, NewAccount};
use serde::{Deserialize, Serialize};
use tracing::info;

use super::{OrderAttempt, stored};
use crate::error::{OrderError, printable};
use crate::http_client::AuthorityClient;
use crate::settings::{ExternalAccount, Settings};
use crate::store::StateFolder;

/// The account on disk, with the directory that it belongs to.
#[derive(Deserialize, Serialize)]
struct AccountFile {
    directory: String,
    contact: Vec<String>,
    credentials: AccountCredentials,
}

const ACCOUNT_FILE: &str = "account.json";

impl OrderAttempt<'_> {
    /// The stored account, or a new one.
    pub(super) async fn account(&self) -> Result<Account, OrderError> {
        if let Some(account) = stored_account(self.settings, self.folder, self.client).await? {
            let (account, file) = account;
            if file.contact != self.settings.contact {
                account.update_contacts(&self.contact()).await?;
                self.store_account(file.credentials)?;
            }
            return Ok(account);
        }
        let binding = self.settings.external_account.as_ref();
        let binding = binding.map(external_account_key).transpose()?;
        let contact = self.contact();
        let new = NewAccount {
            contact: &contact,
            terms_of_service_agreed: true,
            only_return_existing: false,
        };
        let directory = self.settings.directory.clone();
        let builder = Account::builder_with_http(Box::new(self.client.clone()));
        let (account, credentials) = builder.create(&new, directory, binding.as_ref()).await?;
        self.store_account(credentials)?;
        info!(account = account.id(), "the account was registered");
        Ok(account)
    }

    /// The account in a folder, which is registered if necessary. `None` while its lock is held.
    pub(super) async fn account_of(
        &self,
        folder: &StateFolder,
    ) -> Result<Option<Account>, OrderError> {
        if let Some((account, file)) = stored_account(self.settings, folder, self.client).await?
            && file.contact == self.settings.contact
        {
            return Ok(Some(account));
        }
        let locked = folder.try_lock();
        let Some(lock) = locked.map_err(OrderError::state(folder.path()))? else {
            return Ok(None);
        };
        let registration = OrderAttempt {
            settings: self.settings,
            folder,
            lock: &lock,
            challenges: self.challenges,
            provider: self.provider,
            client: self.client,
            now: self.now,
            failures: self.failures,
        };
        registration.account().await.map(Some)
    }

    fn contact(&self) -> Vec<&str> {
        self.settings.contact.iter().map(String::as_str).collect()
    }

    fn store_account(&self, credentials: AccountCredentials) -> Result<(), OrderError> {
        let file = AccountFile {
            directory: self.settings.directory.clone(),
            contact: self.settings.contact.clone(),
            credentials,
        };
        self.store(ACCOUNT_FILE, &file)
    }

    /// Forgets an account that the authority does not have. `shared` is its folder, if several
    /// certificates share it.
    ///
    /// # Errors
    /// Those of the file system.
    pub(crate) fn forget_account(&self, shared: Option<&StateFolder>) -> Result<(), OrderError> {
        let Some(folder) = shared else {
            return self.remove(ACCOUNT_FILE);
        };
        // The holder of the lock notices it as well.
        let locked = folder.try_lock();
        let Some(lock) = locked.map_err(OrderError::state(folder.path()))? else {
            return Ok(());
        };
        let removed = folder.remove(&lock, ACCOUNT_FILE);
        removed.map_err(OrderError::state(&folder.path().join(ACCOUNT_FILE)))
    }
}

/// The account of an earlier process. `None` if there is none for this directory.
async fn stored_account(
    settings: &Settings,
    folder: &StateFolder,
    client: &AuthorityClient,
) -> Result<Option<(Account, AccountFile)>, OrderError> {
    let Some(file) = stored::<AccountFile>(folder, ACCOUNT_FILE)? else {
        return Ok(None);
    };
    if file.directory != settings.directory {
        return Ok(None);
    }
    // The library takes the credentials; a changed contact stores them again.
    let Some(copy) = stored::<AccountFile>(folder, ACCOUNT_FILE)? else {
        return Ok(None);
    };
    let builder = Account::builder_with_http(Box::new(client.clone()));
    let account = builder.from_credentials(file.credentials).await?;
    Ok(Some((account, copy)))
}

/// The account, for questions about renewals.
pub(crate) async fn existing_account(
    settings: &Settings,
    folder: &StateFolder,
    client: &AuthorityClient,
) -> Result<Option<Account>, OrderError> {
    let account = stored_account(settings, folder, client).await?;
    Ok(account.map(|(account, _)| account))
}

/// Reads the key of an external account now; it is not kept.
fn external_account_key(account: &ExternalAccount) -> Result<ExternalAccountKey, OrderError> {
    let failed = |problem: String| OrderError::File {
        path: account.key_file.clone(),
        problem,
    };
    let text =
        read_key(&account.key_file).map_err(|error| failed(format!("cannot be read: {error}")))?;
    let key = BASE64_URL_SAFE_NO_PAD
        .decode(text.trim().trim_end_matches('='))
        .ok()
        .filter(|key| !key.is_empty())
        .ok_or_else(|| failed("does not contain a key in base64url".to_owned()))?;
    Ok(ExternalAccountKey::new(account.key_id.clone(), &key))
}

fn read_key(path: &Path) -> std::io::Result<String> {
    use std::io::Read as _;
    let mut text = String::new();
    let file = std::fs::File::open(path)?;
    file.take(MAX_KEY_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

/// Keys for HMAC have some hundred bytes.
const MAX_KEY_BYTES: u64 = 4096;

/// URL of the stored account. The credentials have no way to read it.
pub(crate) fn account_url(folder: &StateFolder) -> Option<String> {
    let file = stored::<serde_json::Value>(folder, ACCOUNT_FILE).ok()??;
    let url = file.pointer("/credentials/id")?.as_str()?;
    Some(printable(url))
}
